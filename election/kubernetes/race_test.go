package kubernetes

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// tap lets a test see requests and answers on their way.
type tap struct {
	next   http.RoundTripper
	before func(*http.Request)
	after  func(*http.Request, *http.Response) error
}

func (p tap) RoundTrip(q *http.Request) (*http.Response, error) {
	if p.before != nil {
		p.before(q)
	}
	resp, err := p.next.RoundTrip(q)
	if err == nil && p.after != nil {
		if err := p.after(q, resp); err != nil {
			_ = resp.Body.Close()
			return nil, err
		}
	}
	return resp, err
}

// tapped is the site's config with a tap.
func (s *site) tapped(before func(*http.Request), after func(*http.Request, *http.Response) error) *rest.Config {
	c := rest.CopyConfig(s.config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return tap{next, before, after} })
	return c
}

// between opens a backend whose first write is held until f has run.
func (s *site) between(t testing.TB, f func()) *Backend {
	var once sync.Once
	return s.open(t, s.tapped(func(q *http.Request) {
		if q.Method != http.MethodGet {
			once.Do(f)
		}
	}, nil))
}

// Safety: what happened between a call's question and its write is decided on again,
// never written over. Without the UID in the write, the API server would make a Lease
// that was deleted anew; without the resourceVersion it would take any write.
func TestDecidesAgain(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	other := s.open(t, s.config)
	var g, h election.AcquireResult // the first holder, and who comes in between
	takeover := func(t testing.TB) {
		if r, err := other.Resign(t.Context(), "e", g.Token, election.ResignOptions{}); err != nil || r.Status != election.Released {
			t.Errorf("%+v, %v", r, err)
		}
		h = win(t, other, "e", election.AcquireOptions{Owner: "h"})
	}
	remove := func(t testing.TB) { s.lose(t, "e") }
	anew := func(t testing.TB) { remove(t); h = win(t, other, "e", election.AcquireOptions{Owner: "h"}) }
	gone := func(t testing.TB) {
		t.Helper()
		s.must(t, http.MethodGet, s.leases("e"), nil, http.StatusNotFound)
	}
	holds := func(t testing.TB) { t.Helper(); standing(t, other, "e", h.Token, election.StandingCurrent, h.Number) }

	for name, c := range map[string]struct {
		happens func(testing.TB)
		call    func(testing.TB, *Backend)
		after   func(testing.TB)
	}{
		"Renew/TakenOver": {takeover, func(t testing.TB, b *Backend) { renew(t, b, "e", g.Token, election.Lost) }, holds},
		"Renew/Deleted":   {remove, func(t testing.TB, b *Backend) { renew(t, b, "e", g.Token, election.Lost) }, gone},
		"Renew/MadeAnew":  {anew, func(t testing.TB, b *Backend) { renew(t, b, "e", g.Token, election.Lost) }, holds},
		"Renew/Renewed": {
			func(t testing.TB) { renew(t, other, "e", g.Token, election.Renewed) },
			func(t testing.TB, b *Backend) { renew(t, b, "e", g.Token, election.Renewed) },
			func(t testing.TB) { standing(t, other, "e", g.Token, election.StandingCurrent, g.Number) },
		},
		"Resign/TakenOver": {takeover, notOwner(&g), holds},
		"Resign/Deleted":   {remove, notOwner(&g), gone},
		"Resign/MadeAnew":  {anew, notOwner(&g), holds},
		"OwnGrant/TakenOver": {takeover, func(t testing.TB, b *Backend) {
			r, err := b.Acquire(t.Context(), "e", election.AcquireOptions{Token: g.Token})
			if err != nil || r.Status != election.Busy || r.Number != h.Number || r.Owner != "h" {
				t.Errorf("%+v, %v", r, err)
			}
		}, holds},
		"OwnGrant/Deleted": {remove, func(t testing.TB, b *Backend) {
			if r := win(t, b, "e", election.AcquireOptions{Token: g.Token}); r.Number <= g.Number {
				t.Errorf("number %d after %d", r.Number, g.Number)
			}
		}, func(testing.TB) {}},
	} {
		t.Run(name, func(t *testing.T) {
			s.ask(t, http.MethodDelete, s.leases("e"), nil) // of the case before
			g = win(t, other, "e", election.AcquireOptions{Owner: "g"})
			happened := false
			b := s.between(t, func() { happened = true; c.happens(t) })
			c.call(t, b)
			c.after(t)
			if !happened {
				t.Error("the call wrote nothing")
			}
		})
	}

	t.Run("Acquire/Created", func(t *testing.T) {
		s.ask(t, http.MethodDelete, s.leases("e"), nil)
		b := s.between(t, func() { h = win(t, other, "e", election.AcquireOptions{Owner: "h"}) })
		r, err := b.Acquire(t.Context(), "e", election.AcquireOptions{})
		if err != nil || r.Status != election.Busy || r.Number != h.Number || r.Owner != "h" {
			t.Errorf("%+v, %v", r, err)
		}
		holds(t)
	})
}

