package zookeeper

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
)

func TestOpenURL(t *testing.T) {
	for raw, want := range map[string]struct {
		servers []string
		o       Options
	}{
		"zookeeper://host":                  {[]string{"host:2181"}, Options{}},
		"ZooKeeper://host:1/":               {[]string{"host:1"}, Options{}},
		"zookeeper://h1:1,h2,[::1],[::1]:5": {[]string{"h1:1", "h2:2181", "[::1]:2181", "[::1]:5"}, Options{}},
		"zookeeper://h/a/b/":                {[]string{"h:2181"}, Options{Chroot: "/a/b"}},
		"zookeeper://u:p%40%2F%3A@h1,h2:3/a?session-timeout=20s&answer-timeout=1s": {[]string{"h1:2181", "h2:3"}, Options{
			Chroot: "/a", User: "u", Password: "p@/:", SessionTimeout: 20 * time.Second, AnswerTimeout: time.Second,
		}},
	} {
		servers, o, err := parseURL(raw, Options{})
		if err != nil || !reflect.DeepEqual(servers, want.servers) || !reflect.DeepEqual(o, want.o) {
			t.Errorf("%q: %q %+v %v", raw, servers, o, err)
		}
		b, err := OpenURL(raw, Options{})
		if err != nil {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, raw := range []string{
		"", "zookeeper:", "zookeeper://", "zookeeper://,", "zookeeper://h,", "zookeeper://h:x", "zookeeper://h:0", "zookeeper://h:65536",
		"zookeeper://:1", "zookeeper://h:1:2", "redis://h", "zookeeper://@h", "zookeeper://:p@h", "zookeeper://%zz@h", "zookeeper://h/%zz",
		"zookeeper://h?x=1", "zookeeper://h?session-timeout=1", "zookeeper://h?session-timeout=-1s", "zookeeper://h#x", "zookeeper://u:a/b@h",
	} {
		if b, err := OpenURL(raw, Options{}); !errors.Is(err, connurl.ErrInvalid) || b != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, raw := range []string{
		"zookeeper://h/a//b", "zookeeper://h/a/../b", "zookeeper://h/%00", "zookeeper://h?session-timeout=1ms",
		"zookeeper://h?answer-timeout=1ms", "zookeeper://h?answer-timeout=1h", "zookeeper://a%3Ab:c@h",
	} {
		if b, err := OpenURL(raw, Options{}); !errors.Is(err, ErrInvalidOptions) || b != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
	if b, err := Open(nil, Options{}); !errors.Is(err, ErrInvalidOptions) || b != nil {
		t.Error(err)
	}
}

// Safety: whatever is wrong with a URL, its error holds no piece of the password.
func TestURLErrorsKeepPasswords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[A-Z]{4}`) // the password is of capitals, nothing else is
		odd := rapid.SampledFrom([]string{"/", "@", ":", "%", "%zz", "?", "#", "&", "=", " ", "[", "]", "\n", "\x00", "ä", ",", "5432", ""})
		secret := part.Draw(t, "a") + odd.Draw(t, "x") + part.Draw(t, "b") + odd.Draw(t, "y") + part.Draw(t, "c")
		raw := fmt.Sprintf(rapid.SampledFrom([]string{
			"zookeeper://user:%s@host/x", "zookeeper://user:%s@h1:1,h2:2/x?session-timeout=1", "zookeeper://user:%s", "zookeeper://%s",
			"zookeeper://%s@host", "zookeeper://host/%s", "zookeeper://host?password=%s", "zookeeper:%s", "%s", "zookeeper://:%s@h",
		}).Draw(t, "form"), secret)
		b, err := OpenURL(raw, Options{})
		if err == nil {
			_ = b.Close()
			return
		}
		text := fmt.Sprintf("%v %+v %#v %q", err, err, err, err)
		for i := 0; i+4 <= len(secret); i++ {
			if p := secret[i : i+4]; strings.ToUpper(p) == p && strings.ToLower(p) != p && strings.Contains(text, p) {
				t.Fatalf("%q: shows %q: %v", raw, p, err)
			}
		}
	})
}
