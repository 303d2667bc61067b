package config

import (
	"strings"
	"testing"
	"time"
)

func TestGates(t *testing.T) {
	for text, want := range map[string]string{
		"[{name: orders, election: 'orders-{partition}'}]":                         "",
		"[{name: a, election: '{partition}', permit: 2s, max: 5, grace: 1m}]":      "",
		"[{election: '{partition}'}]":                                              "gates[0].name: missing",
		"[{name: a}]":                                                              "gates[0].election: missing",
		"[{name: a, election: orders}]":                                            "must hold {partition}",
		"[{name: a, election: '{p}'}]":                                             "must hold {partition}",
		"[{name: a/b, election: '{partition}'}]":                                   "make a gate's name",
		"[{name: a, election: '{partition}'}, {name: a, election: '{partition}'}]": "already the name",
		"[{name: a, election: '{partition}', permit: 1s, validate_every: 800ms}]":  "at most half of permit",
		"[{name: a, election: '{partition}', permit: 1ms}]":                        "out of range",
		"[{name: a, election: '{partition}', max: 0}]":                             "out of range",
		"[{name: a, election: '{partition}', permits: 1s}]":                        "did you mean permit?",
	} {
		cfg, err := Parse("/etc/f.yaml", []byte(good+"admin: {listen: 127.0.0.1:9180}\ngates: "+text+"\n"), env(nil))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want == "" && (len(cfg.Gates) != 1 || cfg.Gates[0].ValidateEvery > cfg.Gates[0].Permit/2 || cfg.Gates[0].ValidateEvery < time.Millisecond):
			t.Errorf("%s: %+v", text, cfg.Gates)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	const alone = "elections: {backend: redis://h:1}\ngates: [{name: a, election: '{partition}'}]\n"
	if _, err := Parse("/etc/f.yaml", []byte(alone+"admin: {listen: 127.0.0.1:9180}\n"), env(nil)); err != nil {
		t.Errorf("gates without listeners: %v", err)
	}
	if _, err := Parse("/etc/f.yaml", []byte(alone), env(nil)); err == nil || !strings.Contains(err.Error(), "nobody reaches a gate") {
		t.Errorf("gates without an admin listener: %v", err)
	}
	const listener = "listeners: [{protocol: redis, listen: ':1', upstream: 'h:1', control: 'redis://h:1', gate_commands: "
	if cfg, err := Parse("/etc/f.yaml", []byte(alone+listener+"[a]}]\n"), env(nil)); err != nil || len(cfg.Listeners[0].GateCommands) != 1 {
		t.Errorf("gates for a listener: %v", err)
	}
	if _, err := Parse("/etc/f.yaml", []byte(alone+listener+"[b]}]\n"), env(nil)); err == nil || !strings.Contains(err.Error(), "is not the name of one of the gates") {
		t.Errorf("a gate that there is not: %v", err)
	}
}
