package policy

import (
	"strings"
	"testing"
)

func TestCheckNamePattern(t *testing.T) {
	for text, want := range map[string]string{
		"billing.*":             "",
		`a.b\.c`:                "",
		`a\ b.c\,d`:             "",
		"tenant_{A}.*":          "",
		"billing.*, invoices.*": "holds a comma",
		"a.b c":                 "holds white space, as character 4",
		"a.b\t":                 "holds white space",
		"db.a.b":                "holds 2 dots",
		"{a}.{b}.c":             "holds 2 dots",
	} {
		err := CheckNamePattern(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestDoubts(t *testing.T) {
	r, err := NewRules([]Rule{
		{Kind: Table, Patterns: []string{"a.*", "Foo.Bar", `\F.b`, "{T}.x"}, Access: Open},
		{Kind: Function, Patterns: []string{"a.B"}, Access: Open},
		{Kind: Key, Patterns: []string{"A.B"}, Access: Open},
	}, "", func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if d := r.Doubts(); len(d) != 2 || !strings.HasPrefix(d[0], `rule 1: pattern "Foo.Bar"`) || !strings.HasPrefix(d[1], `rule 2: pattern "a.B"`) {
		t.Errorf("%q", d)
	}
}
