package config

import (
	"fmt"
	"strings"
	"testing"
)

const redisListener = `elections:
  backend: redis://localhost:6379
listeners:
  - {protocol: redis, listen: 127.0.0.1:6380, upstream: 127.0.0.1:6379, control: redis://127.0.0.1:6379, `

func TestElectionCommands(t *testing.T) {
	const token = "0123456789abcdef"
	for _, c := range []struct{ text, want string }{
		{"{}", "&{true true [] }"},
		{"{allow: loopback}", "&{true true [] }"},
		{"{allow: [10.0.0.0/8, 192.0.2.7]}", "&{true false [10.0.0.0/8 192.0.2.7/32] }"},
		{"{allow: none, token: " + token + "}", "&{true false [] [token]}"},
		{"{token: '${T}'}", "&{true true [] [token]}"},
		{"{allow: none}", "nobody may: set token"},
		{"{allow: []}", "allow: is an empty list"},
		{"{allow: [10.0.0.1/8]}", "allow[0]: 10.0.0.1/8 has bits beyond its length"},
		{"{allow: everybody}", "is not one of loopback, none"},
		{"{token: secret7}", "election_commands.token: is shorter than 16 characters"},
		{"{alow: loopback}", "did you mean allow?"},
		{"on", "must be a mapping"},
	} {
		cfg, err := Parse("/etc/f.yaml", []byte(redisListener+"election_commands: "+c.text+"}\n"), env(map[string]string{"T": token}))
		if err != nil {
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret7") {
				t.Errorf("%s: %v, want %s", c.text, err, c.want)
			}
			continue
		}
		e := &cfg.Listeners[0].ElectionCommands
		if got := strings.ReplaceAll(fmt.Sprint(e), " [unreadable URL]", " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
		if e.Token.Reveal() != "" && e.Token.Reveal() != token || strings.Contains(fmt.Sprintf("%v %+v", cfg, e), token) {
			t.Errorf("%s: the token is %v", c.text, e.Token)
		}
	}
	if _, err := Parse("/etc/f.yaml", []byte(strings.Replace(good, "protocol: postgres", "protocol: postgres\n    election_commands: {}", 1)), env(nil)); err == nil || !strings.Contains(err.Error(), "is for redis and valkey only") {
		t.Errorf("got %v", err)
	}
	// What prints a configuration shows no token.
	cfg, err := Parse("/etc/f.yaml", []byte(good+"admin: {listen: 127.0.0.1:1, token: "+token+"}\n"), env(nil))
	if err != nil || strings.Contains(fmt.Sprintf("%+v %#v", cfg, cfg), token) {
		t.Errorf("%v %+v", err, cfg)
	}
}
