package guard_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
)

const part = "7"

// A meddler is a backend whose calls a test delays, fails, or comes in between.
type meddler struct {
	election.Backend
	mu     sync.Mutex
	before func(op, id string) error // nil: nothing
	after  func(op, id string) error
}

func (m *meddler) meddle(before, after func(op, id string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before, m.after = before, after
}

func (m *meddler) call(op, id string, f func() error) error {
	m.mu.Lock()
	before, after := m.before, m.after
	m.mu.Unlock()
	if before != nil {
		if err := before(op, id); err != nil {
			return err
		}
	}
	err := f()
	if after != nil && err == nil {
		err = after(op, id)
	}
	return err
}

func (m *meddler) Acquire(ctx context.Context, id string, o election.AcquireOptions) (r election.AcquireResult, err error) {
	err = m.call("acquire", id, func() (err error) { r, err = m.Backend.Acquire(ctx, id, o); return })
	return r, err
}

func (m *meddler) Renew(ctx context.Context, id string, t election.Token) (r election.RenewResult, err error) {
	err = m.call("renew", id, func() (err error) { r, err = m.Backend.Renew(ctx, id, t); return })
	return r, err
}

func (m *meddler) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (r election.ResignResult, err error) {
	err = m.call("resign", id, func() (err error) { r, err = m.Backend.Resign(ctx, id, t, o); return })
	return r, err
}

func (m *meddler) Validate(ctx context.Context, id string, t election.Token) (r election.ValidateResult, err error) {
	err = m.call("validate", id, func() (err error) { r, err = m.Backend.Validate(ctx, id, t); return })
	return r, err
}

// gates are gates over one backend, in a bubble of fake time.
type gates struct {
	t *testing.T
	b *memory.Backend
}

func withGates(t *testing.T, f func(*testing.T, *gates)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &gates{t, memory.New()}
		f(t, w)
		_ = w.b.Close()
	})
}

func (w *gates) gate(b election.Backend, c guard.GateConfig) *guard.Gate {
	w.t.Helper()
	if c.Election == "" {
		c.Election = "orders-{partition}"
	}
	g, err := guard.NewGate(b, c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(g.Close)
	return g
}

// lead acquires the partition's election.
func (w *gates) lead(owner string, ttl time.Duration) election.AcquireResult {
	w.t.Helper()
	r, err := w.b.Acquire(w.t.Context(), "orders-"+part, election.AcquireOptions{Owner: owner, TTL: ttl})
	if err != nil || r.Status != election.Acquired {
		w.t.Fatalf("%+v, %v", r, err)
	}
	return r
}

func (w *gates) resign(r election.AcquireResult) {
	w.t.Helper()
	res, err := w.b.Resign(w.t.Context(), "orders-"+part, r.Token, election.ResignOptions{})
	if err != nil || res.Status != election.Released {
		w.t.Fatalf("%+v, %v", res, err)
	}
}

// within bounds a call by fake time.
func (w *gates) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *gates) bind(g *guard.Gate, r election.AcquireResult) *guard.Binding {
	w.t.Helper()
	b, err := g.Bind(w.within(time.Minute), part, r.Token)
	if err != nil {
		w.t.Fatalf("Bind: %v", err)
	}
	if !b.Live() || b.Err() != nil || b.Term().Number != r.Number || b.Partition() != part {
		w.t.Fatalf("bound: %+v, %v", b.Term(), b.Err())
	}
	return b
}

