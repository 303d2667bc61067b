package electiontest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A Reign is one call of a leader's callback, as a Witness saw it.
type Reign struct {
	Term  election.Term
	Ctx   context.Context
	Began time.Time
	// Told is when the callback saw its context end, Ended when it returned; both zero
	// until then.
	Told, Ended time.Time
}

// A Witness sees the reigns of all electors of one election, by one monotonic clock,
// and fails the test when two overlap or when a number does not rise.
type Witness struct {
	t testing.TB
	// Linger is run by a callback between the end of its context and its return; nil
	// means that it returns at once.
	Linger func(ctx context.Context)

	mu       sync.Mutex
	reigns   []*Reign
	reigning int
	changed  chan struct{}
}

// NewWitness returns a witness of nothing yet.
func NewWitness(t testing.TB) *Witness {
	return &Witness{t: t, changed: make(chan struct{})}
}

// Lead is the callback for each elector's OnBecomeLeader. It returns when its context
// has ended.
func (w *Witness) Lead(ctx context.Context) {
	term, ok := election.TermFrom(ctx)
	w.mu.Lock()
	if !ok || term.Number <= 0 || term.Token.IsZero() || term.Election == "" || term.Owner == "" {
		w.t.Errorf("the context of a callback carries the term %+v, %v", term, ok)
	}
	if n := len(w.reigns); n > 0 {
		if last := w.reigns[n-1]; term.Number <= last.Term.Number {
			w.t.Errorf("%s begins with number %d, %s had %d before", term.Owner, term.Number, last.Term.Owner, last.Term.Number)
		}
	}
	if w.reigning > 0 {
		w.t.Errorf("%s begins with number %d while another reigns:%s", term.Owner, term.Number, w.list())
	}
	r := &Reign{Term: term, Ctx: ctx, Began: time.Now()}
	w.reigns = append(w.reigns, r)
	w.reigning++
	w.changedLocked()
	w.mu.Unlock()

	<-ctx.Done()
	w.mu.Lock()
	r.Told = time.Now()
	w.changedLocked()
	w.mu.Unlock()
	if w.Linger != nil {
		w.Linger(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Ended = time.Now()
	w.reigning--
	w.changedLocked()
}

func (w *Witness) changedLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *Witness) list() string {
	s := ""
	for _, r := range w.reigns {
		s += fmt.Sprintf("\n%s %d: %v to %v (told %v)", r.Term.Owner, r.Term.Number, r.Began, r.Ended, r.Told)
	}
	return s
}

// Reigns returns what was seen so far, in the order of their begin.
func (w *Witness) Reigns() []Reign {
	w.mu.Lock()
	defer w.mu.Unlock()
	var rs []Reign
	for _, r := range w.reigns {
		rs = append(rs, *r)
	}
	return rs
}

// Await waits until the n-th reign, counted from one, is as f says, and returns it.
func (w *Witness) Await(ctx context.Context, n int, what string, f func(Reign) bool) Reign {
	w.t.Helper()
	for {
		w.mu.Lock()
		changed := w.changed
		var r Reign
		if len(w.reigns) >= n {
			r = *w.reigns[n-1]
		}
		seen := w.list()
		w.mu.Unlock()
		if r.Ctx != nil && f(r) {
			return r
		}
		select {
		case <-changed:
		case <-ctx.Done():
			w.t.Fatalf("reign %d %s: did not happen; seen:%s", n, what, seen)
		}
	}
}

// Begun waits for the begin of the n-th reign.
func (w *Witness) Begun(ctx context.Context, n int) Reign {
	w.t.Helper()
	return w.Await(ctx, n, "begins", func(Reign) bool { return true })
}

// Told waits until the n-th reign's context has ended.
func (w *Witness) Told(ctx context.Context, n int) Reign {
	w.t.Helper()
	return w.Await(ctx, n, "is told of its end", func(r Reign) bool { return !r.Told.IsZero() })
}

// Ended waits for the end of the n-th reign.
func (w *Witness) Ended(ctx context.Context, n int) Reign {
	w.t.Helper()
	return w.Await(ctx, n, "ends", func(r Reign) bool { return !r.Ended.IsZero() })
}
