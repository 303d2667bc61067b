package config

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policy"
)

func TestRules(t *testing.T) {
	file := func(protocol, rules string) string {
		s := "elections: {backend: \"redis://h\"}\nlisteners:\n  - protocol: " + protocol + "\n    listen: :1\n    upstream: h:1\n    control: \"" + protocol + "://h\"\n    rules:\n"
		for line := range strings.SplitSeq(rules, "\n") {
			s += "      " + line + "\n"
		}
		return s
	}
	const long = "- keys: a:*\n  election: a\n- keys: [\"o:{p}:*\", o2]\n  election: o\n- keys: x\n  access: open"
	for name, c := range map[string]struct{ protocol, rules, want string }{
		"fine":          {"redis", long, ""},
		"both":          {"postgres", "- tables: [a.*, \"b.t?\"]\n  election: a\n- functions: a.*\n  election: a\n- {tables: s.*, access: deny}", ""},
		"a list":        {"redis", "a: b", "7:5: listeners[0].rules: must be a list"},
		"no pattern":    {"redis", "- election: a", "8:9: listeners[0].rules[0]: names nothing: give it keys"},
		"no pattern pg": {"postgres", "- election: a", "8:9: listeners[0].rules[0]: names nothing: give it tables or functions"},
		"no election":   {"redis", "- keys: a", "8:9: listeners[0].rules[0]: decides nothing"},
		"two answers":   {"redis", "- {keys: a, election: a, access: open}", "listeners[0].rules[0].access: given together with election"},
		"bad access":    {"redis", "- {keys: a, access: opn}", `listeners[0].rules[0].access: "opn" is not one of open, deny (did you mean open?)`},
		"wrong wire":    {"redis", "- {tables: a.b, election: a}", "listeners[0].rules[0].tables: is not for redis: its rules have keys"},
		"wrong wire pg": {"postgres", "- {keys: a.b, election: a}", "listeners[0].rules[0].keys: is not for postgres: its rules have tables or functions"},
		"two kinds":     {"postgres", "- {tables: a.b, functions: a.b, election: a}", "listeners[0].rules[0].functions: given together with tables"},
		"unknown key":   {"redis", "- {key: a, election: a}", "listeners[0].rules[0].key: unknown key: did you mean keys?"},
		"bad pattern":   {"redis", "- {keys: 'a{', election: a}", `listeners[0].rules[0]: not a pattern: "a{"`},
		"no schema":     {"postgres", "- {tables: a, election: a}", `listeners[0].rules[0]: not a pattern: "a" is not schema.name`},
		"a comma":       {"postgres", "- {tables: \"a.*, b.*\", election: a}", `listeners[0].rules[0].tables: "a.*, b.*" holds a comma: several patterns are a list`},
		"two dots":      {"postgres", "- {functions: [a.b, a.b.c], election: a}", `listeners[0].rules[0].functions[1]: "a.b.c" holds 2 dots`},
		"keys are free": {"redis", "- {keys: \"a.b.c, d\", election: a}", ""},
		"bad election":  {"redis", "- {keys: a, election: 'a b'}", "listeners[0].rules[0]: invalid election"},
		"no capture":    {"redis", "- {keys: a, election: 'a-{p}'}", `listeners[0].rules[0]: election "a-{p}" needs {p}`},
		"never":         {"redis", "- {keys: 'a*', election: a}\n- {keys: [b, ab], access: deny}", `listeners[0].rules[1].keys[1]: rule 2: pattern "ab" never matches: rule 1 ("a*")`},
		"not served":    {"redis", "- {keys: 'a*', election: a}\nelections: [b]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := file(c.protocol, c.rules)
			if name == "not served" {
				text = strings.Replace(file(c.protocol, "- {keys: 'a*', election: a}"), "    rules:", "    elections: [\"b*\"]\n    rules:", 1)
				c.want = `listeners[0].rules[0]: "a" is not among the listener's elections`
			}
			cfg, err := Parse("f.yaml", []byte(text), env(nil))
			if c.want == "" {
				if err != nil || cfg.Listeners[0].Rules.Len() == 0 {
					t.Errorf("%v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	cfg, err := Parse("f.yaml", []byte(strings.Replace(file("redis", long), "    rules:", "    election: rest\n    rules:", 1)), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	l := &cfg.Listeners[0]
	for key, want := range map[string]string{"a:1": "a", "o:1:2": "o", "zzz": "rest"} {
		if d := l.Rules.Decide([]policy.Target{{Kind: policy.Key, Name: key}}); len(d.Elections) != 1 || d.Elections[0] != want {
			t.Errorf("%s: %+v", key, d)
		}
	}
	if !l.Serves("rest") || !l.Serves("o") {
		t.Error("a listener with rules serves their elections")
	}
}
