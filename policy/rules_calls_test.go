package policy

import (
	"slices"
	"testing"
)

// A call counts where a rule of functions names it, or may.
func TestCalling(t *testing.T) {
	r, err := NewRules([]Rule{
		{Kind: Table, Patterns: []string{"*.*"}, Election: "tables"},
		{Kind: Function, Patterns: []string{"scratch.*"}, Access: Open},
		{Kind: Function, Patterns: []string{"billing.*"}, Election: "billing"},
		{Kind: Function, Patterns: []string{"tenant_{t}.work"}, Election: "tenant-{t}"},
		{Kind: Function, Patterns: []string{"secret.hidden"}, Access: Deny},
	}, "rest", func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	f := func(schema, name string) Target { return Target{Kind: Function, Schema: schema, Name: name} }
	for _, test := range []struct {
		targets   []Target
		elections []string
		deny      bool
	}{
		{[]Target{f("public", "work"), f("scratch", "work"), {Kind: Table, Schema: "billing", Name: "t"}}, nil, false},
		{[]Target{f("public", "work"), f("billing", "work")}, []string{"billing"}, false},
		{[]Target{f("tenant_a", "work"), f("billing", "x")}, []string{"tenant-a", "billing"}, false},
		{[]Target{f("secret", "hidden")}, nil, true},
		{[]Target{{Kind: Function, Name: "any", AnySchema: true}}, []string{"billing"}, false},
		{[]Target{{Kind: Function, Name: "work", AnySchema: true}}, nil, true},
		{[]Target{{Kind: Function, Name: "hidden", AnySchema: true}}, nil, true},
		{[]Target{{What: foreignFunction}}, nil, true},
		{[]Target{{What: "LISTEN"}}, nil, false},
	} {
		d := r.Calling(test.targets)
		if d.Deny != test.deny || !slices.Equal(d.Elections, test.elections) || d.Deny != (d.Why != "") {
			t.Errorf("%v: %+v", test.targets, d)
		}
	}
	if !r.FencesCalls() {
		t.Error("no rule of functions")
	}
}
