package election

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"time"
)

// unhealthyAfter is how many calls of the backend in a row may fail before an
// elector is unhealthy.
const unhealthyAfter = 3

// An Elector campaigns for one election in the background, keeps the leadership
// alive while it leads, and runs callbacks for as long.
//
// It promises that the context of its callbacks ends, at the latest, when its trust
// in the lease does (see the package documentation), and that it releases the
// leadership only when every callback has returned. It does not promise that a
// callback stops when its context ends, nor that a paused process notices its end in
// time: writes go through a fence.
type Elector struct {
	b    Backend
	c    ElectorConfig // defaults filled in
	done chan struct{} // closed when the background work has ended
	err  error         // set before done is closed

	floor int64 // the next number must be at least this; used by the loop alone

	hinted    chan struct{} // holds one hint that was not followed yet
	listens   bool          // for hints; this and what follows are used by the loop alone
	listening *listening    // the latest, nil before the first

	mu        sync.Mutex
	callbacks []callback
	current   *leadership // nil for none
	contacted bool        // the backend has answered once
	failures  int         // calls in a row that failed
	overstays bool        // a callback outlives its trust
}

type callback struct {
	name string
	run  func(context.Context)
}

// NewElector returns an elector that campaigns on b until ctx ends. Then its callbacks'
// contexts end, it releases the leadership when they have returned, and Wait returns.
// The context is the base of the contexts that callbacks get. The backend stays open.
func NewElector(ctx context.Context, b Backend, c ElectorConfig) (*Elector, error) {
	c, err := c.normalize()
	if err != nil {
		return nil, fmt.Errorf("making an elector: %w", err)
	}
	e := &Elector{b: b, c: c, floor: c.MinFencing, done: make(chan struct{}), hinted: make(chan struct{}, 1)}
	go func() {
		defer close(e.done)
		e.err = e.run(ctx)
	}()
	return e, nil
}

