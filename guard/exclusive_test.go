package guard_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
)

// listeners are two exclusive listeners in front of one resource, in a bubble.
type listeners struct {
	t *testing.T
	b *memory.Backend
	f *fakeFence
	g [2]*guard.Guard
	x [2]*guard.Exclusive
}

func withListeners(t *testing.T, shared bool, f func(t *testing.T, w *listeners)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &listeners{t: t, b: memory.New(), f: &fakeFence{}}
		for i := range w.g {
			var err error
			if w.x[i], err = guard.NewExclusive(w.b, shared, guard.GateConfig{Name: "redis"}); err != nil {
				t.Fatal(err)
			}
			w.g[i] = guard.New(w.b, w.f, guard.Config{})
		}
		f(t, w)
		for i := range w.g {
			w.g[i].Close()
			w.x[i].Close()
			if n := w.g[i].Keepers(); n > 0 {
				t.Errorf("%d keepers left", n)
			}
		}
	})
}

func (w *listeners) lead(owner string) election.Token {
	w.t.Helper()
	r, err := w.b.Acquire(w.t.Context(), elec, election.AcquireOptions{Owner: owner, TTL: time.Hour})
	if err != nil || r.Status != election.Acquired {
		w.t.Fatalf("%+v, %v", r, err)
	}
	return r.Token
}

func (w *listeners) hold(proxy int, tok election.Token, client string) (*guard.Permit, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	p, err := w.g[proxy].Admit(ctx, cred(tok))
	if err != nil {
		return nil, err
	}
	return w.x[proxy].Hold(ctx, p, client)
}

func (w *listeners) must(proxy int, tok election.Token, client string) *guard.Permit {
	w.t.Helper()
	p, err := w.hold(proxy, tok, client)
	if err != nil {
		w.t.Fatal(err)
	}
	if !p.Live() || p.Err() != nil {
		w.t.Fatal(p.Err())
	}
	return p
}

func TestExclusiveSession(t *testing.T) {
	withListeners(t, false, func(t *testing.T, w *listeners) {
		tok := w.lead("me")
		p := w.must(0, tok, "a")
		for proxy := range 2 {
			start := time.Now()
			_, err := w.hold(proxy, tok, "a")
			r := refused(t, err, guard.Occupied)
			if r.Leader != "me" || r.Rules != p.Term().Number || strings.Contains(r.Error(), tok.Reveal()) || !strings.Contains(r.Detail, "exclusive") {
				t.Errorf("%+v", r)
			}
			if took := time.Since(start); took > 2*guard.DefaultValidateEvery {
				t.Errorf("refused after %v", took)
			}
		}
		// One that comes again while its own session ends is not refused.
		go func() {
			time.Sleep(guard.DefaultValidateEvery / 2)
			p.Release()
		}()
		q := w.must(0, tok, "a")
		refused(t, p.Err(), guard.BindingLost)
		// A takeover: the newer term waits until the older session is over.
		if _, err := w.b.Resign(t.Context(), elec, tok, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		go func() { <-q.Done(); q.Release() }()
		start := time.Now()
		next := w.must(1, w.lead("other"), "b")
		if took := time.Since(start); took > 2*guard.DefaultValidateEvery {
			t.Errorf("taken over after %v", took)
		}
		refused(t, q.Err(), guard.Stale)
		next.Release()
		next.Release()
	})
}

func TestExclusiveClient(t *testing.T) {
	withListeners(t, true, func(t *testing.T, w *listeners) {
		tok := w.lead("me")
		var all sync.WaitGroup
		var permits [8]*guard.Permit
		for i := range permits { // at one time
			all.Go(func() { permits[i] = w.must(0, tok, "a") })
		}
		all.Wait()
		_, err := w.hold(0, tok, "b")
		refused(t, err, guard.Occupied)
		_, err = w.hold(1, tok, "b")
		refused(t, err, guard.Occupied)
		for i, p := range permits {
			p.Release()
			if i < len(permits)-1 && !permits[i+1].Live() {
				t.Fatal("ended with another session of its client")
			}
		}
		w.must(1, tok, "b").Release()
	})
}

// Who waits for another session of its client does not inherit that one's end.
func TestExclusiveClientWhoseFirstSessionLeaves(t *testing.T) {
	withListeners(t, true, func(t *testing.T, w *listeners) {
		tok := w.lead("me")
		other := w.must(1, tok, "z")
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			p, err := w.g[0].Admit(first, cred(tok))
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := w.x[0].Hold(first, p, "a"); err == nil {
				t.Error("held, whatever its context")
			}
		})
		synctest.Wait()
		all.Go(func() { w.must(0, tok, "a").Release() })
		synctest.Wait()
		leave()
		other.Release()
		all.Wait()
	})
}

// A leader may have a session with each kind of resource.
func TestExclusiveKinds(t *testing.T) {
	withListeners(t, false, func(t *testing.T, w *listeners) {
		tok := w.lead("me")
		p := w.must(0, tok, "a")
		x, err := guard.NewExclusive(w.b, false, guard.GateConfig{Name: "postgres"})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		w.x[1].Close()
		w.x[1] = x
		w.must(1, tok, "a").Release()
		p.Release()
		for _, kind := range []string{"", "a b", "toolongakind"} {
			if _, err := guard.NewExclusive(w.b, false, guard.GateConfig{Name: kind}); err == nil {
				t.Errorf("%q: accepted", kind)
			}
		}
	})
}

// A session's permit ends when its hold does.
func TestExclusiveHoldIsLost(t *testing.T) {
	withListeners(t, false, func(t *testing.T, w *listeners) {
		p := w.must(0, w.lead("me"), "a")
		w.x[0].Close()
		<-p.Done()
		if p.Live() {
			t.Error("lives on without its hold")
		}
		refused(t, p.Err(), guard.BindingLost)
		p.Release()
	})
}
