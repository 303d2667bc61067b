// Package electiontest is the conformance suite of election backends: what holds
// for one of them holds for all, and is stated here.
//
// It promises that a backend which passes keeps the contract of
// election.Backend in the cases that it plays, on the server that it is given. It
// cannot show what needs a server of one kind only (a restart, a failover, a pooler
// in between); each backend's own tests do that.
package electiontest

import (
	"context"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A Harness tells the suite how to reach a backend, and what it can do. Every
// capability is declared: the suite leaves nothing out by itself. The hooks are
// called from several tests at once.
type Harness struct {
	// Open opens a handle on the store; the suite closes it. Where Server is set,
	// all handles share one store.
	Open func(t testing.TB) election.Backend
	// HoldOff says that the backend enforces ResignOptions.HoldOff. One that does
	// not must refuse it with election.ErrUnsupportedOption.
	HoldOff bool
	// Hints says that the backend is an election.Hinter. One that is not must be none.
	Hints bool
	// Lose makes the store forget all that it keeps of the election.
	Lose func(t testing.TB, b election.Backend, id string)
	// Dump returns all that the store keeps, as text.
	Dump func(t testing.TB, b election.Backend) string
	// Server is the host:port of the store's server. Empty means that there is
	// none, since the store lives in the handle: it cannot be out of reach, and
	// OpenAt is nil.
	Server string
	// OpenAt opens a handle that takes addr for the store's server. It succeeds even
	// if nothing listens there.
	OpenAt func(t testing.TB, addr string) election.Backend
	// Reads is how many answers of the server Acquire waits for, on one connection,
	// before it sends what changes something.
	Reads int
}

// A suite is a harness and what the tests share.
type suite struct{ Harness }

// Run plays the whole suite and returns when it has ended.
func Run(t *testing.T, h Harness) {
	if h.Open == nil || h.Lose == nil || h.Dump == nil || (h.Server == "") != (h.OpenAt == nil) {
		t.Fatal("electiontest: the harness is incomplete")
	}
	// One group, since parallel tests end after the function that started them.
	t.Run("Backend", suite{h}.run)
}

func (s suite) run(t *testing.T) {
	t.Run("Calls", s.calls)
	t.Run("Numbers", s.numbers)
	t.Run("Time", s.time)
	t.Run("HoldOff", s.holdOff)
	t.Run("Secrets", s.secrets)
	t.Run("Arguments", s.arguments)
	t.Run("Contexts", s.contexts)
	t.Run("Concurrent", s.concurrent)
	t.Run("Loss", s.loss)
	t.Run("Model", s.model)
	t.Run("Close", s.closing)
	t.Run("Hints", s.hints)
	if s.Server != "" {
		t.Run("Unreachable", s.unreachable)
		t.Run("LostReply", s.lostReply)
	}
}

// long is a lease that does not end during a test.
const long = 10 * time.Minute

// open opens a handle for the length of the test.
func (s suite) open(t testing.TB) election.Backend {
	t.Helper()
	b := s.Open(t)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// pair opens two handles on one store, as two processes would have them.
func (s suite) pair(t testing.TB) (a, b election.Backend) {
	t.Helper()
	a = s.open(t)
	if s.Server == "" {
		return a, a
	}
	return a, s.open(t)
}

// fresh returns an election id that nobody used before.
func fresh() string { return "test/" + election.NewToken().Reveal() }

// timeout bounds whatever a test waits for: far above what a busy machine takes.
const timeout = time.Minute

// within returns a context for one test's calls.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// until asks again and again, every few milliseconds, until f says yes.
func until(t testing.TB, ctx context.Context, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: did not happen", what)
		case <-tick.C:
		}
	}
}

// user calls a backend and fails the test at an error.
type user struct {
	t interface {
		Helper()
		Fatalf(format string, args ...any)
	}
	ctx context.Context
	b   election.Backend
	id  string
}

func (u user) acquire(o election.AcquireOptions) election.AcquireResult {
	u.t.Helper()
	if o.TTL == 0 {
		o.TTL = long
	}
	r, err := u.b.Acquire(u.ctx, u.id, o)
	if err != nil {
		u.t.Fatalf("Acquire: %v", err)
	}
	u.checkAcquire(o, r)
	return r
}