func notOwner(g *election.AcquireResult) func(testing.TB, *Backend) {
	return func(t testing.TB, b *Backend) {
		if r, err := b.Resign(t.Context(), "e", g.Token, election.ResignOptions{}); err != nil || r.Status != election.NotOwner {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// E11: a write was made, its answer was lost. Asked again, each call says what is.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	errLost := errors.New("the answer is lost")
	var lose atomic.Bool
	b := s.open(t, s.tapped(nil, func(q *http.Request, _ *http.Response) error {
		if q.Method != http.MethodGet && lose.CompareAndSwap(true, false) {
			return errLost
		}
		return nil
	}))
	ask := func(o election.AcquireOptions) election.AcquireResult {
		t.Helper()
		lose.Store(true)
		if r, err := b.Acquire(t.Context(), "e", o); !errors.Is(err, election.ErrUnavailable) || !errors.Is(err, errLost) || r.Status != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		st, err := b.Status(t.Context(), "e")
		if err != nil || st.Status != election.Held {
			t.Fatalf("the lost write: %+v, %v", st, err)
		}
		g := win(t, b, "e", o)
		if g.Number != st.Number {
			t.Fatalf("asked again: %d, granted was %d", g.Number, st.Number)
		}
		return g
	}
	first := ask(election.AcquireOptions{Token: election.NewToken()}) // the Lease is made
	lose.Store(true)
	if r, err := b.Resign(t.Context(), "e", first.Token, election.ResignOptions{}); !errors.Is(err, election.ErrUnavailable) {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := b.Resign(t.Context(), "e", first.Token, election.ResignOptions{}); err != nil || r.Status != election.NotOwner {
		t.Fatalf("resigned again: %+v, %v", r, err)
	}
	second := ask(election.AcquireOptions{Token: election.NewToken()}) // the Lease is changed
	if second.Number <= first.Number {
		t.Errorf("number %d after %d", second.Number, first.Number)
	}
	lose.Store(true)
	if r, err := b.Renew(t.Context(), "e", second.Token); !errors.Is(err, election.ErrUnavailable) {
		t.Fatalf("%+v, %v", r, err)
	}
	renew(t, b, "e", second.Token, election.Renewed)
}

// Safety: of twenty candidates with connections of their own, one at a time leads, with
// a number of its own that is higher than all before; and they do get in each other's
// way.
func TestTwentyCandidates(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	ctx := testenv.Context(t)
	const candidates, rounds = 20, 3
	var (
		conflicts, leaders atomic.Int32
		last               atomic.Int64
		wg                 sync.WaitGroup
	)
	for range candidates {
		b := s.open(t, s.tapped(nil, func(_ *http.Request, r *http.Response) error {
			if r.StatusCode == http.StatusConflict {
				conflicts.Add(1)
			}
			return nil
		}))
		wg.Go(func() {
			for won := 0; won < rounds; {
				g, err := b.Acquire(ctx, "e", election.AcquireOptions{TTL: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				if g.Status != election.Acquired {
					continue
				}
				won++
				if n := leaders.Add(1); n != 1 {
					t.Errorf("%d lead at once", n)
				}
				if before := last.Swap(g.Number); before >= g.Number {
					t.Errorf("number %d after %d", g.Number, before)
				}
				leaders.Add(-1)
				if r, err := b.Resign(ctx, "e", g.Token, election.ResignOptions{}); err != nil || r.Status != election.Released {
					t.Errorf("%+v, %v", r, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if conflicts.Load() == 0 {
		t.Error("no conflict at all: the test shows nothing")
	}
	t.Logf("%d conflicts in %d terms", conflicts.Load(), candidates*rounds)
}

// E7: candidates whose clocks are an hour off, either way, take nothing from a holder
// that renews, and do take over once it stops. E9: nor do their clocks make a number
// fall when the Lease is deleted.
func TestClocksAnHourOff(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	off := []time.Duration{0, time.Hour, -time.Hour}
	var bs []*Backend
	for _, d := range off {
		b := s.open(t, s.config)
		b.wall = func() time.Time { return time.Now().Add(d) }
		bs = append(bs, b)
	}
	const ttl = 2 * time.Second // which no call takes
	for i, holder := range bs {
		id := []string{"e0", "e1", "e2"}[i]
		g := win(t, holder, id, election.AcquireOptions{TTL: ttl})
		renewed := time.Now()
		for end := renewed.Add(2 * ttl); time.Now().Before(end); {
			for _, b := range bs {
				if b == holder {
					asked := time.Now()
					renew(t, b, id, g.Token, election.Renewed)
					renewed = asked
				} else if r, err := b.Acquire(t.Context(), id, election.AcquireOptions{}); err != nil || r.Status != election.Busy {
					t.Fatalf("clock %v off, holder's %v: %+v, %v", off, off[i], r, err)
				}
			}
		}
		taken := bs[(i+1)%3]
		var h election.AcquireResult
		testenv.Eventually(t, "the takeover", func() bool {
			var err error
			if h, err = taken.Acquire(t.Context(), id, election.AcquireOptions{}); err != nil {
				t.Fatal(err)
			}
			return h.Status == election.Acquired
		})
		if d := time.Since(renewed); d < ttl {
			t.Errorf("taken over after %v of a lease of %v", d, ttl)
		}
		if h.Number <= g.Number {
			t.Errorf("number %d after %d", h.Number, g.Number)
		}
	}

	// The API server tells seconds: a deletion is given one to pass.
	last := int64(0)
	for _, b := range []*Backend{bs[1], bs[2], bs[0], bs[2], bs[1], bs[0]} {
		fresh := s.open(t, s.config) // it has seen no number
		fresh.wall = b.wall
		g := win(t, fresh, "deleted", election.AcquireOptions{})
		if g.Number <= last {
			t.Fatalf("number %d after %d", g.Number, last)
		}
		last = g.Number
		s.lose(t, "deleted")
		granted := time.Now()
		testenv.Eventually(t, "a second", func() bool { return time.Since(granted) > time.Second })
	}
}

// A backend that saw an election's Lease goes above its number when that is gone,
// whatever any clock says.
func TestNumbersSeenAreKept(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	b := s.open(t, s.config)
	const high = int64(1) << 60
	win(t, s.open(t, s.config), "e", election.AcquireOptions{MinFencing: high})
	if st, err := b.Status(t.Context(), "e"); err != nil || st.Number != high {
		t.Fatalf("%+v, %v", st, err)
	}
	s.lose(t, "e")
	if g := win(t, b, "e", election.AcquireOptions{}); g.Number != high+1 {
		t.Errorf("number %d after %d", g.Number, high)
	}
}

// A backend that never saw an election takes its lease for live, for one TTL from its
// first look, and not for longer, whatever other fields of the Lease change.
func TestFirstLook(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	const ttl = time.Second
	a := s.open(t, s.config)
	g := win(t, a, "e", election.AcquireOptions{TTL: ttl})
	testenv.Eventually(t, "the end of the lease", func() bool {
		v, err := a.Validate(t.Context(), "e", g.Token)
		return err == nil && v.Standing == election.StandingVacant
	})
	b := s.open(t, s.config)
	looked := time.Now()
	standing(t, b, "e", g.Token, election.StandingCurrent, g.Number)
	var h election.AcquireResult
	testenv.Eventually(t, "the takeover", func() bool {
		l := s.get(t, "e")
		l.Annotations["somebody.else/s"] = time.Now().String()
		s.put(t, l)
		h, _ = b.Acquire(t.Context(), "e", election.AcquireOptions{})
		return h.Status == election.Acquired
	})
	if d := time.Since(looked); d < ttl || d > 20*ttl {
		t.Errorf("taken over after %v, the lease is %v", d, ttl)
	}
	if l := s.get(t, "e"); l.Annotations["somebody.else/s"] == "" {
		t.Error("an annotation of somebody else's is gone")
	}
	standing(t, a, "e", g.Token, election.StandingStale, h.Number)
}

// E15, and what the API server refuses: times as written by us are taken, a lease of
// less than a second is one of a second there, and of a zero duration is none.
func TestServerValidates(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	b := s.open(t, s.config)
	b.wall = func() time.Time { return time.Unix(1_900_000_000, 0) } // no fraction at all
	g := win(t, b, "e", election.AcquireOptions{TTL: election.MinTTL})
	raw := s.must(t, http.MethodGet, s.leases("e"), nil, http.StatusOK)
	if !regexp.MustCompile(`"renewTime":\s*"[^"]{19}\.000000Z"`).Match(raw) {
		t.Errorf("renewTime: %s", raw)
	}
	l := s.get(t, "e")
	if *l.Spec.LeaseDurationSeconds != 1 || *l.Spec.HolderIdentity != g.Owner {
		t.Errorf("%+v", l.Spec)
	}
	*l.Spec.LeaseDurationSeconds = 0
	if status, answer := s.ask(t, http.MethodPut, s.leases("e"), l); status != http.StatusUnprocessableEntity {
		t.Errorf("duration 0: %d %s", status, answer)
	}
}

// A write that the API server refuses as invalid is an error that says so, and changes
// nothing. Annotations of somebody else's fill the Lease up here.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	b := s.open(t, s.config)
	g := win(t, b, "e", election.AcquireOptions{Owner: "a"})
	if r, err := b.Resign(t.Context(), "e", g.Token, election.ResignOptions{}); err != nil || r.Status != election.Released {
		t.Fatalf("%+v, %v", r, err)
	}
	l := s.get(t, "e")
	size := 0
	for k, v := range l.Annotations {
		size += len(k) + len(v)
	}
	const most = 256 << 10
	l.Annotations["full"] = strings.Repeat("x", most-size-len("full"))
	s.put(t, l)
	r, err := b.Acquire(t.Context(), "e", election.AcquireOptions{})
	if !errors.Is(err, election.ErrUnavailable) || r.Status != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	t.Log(err)
	if st, err := b.Status(t.Context(), "e"); err != nil || st.Status != election.Vacant || st.Number != g.Number {
		t.Errorf("%+v, %v", st, err)
	}
}

// A Lease that is not this election's is left alone.
func TestForeignLease(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	b := s.open(t, s.config)
	other := leaseName("A/b")
	for name, notes := range map[string]map[string]string{
		"foreign": nil,
		other:     {electionNote: "another", numberNote: "7"},
	} {
		s.must(t, http.MethodPost, s.leases(), map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": map[string]any{"name": name, "annotations": notes},
			"spec":     map[string]any{"holderIdentity": "somebody"},
		}, http.StatusCreated)
	}
	for _, id := range []string{"foreign", "A/b"} {
		before := s.get(t, id)
		token := election.NewToken()
		_, err1 := b.Acquire(t.Context(), id, election.AcquireOptions{})
		_, err2 := b.Renew(t.Context(), id, token)
		_, err3 := b.Resign(t.Context(), id, token, election.ResignOptions{})
		_, err4 := b.Status(t.Context(), id)
		_, err5 := b.Validate(t.Context(), id, token)
		for _, err := range []error{err1, err2, err3, err4, err5} {
			if !errors.Is(err, election.ErrCorrupt) {
				t.Errorf("%s: %v", id, err)
			}
		}
		t.Log(err1)
		if after := s.get(t, id); after.ResourceVersion != before.ResourceVersion {
			t.Errorf("%s was changed: %+v", id, after)
		}
	}
}
