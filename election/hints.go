package election

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoHints: a backend, or the way to it, tells nobody of releases. Candidates find out
// by asking, as often as ever.
var ErrNoHints = errors.New("this backend gives no hints")

// A Hinter is a Backend that can tell candidates when to ask. Backends need not be one,
// and a Backend that wraps another should be one too, by Hints.
type Hinter interface {
	Backend
	// Hints calls hint each time that the election may have become free, and once when
	// it begins to hear of that: what was before, it has not heard of. It returns soon
	// after ctx has ended, or when it hears nothing any more, and says why: ErrNoHints
	// where there is no use in trying again. Whatever it opened is closed then. hint
	// returns at once and may be called from any goroutine, but not after the return.
	//
	// A hint grants nothing: only Acquire does. Hints may be lost, late, doubled, forged
	// or without number, and so they need no care but to be cheap.
	Hints(ctx context.Context, id string, hint func()) error
}

// Hints are those of b, or ErrNoHints at once where it is no Hinter.
func Hints(ctx context.Context, b Backend, id string, hint func()) error {
	if h, ok := b.(Hinter); ok {
		return h.Hints(ctx, id, hint)
	}
	return ErrNoHints
}

// A HintsError says that nothing is heard of an election's releases for now. No call has
// failed: candidates ask as often as ever, and the hints are tried again.
type HintsError struct {
	Election string
	Err      error
}

func (e *HintsError) Error() string {
	return fmt.Sprintf("no hints of releases of %q for now: %v", e.Election, e.Err)
}

// Unwrap returns why.
func (e *HintsError) Unwrap() error { return e.Err }

const (
	// hintGap and hintSpread bound what hints make of a candidate: it asks hintGap after it
	// last asked, or now if that is later, and after that much more by chance.
	hintGap    = 50 * time.Millisecond
	hintSpread = 20 * time.Millisecond
	// The wait before hints are tried again: it is doubled each time.
	minHintRetry = time.Second
	maxHintRetry = time.Minute
	// hintsSettled is how long hints last that did not fail at once.
	hintsSettled = 10 * time.Second
)

// hear listens for hints until ctx ends, and tries again where that fails, less and less
// often. OnError is told of the first failure in a row.
func (e *Elector) hear(ctx context.Context) {
	for n := 0; ; n++ {
		began := time.Now()
		err := Hints(ctx, e.b, e.c.Election, e.hint)
		if ctx.Err() != nil || errors.Is(err, ErrNoHints) || Permanent(err) {
			return
		}
		if time.Since(began) >= hintsSettled {
			n = 0
		}
		if n == 0 && err != nil {
			e.report(&HintsError{Election: e.c.Election, Err: err})
		}
		// INVARIANT: a subscription that fails costs no busy loop, one that fails as soon as
		// it has begun too. Doubled six times, the wait is more than the longest.
		wait := min(minHintRetry<<min(n, 6), maxHintRetry)
		if !sleep(ctx, wait-upTo(wait/2)) {
			return
		}
	}
}

// listening is an elector's hear, under way or ended.
type listening struct {
	stop context.CancelFunc
	done chan struct{} // closed when it has returned
}

// listen begins to listen for hints, unless it does already. The loop calls it, when
// another leads, and unlisten when the campaign ends.
func (e *Elector) listen(ctx context.Context) {
	if _, ok := e.b.(Hinter); !ok || e.listens {
		return
	}
	e.listens = true
	before := e.listening
	l := &listening{done: make(chan struct{})}
	ctx, l.stop = context.WithCancel(ctx)
	e.listening = l
	go func() {
		defer close(l.done)
		if before != nil {
			<-before.done // INVARIANT: an elector has one subscription at most
		}
		e.hear(ctx)
	}()
}

// unlisten ends the listening. It does not wait: a leader's time runs. awaitListening does.
func (e *Elector) unlisten() {
	if e.listening != nil {
		e.listening.stop()
	}
	e.listens = false
}

// awaitListening returns when nothing of the elector's listens any more.
func (e *Elector) awaitListening() {
	if e.listening != nil {
		<-e.listening.done
	}
}

// hint wakes the loop, if it waits as a candidate; one too many is dropped.
func (e *Elector) hint() {
	select {
	case e.hinted <- struct{}{}:
	default:
	}
}

// forgetHints is called before a question that answers whatever was hinted so far.
func (e *Elector) forgetHints() {
	select {
	case <-e.hinted:
	default:
	}
}

// waitBusy waits for a pause after a busy answer to a question asked then, or for a hint.
// It reports false if ctx ended first.
//
// INVARIANT: a hint changes nothing but how long this waits: never longer than the pause,
// so that the clock needs no hint, and never so short that candidates ask more often than
// every hintGap, however many hints there are. Chance keeps them apart, since all hear of
// a release at once. What was hinted is not looked at: Acquire says who leads.
func (e *Elector) waitBusy(ctx context.Context, asked time.Time, pause time.Duration) bool {
	due := time.NewTimer(pause)
	defer due.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-due.C:
		return ctx.Err() == nil
	case <-e.hinted:
	}
	soon := time.NewTimer(max(0, time.Until(asked.Add(hintGap))) + upTo(hintSpread))
	defer soon.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-due.C:
	case <-soon.C:
	}
	return ctx.Err() == nil
}