// checkAcquire checks what every answer of Acquire must be, by itself.
func (u user) checkAcquire(o election.AcquireOptions, r election.AcquireResult) {
	u.t.Helper()
	bad := r.Remaining <= 0
	switch r.Status {
	case election.Acquired:
		bad = bad || r.Token.IsZero() || r.Number <= 0 || r.Owner == "" || r.Reason != 0 || o.Token.IsZero() && r.Remaining > o.TTL ||
			!o.Token.IsZero() && r.Token != o.Token
	case election.Busy:
		bad = bad || !r.Token.IsZero()
		switch r.Reason {
		case election.BusyHeld:
			bad = bad || r.Number <= 0 || r.Owner == ""
		case election.BusyHoldOff:
			bad = bad || r.Number != 0 || r.Owner != ""
		default:
			bad = true
		}
	default:
		bad = true
	}
	if bad {
		u.t.Fatalf("Acquire(%+v) answers %+v", o, r)
	}
}

// win acquires and fails unless it was granted.
func (u user) win(o election.AcquireOptions) election.AcquireResult {
	u.t.Helper()
	r := u.acquire(o)
	if r.Status != election.Acquired {
		u.t.Fatalf("Acquire(%+v) answers %+v, want acquired", o, r)
	}
	return r
}

// busy acquires and fails unless somebody holds the election.
func (u user) busy(o election.AcquireOptions, holder election.AcquireResult) election.AcquireResult {
	u.t.Helper()
	r := u.acquire(o)
	if r.Status != election.Busy || r.Reason != election.BusyHeld || r.Number != holder.Number || r.Owner != holder.Owner {
		u.t.Fatalf("Acquire(%+v) answers %+v, want busy, held by %+v", o, r, holder)
	}
	return r
}

func (u user) renew(t election.Token, want election.RenewStatus) election.RenewResult {
	u.t.Helper()
	r, err := u.b.Renew(u.ctx, u.id, t)
	if err != nil {
		u.t.Fatalf("Renew: %v", err)
	}
	if r.Status != want || want == election.Lost && r != (election.RenewResult{Status: election.Lost}) ||
		want == election.Renewed && (r.Number <= 0 || r.Remaining <= 0) {
		u.t.Fatalf("Renew answers %+v, want %v", r, want)
	}
	return r
}

func (u user) resign(t election.Token, o election.ResignOptions, want election.ResignStatus) {
	u.t.Helper()
	r, err := u.b.Resign(u.ctx, u.id, t, o)
	if err != nil {
		u.t.Fatalf("Resign: %v", err)
	}
	if r.Status != want {
		u.t.Fatalf("Resign answers %+v, want %v", r, want)
	}
}

func (u user) status() election.StatusResult {
	u.t.Helper()
	r, err := u.b.Status(u.ctx, u.id)
	if err != nil {
		u.t.Fatalf("Status: %v", err)
	}
	switch {
	case r.Status == election.Held && r.Owner != "" && r.Number > 0 && r.Remaining > 0 && r.HoldOff == 0:
	case r.Status == election.Vacant && r.Owner == "" && r.Number >= 0 && r.Remaining == 0 && r.HoldOff >= 0:
	default:
		u.t.Fatalf("Status answers %+v", r)
	}
	return r
}

func (u user) validate(t election.Token) election.ValidateResult {
	u.t.Helper()
	r, err := u.b.Validate(u.ctx, u.id, t)
	if err != nil {
		u.t.Fatalf("Validate: %v", err)
	}
	switch {
	case (r.Standing == election.StandingCurrent || r.Standing == election.StandingStale) &&
		r.Owner != "" && r.Number > 0 && r.Remaining > 0:
	case r == (election.ValidateResult{Standing: election.StandingVacant}):
	default:
		u.t.Fatalf("Validate answers %+v", r)
	}
	return r
}

// standing fails unless the token's standing is as wanted and, where somebody
// holds the election, it is by the number.
func (u user) standing(t election.Token, want election.Standing, number int64) {
	u.t.Helper()
	if r := u.validate(t); r.Standing != want || r.Number != number {
		u.t.Fatalf("Validate answers %+v, want %v with number %d", r, want, number)
	}
}

// user returns a user of a fresh election.
func (s suite) user(t testing.TB) user {
	t.Helper()
	return user{t, within(t), s.open(t), fresh()}
}

// with returns the user with another handle.
func (u user) with(b election.Backend) user { u.b = b; return u }

// of returns the user on another election.
func (u user) of(id string) user { u.id = id; return u }
