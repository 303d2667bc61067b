package config

import (
	"strings"
	"testing"
)

func TestBound(t *testing.T) {
	const cluster = "  - {protocol: redis, listen: :7000, upstream: 'redis+cluster://h:1', control: 'redis+cluster://h:1', cluster: {ports: 7001-7002}, exclusive: "
	for text, want := range map[string]string{
		"    bind: required\n":    "",
		"    bind: optional\n":    "",
		"    bind: yes\n":         "bind: \"yes\" is not one of optional, required",
		"    exclusive: true\n":   "",
		"    exclusive: client\n": "",
		"    exclusive: none\n":   "exclusive: \"none\" is not one of",
		cluster + "true}\n":       "write client",
		cluster + "client}\n":     "",
	} {
		cfg, err := Parse("/etc/f.yaml", []byte(good+text), env(nil))
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %s", text, err, want)
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want == "":
			l := cfg.Listeners[len(cfg.Listeners)-1]
			if l.BindRequired != strings.Contains(text, "required") || (l.Exclusive != "") != strings.Contains(text, "exclusive") {
				t.Errorf("%s: %+v", text, l)
			}
		}
	}
}
