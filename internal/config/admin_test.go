package config

import (
	"strings"
	"testing"
)

func TestAdmin(t *testing.T) {
	const token = "0123456789abcdef"
	for name, c := range map[string]struct {
		text string
		want string // part of the mistake; empty for none
	}{
		"loopback":   {"{listen: 127.0.0.1:9180}", ""},
		"a socket":   {"{listen: /run/fp.sock, socket_mode: 0660}", ""},
		"a token":    {"{listen: :9180, token: " + token + "}", ""},
		"TLS":        {"{listen: :9180, tls: {cert: a, key: b, client_ca: c}}", ""},
		"no address": {"{token: " + token + "}", "admin.listen: missing"},
		"short":      {"{listen: :9180, token: secret7}", "admin.token: is shorter than 16 characters"},
		"spaces":     {"{listen: :9180, token: '" + token + " x'}", "admin.token: must be printable ASCII"},
		"mode":       {"{listen: :9180, socket_mode: 0660}", "admin.socket_mode: is for Unix sockets"},
		"half TLS":   {"{listen: :9180, tls: {cert: a}}", "admin.tls: "},
		"typo":       {"{listen: :9180, tokn: x}", "did you mean token?"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := Parse("/etc/f.yaml", []byte(good+"admin: "+c.text+"\n"), env(nil))
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if a := cfg.Admin; a.Local() != (name == "loopback" || name == "a socket") || a.Authenticates() != (name == "a token" || name == "TLS") {
					t.Errorf("%+v", a)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret7") {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
