package electiontest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A Fault is what becomes of a call.
type Fault uint8

// The faults.
const (
	// Sound: none.
	Sound Fault = iota
	// Refused: the call fails at once and never reaches the backend.
	Refused
	// ReplyLost: the call takes effect and then fails.
	ReplyLost
	// Silent: the call never reaches the backend and blocks until its context ends.
	Silent
	// Deaf: the call takes effect and then blocks until its context ends.
	Deaf
	// Hung: the call never reaches the backend and blocks until the fault changes,
	// whatever its context says.
	Hung
)

var errInjected = errors.New("injected fault")

// Faults is a backend whose calls fail on demand, and which keeps count of them.
type Faults struct {
	mu      sync.Mutex
	b       election.Backend
	changed chan struct{} // closed when the faults change
	lasting map[election.Operation]Fault
	next    map[election.Operation][]Fault
	delay   time.Duration
	calls   map[election.Operation]int
	sound   map[election.Operation]time.Time // when the last call that succeeded was made
	running int
	most    int
}

// NewFaults returns b without any fault yet.
func NewFaults(b election.Backend) *Faults {
	return &Faults{
		b: b, changed: make(chan struct{}),
		lasting: make(map[election.Operation]Fault), next: make(map[election.Operation][]Fault),
		calls: make(map[election.Operation]int), sound: make(map[election.Operation]time.Time),
	}
}

// Set gives the calls a fault until it is set again; no calls named means all five.
func (f *Faults) Set(x Fault, ops ...election.Operation) {
	if len(ops) == 0 {
		ops = []election.Operation{
			election.OpAcquire, election.OpRenew, election.OpResign, election.OpStatus, election.OpValidate,
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range ops {
		f.lasting[op] = x
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// Next gives the next calls of one kind one fault each, before the lasting one counts.
func (f *Faults) Next(op election.Operation, x ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[op] = append(f.next[op], x...)
}

// Replace has later calls go to another backend.
func (f *Faults) Replace(b election.Backend) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.b = b
}

// Close closes the backend.
func (f *Faults) Close() error { return f.to().Close() }

func (f *Faults) to() election.Backend {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.b
}

// Slow makes every call take that long, before it takes effect and once more after.
func (f *Faults) Slow(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = d
}

// Calls is how many calls of a kind were made.
func (f *Faults) Calls(op election.Operation) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// LastGood is when the last call of a kind that succeeded was made.
func (f *Faults) LastGood(op election.Operation) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sound[op]
}

// MostAtOnce is how many calls were under way at once, at most.
func (f *Faults) MostAtOnce() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most
}

// call plays the fault of one call around do.
func (f *Faults) call(ctx context.Context, op election.Operation, do func() error) error {
	asked := time.Now()
	f.mu.Lock()
	x, delay, changed := f.lasting[op], f.delay, f.changed
	if n := f.next[op]; len(n) > 0 {
		x, f.next[op] = n[0], n[1:]
	}
	f.calls[op]++
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.mu.Unlock()
	}()

	fail := func(cause error) error {
		return fmt.Errorf("%s: %w: %w", op, election.ErrUnavailable, cause)
	}
	pause := func() error {
		if delay == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fail(ctx.Err())
		case <-time.After(delay):
			return nil
		}
	}
	if err := pause(); err != nil {
		return err
	}
	switch x {
	case Refused:
		return fail(errInjected)
	case Silent:
		<-ctx.Done()
		return fail(ctx.Err())
	case Hung:
		<-changed
		return fail(errInjected)
	}
	err := do()
	switch x {
	case ReplyLost:
		return fail(errInjected)
	case Deaf:
		<-ctx.Done()
		return fail(ctx.Err())
	}
	if err == nil {
		if err = pause(); err == nil {
			f.mu.Lock()
			f.sound[op] = asked
			f.mu.Unlock()
		}
	}
	return err
}

// answer is call for a call with a result, which an error leaves empty.
func answer[R any](ctx context.Context, f *Faults, op election.Operation, do func() (R, error)) (R, error) {
	var r, none R
	err := f.call(ctx, op, func() (err error) { r, err = do(); return err })
	if err != nil {
		return none, err
	}
	return r, nil
}

// Acquire implements election.Backend.
func (f *Faults) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	return answer(ctx, f, election.OpAcquire, func() (election.AcquireResult, error) {
		return f.to().Acquire(ctx, id, o)
	})
}

// Renew implements election.Backend.
func (f *Faults) Renew(ctx context.Context, id string, t election.Token) (election.RenewResult, error) {
	return answer(ctx, f, election.OpRenew, func() (election.RenewResult, error) {
		return f.to().Renew(ctx, id, t)
	})
}

// Resign implements election.Backend.
func (f *Faults) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (election.ResignResult, error) {
	return answer(ctx, f, election.OpResign, func() (election.ResignResult, error) {
		return f.to().Resign(ctx, id, t, o)
	})
}

// Status implements election.Backend.
func (f *Faults) Status(ctx context.Context, id string) (election.StatusResult, error) {
	return answer(ctx, f, election.OpStatus, func() (election.StatusResult, error) {
		return f.to().Status(ctx, id)
	})
}

// Validate implements election.Backend.
func (f *Faults) Validate(ctx context.Context, id string, t election.Token) (election.ValidateResult, error) {
	return answer(ctx, f, election.OpValidate, func() (election.ValidateResult, error) {
		return f.to().Validate(ctx, id, t)
	})
}

// Hints implements election.Hinter. No fault concerns them.
func (f *Faults) Hints(ctx context.Context, id string, hint func()) error {
	return election.Hints(ctx, f.to(), id, hint)
}
