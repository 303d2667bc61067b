package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	values := map[string]string{"p": "7", "q": "x", "none": ""}
	get := func(n string) (string, bool) { v, ok := values[n]; return v, ok }
	for s, want := range map[string]string{
		"orders-{p}":    "orders-7",
		"{q}{p}{q}":     "x7x",
		"plain":         "plain",
		"{p}":           "7",
		"a{p}b{q}c":     "a7bxc",
		"":              "",
		"with space{p}": "with space7",
	} {
		tmpl, err := ParseTemplate(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		if got, err := tmpl.Expand(get); got != want || err != nil {
			t.Errorf("%q: got %q, %v; want %q", s, got, err, want)
		}
		if tmpl.String() != s {
			t.Errorf("%q: String is %q", s, tmpl.String())
		}
	}
	for _, s := range []string{"{", "}", "a{b", "a}b", "{}", "{1}", "{_}", "{a b}", "{a{b}}", "{é}", "{a-b}"} {
		if _, err := ParseTemplate(s); !errors.Is(err, ErrTemplate) {
			t.Errorf("%q: %v", s, err)
		}
	}
	tmpl, _ := ParseTemplate("{q}-{p}-{q}")
	if n := tmpl.Names(); !slices.Equal(n, []string{"q", "p"}) {
		t.Error(n)
	}
	for _, s := range []string{"{unknown}", "a{none}"} {
		tmpl, _ := ParseTemplate(s)
		if _, err := tmpl.Expand(get); !errors.Is(err, ErrNoCapture) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestCheckPartition(t *testing.T) {
	for _, s := range []string{"7", "a", "A.b_c-d:e", strings.Repeat("x", MaxPartitionLen), "0.1.2"} {
		if err := CheckPartition(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"", ".", "..", "a..b", "-a", "_a", ":a", "a/b", "a\\b", "a b", "a\x00", "a\n", "a\x1b[m", "é", "a%2fb", "{p}", strings.Repeat("x", MaxPartitionLen+1)} {
		if err := CheckPartition(s); !errors.Is(err, ErrPartition) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
