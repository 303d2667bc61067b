package guard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var errDown = errors.New("out of reach")

// A fakeBackend answers Validate as it is told.
type fakeBackend struct {
	election.Backend // nil: only Validate is ever called

	mu     sync.Mutex
	token  election.Token
	number int64
	expiry time.Time // zero: long after
	err    error
	hang   bool          // until the context ends
	stuck  chan struct{} // until it is closed, whatever the context says
	slow   time.Duration // before the answer
	asked  int
	asking int
	most   int         // asking at once
	before func(n int) // called with the number of the question, unlocked
}

func (b *fakeBackend) set(f func()) { b.mu.Lock(); defer b.mu.Unlock(); f() }

func (b *fakeBackend) questions() int { b.mu.Lock(); defer b.mu.Unlock(); return b.asked }

func (b *fakeBackend) Validate(ctx context.Context, id string, t election.Token) (election.ValidateResult, error) {
	b.mu.Lock()
	b.asked++
	n := b.asked
	b.asking++
	b.most = max(b.most, b.asking)
	hang, slow, before, stuck := b.hang, b.slow, b.before, b.stuck
	b.mu.Unlock()
	defer b.set(func() { b.asking-- })
	if before != nil {
		before(n)
	}
	if stuck != nil {
		<-stuck
	}
	if hang {
		<-ctx.Done()
		return election.ValidateResult{}, ctx.Err()
	}
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return election.ValidateResult{}, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return election.ValidateResult{}, b.err
	}
	remaining := time.Hour
	if !b.expiry.IsZero() {
		remaining = time.Until(b.expiry)
	}
	switch {
	case b.token.IsZero() || remaining <= 0:
		return election.ValidateResult{Standing: election.StandingVacant}, nil
	case b.token != t:
		return election.ValidateResult{Standing: election.StandingStale, Number: b.number, Owner: "other", Remaining: remaining}, nil
	}
	return election.ValidateResult{Standing: election.StandingCurrent, Number: b.number, Owner: "me", Remaining: remaining}, nil
}

// A fakeFence is a fence in memory that notes what was done.
type fakeFence struct {
	mu    sync.Mutex
	rec   guard.Record
	err   map[string]error // by step
	steps []string
	sever func(ctx context.Context, t guard.Term) error
}

func (f *fakeFence) step(name string) error {
	f.steps = append(f.steps, name)
	return f.err[name]
}

func (f *fakeFence) set(fn func()) { f.mu.Lock(); defer f.mu.Unlock(); fn() }

func (f *fakeFence) record() guard.Record { f.mu.Lock(); defer f.mu.Unlock(); return f.rec }

func (f *fakeFence) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.steps...)
}

func (f *fakeFence) Read(context.Context, string) (guard.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rec, f.step("read")
}

func (f *fakeFence) Swap(_ context.Context, _ string, old, new guard.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := "raise"
	if new.State == guard.Severed {
		name = "mark"
	}
	if err := f.step(name); err != nil {
		return err
	}
	if f.rec != old {
		return guard.ErrConflict
	}
	f.rec = new
	return nil
}

func (f *fakeFence) Sever(ctx context.Context, t guard.Term) error {
	f.mu.Lock()
	err, sever := f.step("sever"), f.sever
	f.mu.Unlock()
	if err != nil || sever == nil {
		return err
	}
	return sever(ctx, t)
}

const elec = "orders"

// setUp is a guard over a backend whose live token is tok, with number 7.
func setUp(t *testing.T, c guard.Config) (*guard.Guard, *fakeBackend, *fakeFence, election.Token) {
	t.Helper()
	tok := election.NewToken()
	b := &fakeBackend{token: tok, number: 7}
	f := &fakeFence{err: map[string]error{}}
	g := guard.New(b, f, c)
	t.Cleanup(g.Close)
	return g, b, f, tok
}

func admit(t *testing.T, g *guard.Guard, tok election.Token) *guard.Permit {
	t.Helper()
	p, err := g.Admit(t.Context(), guard.Credential{Election: elec, Token: tok})
	if err != nil {
		t.Fatalf("Admit: %v", err)
	}
	return p
}

// refused asserts that err is a Refusal with the reason and returns it.
func refused(t *testing.T, err error, want guard.Reason) *guard.Refusal {
	t.Helper()
	var r *guard.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("got %v, want a refusal", err)
	}
	if r.Reason != want {
		t.Fatalf("reason %d, want %d: %v", r.Reason, want, r)
	}
	return r
}

func cred(tok election.Token) guard.Credential { return guard.Credential{Election: elec, Token: tok} }
