package config

import (
	"strings"
	"testing"
	"time"
)

func TestElect(t *testing.T) {
	file := func(backend, more string) string {
		return "elections: {backend: \"" + backend + "\"}\nlisteners:\n  - protocol: redis\n    listen: :1\n    upstream: h:1\n    control: redis://h\n    " + more + "\n"
	}
	const other = "\n  - protocol: redis\n    listen: :2\n    upstream: h:1\n    control: redis://h\n    name: two\n    "
	for name, c := range map[string]struct {
		backend, more string
		want          string // without f.yaml:
	}{
		"all":            {"redis://h", "elect: {election: billing, owner: host-a, ttl: 15s, renew_every: 5s, hold_off: 10s}", ""},
		"the least":      {"postgres://h/d", "elect: {election: billing}", ""},
		"the listener's": {"redis://h", "election: billing\n    elect: {election: billing}", ""},
		"one of several": {"redis://h", "elections: [b*]\n    elect: {election: billing}", ""},
		"shared":         {"redis://h", "elect: {election: billing, ttl: 9s}" + other + "elect: {election: billing, ttl: 9s}", ""},
		"two":            {"redis://h", "elect: {election: billing}" + other + "elect: {election: orders, ttl: 9s}", ""},
		"no election":    {"redis://h", "elect: {owner: host-a}", "7:5: listeners[0].elect.election: missing: the election that"},
		"a bad name":     {"redis://h", "elect: {election: 'b b'}", "7:13: listeners[0].elect.election: "},
		"unknown key":    {"redis://h", "elect: {election: billing, lease: 9s}", "7:32: listeners[0].elect.lease: unknown key"},
		"renews late":    {"redis://h", "elect: {election: billing, ttl: 10s, renew_every: 6s}", "7:5: listeners[0].elect: invalid duration: renew_every 6s"},
		"another":        {"redis://h", "election: orders\n    elect: {election: billing}", "8:5: listeners[0].elect: campaigns in election \"billing\", and the listener's own is \"orders\""},
		"not served":     {"redis://h", "elections: [o*]\n    elect: {election: billing}", "8:5: listeners[0].elect: \"billing\" is not among"},
		"differs":        {"redis://h", "elect: {election: billing}" + other + "elect: {election: billing, ttl: 9s}", "13:5: listeners[1].elect: differs from that of listener :1 on line 7"},
		"hold-off":       {"kubernetes:///n", "elect: {election: billing, hold_off: 9s}", "7:5: listeners[0].elect.hold_off: elections are kept by kubernetes, which cannot"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := Parse("f.yaml", []byte(file(c.backend, c.more)), env(nil))
			if c.want == "" {
				if err != nil || cfg.Listeners[0].Elect.Election != "billing" || cfg.Listeners[0].Election != "billing" {
					t.Errorf("got %+v, %v", cfg, err)
				}
				return
			}
			if err == nil || !strings.Contains("\n"+strings.ReplaceAll(err.Error(), "f.yaml:", ""), "\n"+c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	cfg, err := Parse("f.yaml", []byte(file("redis://h", "elect: {election: billing, owner: host-a, ttl: 20s, renew_every: 5s, hold_off: 10s}")), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if e := *cfg.Listeners[0].Elect; e.Owner != "host-a" || e.TTL != 20*time.Second || e.RenewEvery != 5*time.Second || e.HoldOff != 10*time.Second {
		t.Errorf("%+v", e)
	}
}