func TestGateRefusesASecondConsumer(t *testing.T) {
	withGates(t, func(t *testing.T, w *gates) {
		g, other := w.gate(w.b, guard.GateConfig{}), w.gate(w.b, guard.GateConfig{})
		held := w.lead("worker-1", time.Hour)
		b := w.bind(g, held)
		for name, g := range map[string]*guard.Gate{"same gate": g, "another gate": other} {
			start := time.Now()
			_, err := g.Bind(w.within(time.Minute), part, held.Token)
			r := refused(t, err, guard.Occupied)
			if r.Rules != held.Number || r.Leader != "worker-1" || strings.Contains(r.Error(), held.Token.Reveal()) {
				t.Errorf("%s: %+v", name, r)
			}
			if took := time.Since(start); took > 2*guard.DefaultValidateEvery {
				t.Errorf("%s: refused after %v", name, took)
			}
		}
		if _, err := g.Bind(t.Context(), part, election.NewToken()); err == nil {
			t.Error("a token that nobody was given binds")
		} else if r := refused(t, err, guard.Stale); r.Leader != "worker-1" || r.Rules != held.Number {
			t.Errorf("%+v", r)
		}
		if l := g.List(); len(l) != 1 || l[0].Owner != "worker-1" || l[0].Number != held.Number || l[0].Partition != part || l[0].Since.IsZero() {
			t.Errorf("%+v", l)
		}
		time.Sleep(time.Minute)
		if !b.Live() {
			t.Fatalf("ended: %v", b.Err())
		}
		b.Release()
		b.Release()
		refused(t, b.Err(), guard.BindingLost)
		<-b.Free()
		w.bind(other, held).Release()
	})
}

// A later term has the earlier one's consumer told at once, and is bound as soon as that
// consumer said that it stopped, or can no longer trust its binding.
func TestGateEvictsAStaleConsumer(t *testing.T) {
	for _, c := range []struct {
		name          string
		two, released bool
	}{
		{"one gate, the consumer stops", false, true},
		{"one gate, the consumer is paused", false, false},
		{"two gates, the consumer stops", true, true},
		{"two gates, the consumer is paused", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			withGates(t, func(t *testing.T, w *gates) {
				g := w.gate(w.b, guard.GateConfig{})
				next := g
				if c.two {
					next = w.gate(w.b, guard.GateConfig{})
				}
				first := w.lead("worker-1", time.Hour)
				b := w.bind(g, first)
				told := b.TrustedUntil()
				w.resign(first) // though its consumer works on
				second := w.lead("worker-2", time.Hour)
				start := time.Now()
				if c.released {
					go func() { <-b.Done(); b.Release() }()
				}
				n := w.bind(next, second)
				r := refused(t, b.Err(), guard.Stale)
				if r.Rules != second.Number || r.Leader != "worker-2" || r.Held != first.Number {
					t.Errorf("%+v", r)
				}
				took := time.Since(start)
				switch {
				case c.released && !c.two && took > 0, c.released && took > 3*guard.DefaultValidateEvery/2:
					t.Errorf("bound after %v", took)
				case !c.released && time.Now().Before(told):
					t.Errorf("bound %v before the end that its predecessor was told", time.Until(told))
				case took > guard.DefaultPermitFor*12/10:
					t.Errorf("bound after %v", took)
				}
				if !b.TrustedUntil().IsZero() {
					t.Error("an ended binding is trusted")
				}
				b.Release()
				_, err := next.Bind(w.within(time.Second), part, first.Token)
				refused(t, err, guard.Stale)
				n.Release()
			})
		})
	}
}

func TestGateWithoutABackend(t *testing.T) {
	withGates(t, func(t *testing.T, w *gates) {
		m := &meddler{Backend: w.b}
		g, other := w.gate(m, guard.GateConfig{}), w.gate(w.b, guard.GateConfig{})
		held := w.lead("worker-1", time.Hour)
		b := w.bind(g, held)
		time.Sleep(10 * time.Second)
		m.meddle(func(string, string) error { return errDown }, nil)
		time.Sleep(3 * time.Second)
		if !b.Live() {
			t.Fatalf("ended within the permit: %v", b.Err())
		}
		told := b.TrustedUntil()
		n := w.bind(other, held) // waits: the lease is not renewed
		if now := time.Now(); now.Before(told) || now.Sub(told) > guard.DefaultPermitFor {
			t.Errorf("bound %v after the trusted end", now.Sub(told))
		}
		refused(t, b.Err(), guard.BackendUnknown)
		_, err := g.Bind(w.within(10*time.Second), part, held.Token)
		if r := refused(t, err, guard.BackendUnknown); !errors.Is(r, errDown) && !errors.Is(r, context.DeadlineExceeded) {
			t.Errorf("%v", r)
		}
		m.meddle(nil, nil)
		time.Sleep(10 * time.Second)
		if b.Live() || !n.Live() {
			t.Error("a binding that ended lives again, or the live one ended")
		}
		n.Release()
	})
}

