package connurl

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Safety: whatever a password holds and however the URL is cut by it, no piece of
// it comes back, even from a parser that quotes all it was given.
func TestExplainKeepsSecrets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// The secret is in capitals, with anything between; the rest is not.
		part := rapid.StringMatching(`[A-Z]{3}`)
		odd := rapid.SampledFrom([]string{"/", "@", ":", "%", "%zz", "?", "#", "&", "=", " ", "[", "]", "\n", "\x00", "ä", "'", "\\", ""})
		secret := part.Draw(t, "a") + odd.Draw(t, "x") + part.Draw(t, "b") + odd.Draw(t, "y") + part.Draw(t, "c")
		raw := rapid.SampledFrom([]string{
			"redis://user:%s@host:6379/0", "redis://:%s@host/x", "postgres://user:%s@host/db?sslmode=nonsense",
			"redis://%s@host", "postgres://host/db?password=%s", "postgres://host/db?sslpassword=%s&connect_timeout=x",
			"host=h user=u password=%s dbname=d", "://user:%s@host", "user:%s@host", "redis://user:%s@host:port",
		}).Draw(t, "form")
		raw = fmt.Sprintf(raw, secret)
		err := Explain(raw, fmt.Errorf("cannot parse %q", raw))
		if !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
		for i := 0; i+3 <= len(secret); i++ {
			if p := secret[i : i+3]; strings.ToUpper(p) == p && strings.ToLower(p) != p && strings.Contains(err.Error(), p) {
				t.Fatalf("%q: shows %q: %v", raw, p, err)
			}
		}
	})
}

func TestExplainHelps(t *testing.T) {
	err := Explain("redis://host:6379/0?bad=1", errors.New("unexpected option: bad"))
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "unexpected option: bad") {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	for _, s := range []string{"redis://u:p@host/1", "postgres://u:p@h1:1,h2:2/db?x=y", "host=h password=a/b@c", "unix:///x", "memory:"} {
		if err := Check(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"redis://u:p/q@host/1", "postgres://u:p?q@host", "postgres://u:p@q/r@host", "redis://u:p#q@host"} {
		if err := Check(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", s, err)
		}
	}
}
