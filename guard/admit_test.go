package guard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

func TestAdmitRaisesValidatesAgainAndSevers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, f, tok := setUp(t, guard.Config{})
		f.rec = guard.Record{Highest: 5, State: guard.Severed}
		p := admit(t, g, tok)
		defer p.Release()
		if want := []string{"read", "raise", "sever", "mark"}; !slices.Equal(f.taken(), want) {
			t.Errorf("steps %v, want %v", f.taken(), want)
		}
		if b.questions() != 2 {
			t.Errorf("%d questions, want 2: one at first and one after the raise", b.questions())
		}
		want := guard.Term{Election: elec, Owner: "me", Number: 7, Digest: tok.Digest()}
		if p.Term() != want || p.Record() != f.record() || p.Record().State != guard.Severed || p.Record().Highest != 7 {
			t.Errorf("term %+v record %+v", p.Term(), p.Record())
		}
		if !p.Live() || p.Err() != nil {
			t.Errorf("live %v err %v", p.Live(), p.Err())
		}
		// A second session of the token costs no round trip.
		q := admit(t, g, tok)
		defer q.Release()
		if b.questions() != 2 || len(f.taken()) != 4 {
			t.Errorf("second Admit asked: %d questions, steps %v", b.questions(), f.taken())
		}
	})
}

func TestAdmitRefuses(t *testing.T) {
	other := election.NewToken()
	for _, c := range []struct {
		name  string
		setUp func(b *fakeBackend, f *fakeFence)
		cred  func(tok election.Token) guard.Credential
		want  guard.Reason
		rules int64
	}{
		{"bad election", nil, func(tok election.Token) guard.Credential { return guard.Credential{Election: "a b", Token: tok} }, guard.InvalidCredential, 0},
		{"no token", nil, func(election.Token) guard.Credential { return guard.Credential{Election: elec} }, guard.InvalidCredential, 0},
		{"backend calls the token invalid", func(b *fakeBackend, _ *fakeFence) { b.err = election.ErrInvalidToken }, cred, guard.InvalidCredential, 0},
		{"wrong token", nil, func(election.Token) guard.Credential { return cred(other) }, guard.Stale, 7},
		{"vacant", func(b *fakeBackend, _ *fakeFence) { b.token = election.Token{} }, cred, guard.LeaseVacant, 0},
		{"backend down", func(b *fakeBackend, _ *fakeFence) { b.err = errDown }, cred, guard.BackendUnknown, 0},
		{"backend hangs", func(b *fakeBackend, _ *fakeFence) { b.hang = true }, cred, guard.BackendUnknown, 0},
		{"backend without numbers", func(b *fakeBackend, _ *fakeFence) { b.number = 0 }, cred, guard.BackendUnknown, 0},
		{"fence regressed", func(_ *fakeBackend, f *fakeFence) { f.rec = guard.Record{Highest: 9, State: guard.Severed} }, cred, guard.FenceRegressed, 9},
		{"same number, other holder", func(_ *fakeBackend, f *fakeFence) {
			f.rec = guard.Record{Highest: 7, Holder: other.Digest(), State: guard.Severed}
		}, cred, guard.FenceConflict, 7},
		{"bound above", func(_ *fakeBackend, f *fakeFence) {
			f.err["sever"] = &guard.BoundAboveError{Election: elec, Number: 8}
		}, cred, guard.FenceRegressed, 8},
		{"read fails", func(_ *fakeBackend, f *fakeFence) { f.err["read"] = errDown }, cred, guard.FenceUnavailable, 0},
		{"raise fails", func(_ *fakeBackend, f *fakeFence) { f.err["raise"] = errDown }, cred, guard.FenceUnavailable, 0},
		{"sever fails", func(_ *fakeBackend, f *fakeFence) { f.err["sever"] = errDown }, cred, guard.FenceUnavailable, 0},
		{"mark fails", func(_ *fakeBackend, f *fakeFence) { f.err["mark"] = errDown }, cred, guard.FenceUnavailable, 0},
		{"fence keeps changing", func(_ *fakeBackend, f *fakeFence) { f.err["raise"] = guard.ErrConflict }, cred, guard.FenceUnavailable, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, b, f, tok := setUp(t, guard.Config{})
				if c.setUp != nil {
					c.setUp(b, f)
				}
				_, err := g.Admit(t.Context(), c.cred(tok))
				r := refused(t, err, c.want)
				if r.Rules != c.rules {
					t.Errorf("rules %d, want %d", r.Rules, c.rules)
				}
				if strings.Contains(err.Error(), tok.Reveal()) || strings.Contains(err.Error(), other.Reveal()) {
					t.Errorf("the error holds a token: %v", err)
				}
				if f.record() != (guard.Record{}) && f.record().State == guard.Severed && f.record().Holder == tok.Digest() {
					t.Errorf("refused, but the fence says severed: %+v", f.record())
				}
				time.Sleep(2 * guard.DefaultValidateEvery)
				synctest.Wait()
				if n := g.Keepers(); n != 0 {
					t.Errorf("%d keepers left behind", n)
				}
			})
		})
	}
}