func TestGateLosesItsLease(t *testing.T) {
	withGates(t, func(t *testing.T, w *gates) {
		m := &meddler{Backend: w.b}
		g := w.gate(m, guard.GateConfig{})
		held := w.lead("worker-1", time.Hour)
		var lease election.AcquireResult
		b := w.bind(g, held)
		// The backend forgets everything, and another one's gate has the lease.
		m.mu.Lock()
		m.Backend = memory.New()
		m.mu.Unlock()
		_, err := m.Backend.Acquire(t.Context(), "orders-"+part, election.AcquireOptions{Token: held.Token, MinFencing: held.Number, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		lease, err = m.Backend.Acquire(t.Context(), "orders-"+part+":gate", election.AcquireOptions{Owner: "9223372036854775807@later"})
		if err != nil || lease.Status != election.Acquired {
			t.Fatal(lease, err)
		}
		start := time.Now()
		<-b.Done()
		if took := time.Since(start); took > guard.DefaultValidateEvery {
			t.Errorf("told after %v", took)
		}
		var r *guard.Refusal
		if !errors.As(b.Err(), &r) || r.Reason != guard.BindingLost && r.Reason != guard.Stale {
			t.Errorf("%v", b.Err())
		}
		b.Release()
	})
}

// The trust counts from before the question, however long the answer takes.
func TestGateTrustsFromBeforeTheQuestion(t *testing.T) {
	for _, op := range []string{"acquire", "renew"} {
		t.Run(op, func(t *testing.T) {
			withGates(t, func(t *testing.T, w *gates) {
				m := &meddler{Backend: w.b}
				g := w.gate(m, guard.GateConfig{})
				held := w.lead("worker-1", time.Hour)
				slow := func(o, id string) error {
					if o == op && strings.HasSuffix(id, ":gate") {
						time.Sleep(1900 * time.Millisecond)
					}
					return nil
				}
				check := func(b *guard.Binding) {
					t.Helper()
					s, err := w.b.Status(t.Context(), "orders-"+part+":gate")
					if err != nil {
						t.Fatal(err)
					}
					if until := b.TrustedUntil(); !until.IsZero() && until.After(time.Now().Add(s.Remaining-guard.DefaultPermitFor/10)) {
						t.Errorf("trusted %v, the lease lasts %v", time.Until(until), s.Remaining)
					}
				}
				m.meddle(nil, slow)
				b := w.bind(g, held)
				for range 100 {
					check(b)
					time.Sleep(100 * time.Millisecond)
				}
				b.Release()
			})
		})
	}
}

// A token that went stale while the lease was waited for binds nothing.
func TestGateValidatesAgainAfterItsLease(t *testing.T) {
	withGates(t, func(t *testing.T, w *gates) {
		m := &meddler{Backend: w.b}
		g := w.gate(m, guard.GateConfig{})
		first := w.lead("worker-1", time.Hour)
		var once sync.Once
		m.meddle(func(op, id string) error {
			if op == "acquire" {
				once.Do(func() {
					w.resign(first)
					w.lead("worker-2", time.Hour)
				})
			}
			return nil
		}, nil)
		start := time.Now()
		_, err := g.Bind(w.within(time.Minute), part, first.Token)
		if r := refused(t, err, guard.Stale); r.Leader != "worker-2" || time.Since(start) > 0 {
			t.Errorf("%+v after %v", r, time.Since(start))
		}
	})
}

func TestGateRefuses(t *testing.T) {
	withGates(t, func(t *testing.T, w *gates) {
		g := w.gate(w.b, guard.GateConfig{Max: 1})
		for _, p := range []string{"", "a/b", "a\nb", "..", "a b", "ü", strings.Repeat("x", 129), strings.Repeat("x", 120)} {
			_, err := g.Bind(t.Context(), p, election.NewToken())
			refused(t, err, guard.InvalidPartition)
		}
		_, err := g.Bind(t.Context(), part, election.Token{})
		refused(t, err, guard.InvalidCredential)
		_, err = g.Bind(t.Context(), part, election.NewToken())
		refused(t, err, guard.LeaseVacant)

		b := w.bind(g, w.lead("worker-1", time.Hour))
		other, err := w.b.Acquire(t.Context(), "orders-8", election.AcquireOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Bind(t.Context(), "8", other.Token)
		refused(t, err, guard.TooMany)
		b.Release()
		<-b.Free()
		c, err := g.Bind(t.Context(), "8", other.Token)
		if err != nil {
			t.Fatal(err)
		}
		g.Close()
		refused(t, c.Err(), guard.BindingLost)
		_, err = g.Bind(t.Context(), "8", other.Token)
		var r *guard.Refusal
		if !errors.As(err, &r) || !errors.Is(err, guard.ErrClosed) {
			t.Errorf("a closed gate: %v", err)
		}
		// Its consumer did not say that it stopped: the lease stays.
		if s, err := w.b.Status(t.Context(), "orders-8:gate"); err != nil || s.Status != election.Held {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// The backend lost its counter: the token is current, but its number is lower than one
// that was bound here.
func TestGateRefusesALowerNumber(t *testing.T) {
	withGates(t, func(t *testing.T, w *gates) {
		m := &meddler{Backend: w.b}
		g := w.gate(m, guard.GateConfig{})
		w.b.Acquire(t.Context(), "orders-"+part, election.AcquireOptions{TTL: 100 * time.Millisecond, MinFencing: 1 << 60}) //nolint:errcheck // looked at below
		time.Sleep(time.Second)
		high := w.lead("worker-1", time.Hour)
		b := w.bind(g, high)
		b.Release()
		<-b.Free()
		fresh := memory.New()
		m.mu.Lock()
		m.Backend = fresh
		m.mu.Unlock()
		low, err := fresh.Acquire(t.Context(), "orders-"+part, election.AcquireOptions{Owner: "worker-2"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Bind(t.Context(), part, low.Token)
		if r := refused(t, err, guard.FenceRegressed); r.Rules != high.Number || r.Held != low.Number {
			t.Errorf("%+v", r)
		}
	})
}

func TestGateConfig(t *testing.T) {
	for _, c := range []guard.GateConfig{
		{Election: ""}, {Election: "orders"}, {Election: "{p}"}, {Election: "{partition}{x}"}, {Election: "{partition"},
		{Election: "{partition}", PermitFor: time.Millisecond}, {Election: "{partition}", PermitFor: -1},
		{Election: "{partition}", ValidateEvery: time.Hour}, {Election: "{partition}", Max: -1},
		{Election: "{partition}", PermitFor: 48 * time.Hour},
	} {
		if g, err := guard.NewGate(memory.New(), c); err == nil {
			g.Close()
			t.Errorf("%+v: accepted", c)
		}
	}
}

func TestBindingLiveDoesNotAllocate(t *testing.T) {
	b := memory.New()
	g, err := guard.NewGate(b, guard.GateConfig{Election: "{partition}"})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	held, err := b.Acquire(t.Context(), "p", election.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := g.Bind(t.Context(), "p", held.Token)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	if n := testing.AllocsPerRun(100, func() {
		if !x.Live() || x.TrustedUntil().IsZero() {
			t.Fatal(x.Err())
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A binding is trusted no longer than its consumer's own lease lasts.
func TestGateEndsWithItsConsumersLease(t *testing.T) {
	withGates(t, func(t *testing.T, w *gates) {
		g := w.gate(w.b, guard.GateConfig{})
		held := w.lead("worker-1", 2*time.Second)
		b := w.bind(g, held)
		end := time.Now().Add(2 * time.Second)
		if until := b.TrustedUntil(); until.After(end) {
			t.Errorf("trusted %v longer than the lease", until.Sub(end))
		}
		<-b.Done()
		if time.Now().After(end) {
			t.Errorf("told %v after the lease's end", time.Since(end))
		}
		refused(t, b.Err(), guard.LeaseVacant)
		b.Release()
	})
}

// What ran out while the process was paused is over, though no timer has told yet.
func TestGateExtendsNothingThatRanOut(t *testing.T) {
	withGates(t, func(t *testing.T, w *gates) {
		g := w.gate(w.b, guard.GateConfig{})
		held := w.lead("worker-1", time.Hour)
		p, err := g.Permit(t.Context(), guard.Credential{Election: "orders-" + part, Token: held.Token})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		if b := g.ExtendTooLate(p); b.Live() || !b.TrustedUntil().IsZero() {
			t.Error("lives again")
		} else {
			refused(t, b.Err(), guard.BackendUnknown)
		}
	})
}
