package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
)

// A fakeProber answers by port: p is a primary, s a standby, r a primary that is
// read-only by default, d is down, w does not take the role, b begins.
type fakeProber struct {
	mu    sync.Mutex
	kinds map[string]byte
	asked int
	takes time.Duration
}

func (f *fakeProber) Probe(ctx context.Context, _, addr string) (pgfence.Kind, error) {
	f.mu.Lock()
	f.asked++
	kind := f.kinds[addr]
	f.mu.Unlock()
	if f.takes > 0 {
		select {
		case <-time.After(f.takes):
		case <-ctx.Done():
			return pgfence.Kind{}, ctx.Err()
		}
	}
	switch kind {
	case 'p':
		return pgfence.Kind{}, nil
	case 's':
		return pgfence.Kind{Standby: true}, nil
	case 'r':
		return pgfence.Kind{ReadOnly: true}, nil
	case 'w':
		return pgfence.Kind{}, fmt.Errorf("login: %w", &pgconn.PgError{Code: "28000"})
	case 'b':
		return pgfence.Kind{}, fmt.Errorf("login: %w", &pgconn.PgError{Code: "57P03"})
	}
	return pgfence.Kind{}, errors.New("down")
}

// testHosts are hosts of the kinds that word has, on ports from 1 on.
func testHosts(t *testing.T, word string, attrs SessionAttrs) (*hosts, *fakeProber) {
	t.Helper()
	p := &fakeProber{kinds: make(map[string]byte)}
	var list []string
	for i := range len(word) {
		addr := fmt.Sprintf("127.0.0.1:%d", i+1)
		list = append(list, addr)
		p.kinds[addr] = word[i]
	}
	h, err := newHosts(Config{Upstream: strings.Join(list, ", "), TargetSessionAttrs: attrs, Prober: p})
	if err != nil {
		t.Fatal(err)
	}
	return h, p
}

// ports are the ports of the candidates in order, a minus before those that do not do.
func ports(h *hosts) string {
	var s []string
	for c, err := range h.candidates(context.Background()) {
		_, port, _ := net.SplitHostPort(c.addr)
		if err != nil {
			port = "-" + port
		}
		s = append(s, port)
	}
	return strings.Join(s, " ")
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		word  string
		attrs SessionAttrs
		want  string
	}{
		{"sprdwb", AnySession, "1 2 3 -4 5 -6"},
		{"sprdw", ReadWriteSession, "-1 2 -3 -4 -5"},
		{"sprdw", ReadOnlySession, "1 -2 3 -4 -5"},
		{"sprdw", PrimarySession, "-1 2 3 -4 -5"},
		{"sprdw", StandbySession, "1 -2 -3 -4 -5"},
		{"psdr", PreferStandbySession, "2 1 3 4"},
	} {
		h, _ := testHosts(t, c.word, c.attrs)
		if got := ports(h); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.attrs, c.word, got, c.want)
		}
	}
}

func TestCandidatesAtRandom(t *testing.T) {
	h, _ := testHosts(t, "ppp", AnySession)
	h.random = true
	seen := map[string]bool{}
	for range 200 {
		seen[ports(h)] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d of 6 orders", len(seen))
	}
	// A name's addresses too, which are tried each.
	h, err := newHosts(Config{Upstream: "localhost:5432"})
	if err != nil {
		t.Fatal(err)
	}
	if got := ports(h); !strings.Contains(got, "5432") {
		t.Error(got)
	}
}

// A probe is asked once for all who wait for it, and again when its answer is old or a
// connection failed.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := testHosts(t, "p", PrimarySession)
		p.takes = 100 * time.Millisecond
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if got := ports(h); got != "1" {
					t.Error(got)
				}
			})
		}
		wg.Wait()
		if p.asked != 1 {
			t.Errorf("asked %d times", p.asked)
		}
		p.kinds["127.0.0.1:1"] = 's'
		time.Sleep(probeTTL - 1)
		if got := ports(h); got != "1" || p.asked != 1 {
			t.Errorf("%s after %d", got, p.asked)
		}
		time.Sleep(1)
		if got := ports(h); got != "-1" || p.asked != 2 {
			t.Errorf("%s after %d", got, p.asked)
		}
		p.kinds["127.0.0.1:1"] = 'p'
		h.forget("127.0.0.1:1")
		if got := ports(h); got != "1" || p.asked != 3 {
			t.Errorf("%s after %d", got, p.asked)
		}
		// One that does not answer holds nobody up for long, and one session's end is no
		// answer about the server.
		h.forget("127.0.0.1:1")
		p.takes = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := h.suits(ctx, h.all[0]); err == nil || time.Since(start) != probeTimeout {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		start = time.Now()
		if err := h.suits(t.Context(), h.all[0]); err == nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		for range 3 * maxProbes {
			_, _ = h.kind(ctx, target{addr: fmt.Sprint(len(h.probes), time.Now())})
		}
		if len(h.probes) > maxProbes {
			t.Errorf("%d addresses are remembered", len(h.probes))
		}
	})
}

func TestHostsRefused(t *testing.T) {
	for _, c := range []Config{
		{Upstream: "a"}, {Upstream: "a:5432,"}, {Upstream: "a:5432,b"}, {Upstream: "a:port"}, {Upstream: "a:0"},
		{Upstream: "a:1", TargetSessionAttrs: PrimarySession},
		{Upstream: "a:1", TargetSessionAttrs: "secondary", Prober: &fakeProber{}},
	} {
		if _, err := newHosts(c); err == nil {
			t.Errorf("%+v", c)
		}
	}
}

// A cancel request goes where a session of that process id is.
func TestServerOf(t *testing.T) {
	var s serverOf
	a, b := target{"a", "a:1"}, target{"b", "b:1"}
	leave1, leave2, leave3 := s.enter(7, a), s.enter(7, b), s.enter(7, a)
	if got := s.find(7); !slices.Equal(got, []target{a, b}) {
		t.Error(got)
	}
	leave1()
	leave2()
	if got := s.find(7); !slices.Equal(got, []target{a}) {
		t.Error(got)
	}
	leave3()
	if got := s.find(7); got != nil || len(s.pid) != 0 {
		t.Error(got, s.pid)
	}
}