// The token turns stale between the raise and the sever: only the question after the
// raise can tell.
func TestValidateAgainAfterRaise(t *testing.T) {
	for _, found := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g, b, f, tok := setUp(t, guard.Config{})
			if found { // raised by a proxy that died then
				f.rec = guard.Record{Highest: 7, Holder: tok.Digest(), State: guard.Raised, Raise: guard.RaiseID{1}}
			}
			b.before = func(n int) {
				if n == 2 {
					b.set(func() { b.token, b.number = election.NewToken(), 8 })
				}
			}
			_, err := g.Admit(t.Context(), cred(tok))
			r := refused(t, err, guard.Stale)
			if r.Held != 7 || r.Rules != 8 || r.Leader != "other" {
				t.Errorf("refusal %+v", r)
			}
			if f.record().State != guard.Raised || slices.Contains(f.taken(), "sever") {
				t.Errorf("went on: %v, %+v", f.taken(), f.record())
			}
		})
	}
}

func TestRaisedFenceIsFinishedNotRaisedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, f, tok := setUp(t, guard.Config{})
		f.rec = guard.Record{Highest: 7, Holder: tok.Digest(), State: guard.Raised, Raise: guard.RaiseID{1}}
		p := admit(t, g, tok)
		defer p.Release()
		if want := []string{"read", "sever", "mark"}; !slices.Equal(f.taken(), want) || b.questions() != 2 {
			t.Errorf("steps %v, %d questions", f.taken(), b.questions())
		}
		if p.Record().Raise != (guard.RaiseID{1}) {
			t.Error("another raise id")
		}
	})
}

func TestOneValidateAndOneAdvanceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, f, tok := setUp(t, guard.Config{})
		b.slow = 100 * time.Millisecond
		f.sever = func(context.Context, guard.Term) error { time.Sleep(200 * time.Millisecond); return nil }
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				p := admit(t, g, tok)
				if !p.Live() {
					t.Error("dead permit")
				}
				p.Release()
				p.Release()
			})
		}
		wg.Wait()
		if b.questions() != 2 || len(f.taken()) != 4 {
			t.Errorf("%d questions, steps %v", b.questions(), f.taken())
		}
	})
}

func TestEachCallerWaitsByItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, f, tok := setUp(t, guard.Config{})
		b.slow = 100 * time.Millisecond
		f.sever = func(context.Context, guard.Term) error { time.Sleep(2 * time.Second); return nil }
		start := time.Now()
		var wg sync.WaitGroup
		for _, c := range []struct {
			wait time.Duration
			want guard.Reason
		}{{50 * time.Millisecond, guard.BackendUnknown}, {time.Second, guard.FenceUnavailable}} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), c.wait)
				defer cancel()
				_, err := g.Admit(ctx, cred(tok))
				refused(t, err, c.want)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != c.wait {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
			})
		}
		p := admit(t, g, tok)
		p.Release()
		wg.Wait()
	})
}

// The advance outlives the session that asked for it, so that impatient clients get
// there at last.
func TestAdvanceOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, f, tok := setUp(t, guard.Config{})
		f.sever = func(context.Context, guard.Term) error { time.Sleep(5 * time.Second); return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Admit(ctx, cred(tok))
		refused(t, err, guard.FenceUnavailable)
		time.Sleep(4500 * time.Millisecond)
		synctest.Wait()
		if f.record().State != guard.Severed {
			t.Errorf("fence %+v", f.record())
		}
	})
}