// OnBecomeLeader has f called, in a goroutine of its own, each time that this elector
// becomes leader, and at once if it leads now. Its context carries the term (TermFrom)
// and ends when the leadership does: context.Cause says why, as ErrLost, ErrTrustEnded,
// a *PanicError of some callback, or the cause of the elector's own context. f should
// work until then and return soon after; the leadership goes on if it returns earlier.
// Several callbacks run concurrently. A panic of f is contained: it goes to
// ElectorConfig.OnError, and the leadership is released.
func (e *Elector) OnBecomeLeader(f func(ctx context.Context)) {
	c := callback{name: "callback", run: f}
	if fn := runtime.FuncForPC(reflect.ValueOf(f).Pointer()); fn != nil {
		c.name = fn.Name()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.callbacks = append(e.callbacks, c)
	if e.current != nil {
		e.start(e.current, c)
	}
}

// Term returns the present term, or false while this elector does not lead, or winds
// down.
func (e *Elector) Term() (Term, bool) {
	e.mu.Lock()
	l := e.current
	e.mu.Unlock()
	if l == nil || l.context().Err() != nil {
		return Term{}, false
	}
	return l.now(), true
}

// Healthy reports whether this elector can do its work, leading or not. It is false
// until the backend has answered once, after three calls in a row that failed, while a
// callback runs although the trust in its lease has ended, and after the end.
func (e *Elector) Healthy() bool {
	select {
	case <-e.done:
		return false
	default:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.contacted && e.failures < unhealthyAfter && !e.overstays
}

// Wait blocks until the background work has ended and returns its error: nil when the
// context of NewElector ended it and nothing is left; else why it gave up, why the
// leadership could not be released (its lease then ends by itself), or an
// *OverstayError when callbacks still run without any trust. It may be called often.
func (e *Elector) Wait() error {
	<-e.done
	return e.err
}

// run campaigns and leads in turns. It is the one goroutine that makes the five calls of
// the backend, so that never two of an elector are under way. Another listens for hints
// while it campaigns, and is awaited here.
func (e *Elector) run(ctx context.Context) error {
	defer e.awaitListening()
	if err := e.checkHoldOff(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		asked, g, err := e.campaign(ctx)
		if err != nil {
			return err
		}
		if g.Status != Acquired {
			break // ctx has ended
		}
		if err := e.lead(ctx, asked, g); err != nil {
			return err
		}
	}
	return nil
}

// checkHoldOff finds out early whether the backend can hold off: a resignation that is
// nobody's changes nothing, and is refused where the option is not supported.
func (e *Elector) checkHoldOff(ctx context.Context) error {
	if e.c.HoldOff == 0 {
		return nil
	}
	for ctx.Err() == nil {
		switch err := e.resign(ctx, NewToken(), e.c.HoldOff); {
		case err == nil:
			return nil
		case Permanent(err):
			return err
		case ctx.Err() == nil:
			sleep(ctx, e.failed(err))
		}
	}
	return nil
}

// campaign asks until the leadership is granted. It returns no grant when ctx ended
// first, and an error when asking again is of no use.
func (e *Elector) campaign(ctx context.Context) (asked time.Time, g AcquireResult, err error) {
	// E11: one token for all attempts. Should an answer be lost, the next attempt
	// finds its own grant.
	token := NewToken()
	unknown := false // a grant may exist that we have not heard of
	defer e.unlisten()
	for {
		e.forgetHints()
		asked = time.Now()
		g, err = e.acquire(ctx, token)
		var goOn bool
		switch {
		case err != nil && Permanent(err):
			e.giveBack(ctx, token, unknown)
			return asked, AcquireResult{}, err
		case err != nil:
			unknown = true
			// No hint shortens this: a backend that fails is not asked more often.
			goOn = ctx.Err() == nil && sleep(ctx, e.failed(err))
		case g.Status == Acquired:
			e.reached()
			e.sawNumber(g.Number)
			return asked, g, nil
		default:
			unknown = false
			e.reached()
			e.sawNumber(g.Number)
			e.listen(ctx)
			goOn = e.waitBusy(ctx, asked, e.busyPause(g.Remaining))
		}
		if !goOn {
			e.giveBack(ctx, token, unknown)
			return asked, AcquireResult{}, nil
		}
	}
}

// giveBack resigns a grant that may exist although no answer told of it, so that nobody
// waits for its lease to end.
func (e *Elector) giveBack(ctx context.Context, token Token, unknown bool) {
	if !unknown {
		return
	}
	if err := e.resign(context.WithoutCancel(ctx), token, 0); err != nil {
		e.failed(err)
	}
}

// sawNumber raises the floor above a number that was granted to anybody: should the
// backend lose its data, the next number is still higher.
func (e *Elector) sawNumber(n int64) {
	if n+1 > e.floor { // false for the highest number of all
		e.floor = n + 1
	}
}

// trust is until when an answer to a question asked then may be trusted.
func (e *Elector) trust(asked time.Time) time.Time { return asked.Add(e.c.TTL - e.c.Margin) }

func (e *Elector) acquire(ctx context.Context, token Token) (AcquireResult, error) {
	ctx, cancel := context.WithTimeout(ctx, e.c.CallTimeout)
	defer cancel()
	return e.b.Acquire(ctx, e.c.Election, AcquireOptions{
		Owner: e.c.Owner, TTL: e.c.TTL, Token: token, MinFencing: e.floor,
	})
}

// resign asks once.
func (e *Elector) resign(ctx context.Context, token Token, holdOff time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, e.c.CallTimeout)
	defer cancel()
	_, err := e.b.Resign(ctx, e.c.Election, token, ResignOptions{HoldOff: holdOff})
	if err == nil {
		e.reached()
	}
	return err
}

// reached notes that the backend has answered.
func (e *Elector) reached() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.contacted, e.failures = true, 0
}

// failed notes and reports a call that failed; it returns how long to wait before the
// next one.
func (e *Elector) failed(err error) time.Duration {
	e.mu.Lock()
	e.failures++
	n := e.failures
	e.mu.Unlock()
	e.report(err)
	return backOff(n, min(e.c.Retry, e.c.Heartbeat))
}

func (e *Elector) report(err error) {
	if e.c.OnError != nil {
		e.c.OnError(err)
	}
}

// Permanent reports whether an error of a Backend says that asking again is of no use.
func Permanent(err error) bool {
	for _, p := range []error{
		ErrClosed, ErrUnsupportedOption, ErrNumbersExhausted,
		ErrInvalidID, ErrInvalidOwner, ErrInvalidToken, ErrInvalidTTL, ErrInvalidFencing,
	} {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}