func TestWaitingAdmitIsRefusedWhenItsTokenIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, f, tok := setUp(t, guard.Config{})
		f.sever = func(ctx context.Context, _ guard.Term) error { <-ctx.Done(); return ctx.Err() }
		start := time.Now()
		time.AfterFunc(3500*time.Millisecond, func() { b.set(func() { b.token, b.number = election.NewToken(), 8 }) })
		_, err := g.Admit(t.Context(), cred(tok))
		r := refused(t, err, guard.Stale)
		if took := time.Since(start); took > 3500*time.Millisecond+guard.DefaultValidateEvery {
			t.Errorf("took %v", took)
		}
		if r.Held != 7 || r.Rules != 8 {
			t.Errorf("%+v", r)
		}
	})
}

// A long takeover keeps validating, so that its permit is live at the end.
func TestPermitIsKeptFreshDuringTheAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, f, tok := setUp(t, guard.Config{})
		f.sever = func(context.Context, guard.Term) error { time.Sleep(20 * time.Second); return nil }
		p := admit(t, g, tok)
		if !p.Live() {
			t.Error("not live")
		}
		p.Release()
	})
}

func TestInvalidateMakesTheNextAdmitLookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, f, tok := setUp(t, guard.Config{})
		p := admit(t, g, tok)
		f.set(func() { f.rec = guard.Record{}; f.steps = nil }) // lost
		p.Invalidate()
		q := admit(t, g, tok)
		p.Invalidate() // of the old record: too late to matter
		if want := []string{"read", "raise", "sever", "mark"}; !slices.Equal(f.taken(), want) || b.questions() != 3 {
			t.Errorf("steps %v, %d questions", f.taken(), b.questions())
		}
		if q.Record() == p.Record() || q.Record() != f.record() {
			t.Errorf("record %+v, was %+v", q.Record(), p.Record())
		}
		r := admit(t, g, tok)
		if r.Record() != q.Record() || b.questions() != 3 {
			t.Error("looked again without need")
		}
		p.Release()
		q.Release()
		r.Release()
	})
}

// A failed advance is not remembered against the token.
func TestFenceBackAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, f, tok := setUp(t, guard.Config{})
		f.err["sever"] = errDown
		_, err := g.Admit(t.Context(), cred(tok))
		refused(t, err, guard.FenceUnavailable)
		f.set(func() { delete(f.err, "sever") })
		admit(t, g, tok).Release()
	})
}

func TestFloodOfBadTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		b.slow = 10 * time.Millisecond
		p := admit(t, g, tok)
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				_, err := g.Admit(t.Context(), cred(election.NewToken()))
				refused(t, err, guard.Stale)
			})
		}
		wg.Wait()
		synctest.Wait()
		if g.Keepers() != 1 {
			t.Errorf("%d keepers", g.Keepers())
		}
		if b.most > 65 {
			t.Errorf("%d questions at once", b.most)
		}
		if !p.Live() {
			t.Error("the good permit died")
		}
		p.Release()
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, f, tok := setUp(t, guard.Config{})
		p := admit(t, g, tok)
		b.set(func() { b.hang = true })
		f.sever = func(ctx context.Context, _ guard.Term) error { <-ctx.Done(); return ctx.Err() }
		waiting := make(chan error)
		go func() {
			_, err := g.Admit(t.Context(), cred(election.NewToken()))
			waiting <- err
		}()
		synctest.Wait()
		go g.Close()
		if err := <-waiting; !errors.Is(err, guard.ErrClosed) {
			t.Errorf("waiting Admit: %v", err)
		}
		<-p.Done()
		if p.Live() || !errors.Is(p.Err(), guard.ErrClosed) {
			t.Errorf("after Close: live %v, %v", p.Live(), p.Err())
		}
		if _, err := g.Admit(t.Context(), cred(tok)); !errors.Is(err, guard.ErrClosed) {
			t.Errorf("Admit after Close: %v", err)
		}
		p.Release()
	})
}
