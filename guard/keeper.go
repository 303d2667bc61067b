package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A keeper watches one token of one election for all the sessions that present it: it
// validates ahead of expiry, and advances the fence when asked to.
//
//	asking --current--> live --stale, vacant, other number, expiry, close--> ended
//	   \--anything else------------------------------------------------------^
//
// ended is final.
type keeper struct {
	g      *Guard
	at     key
	token  election.Token
	cancel context.CancelFunc // ends the keeper's goroutines
	done   chan struct{}      // closed when it has ended
	users  int                // guarded by g.mu: sessions that wait or hold a permit

	over  atomic.Bool  // ended; for live
	until atomic.Int64 // when the permit ends, in nanoseconds since g.epoch; for live

	after afters // called when it has ended

	answered chan struct{} // closed when the token was first found current
	wanted   chan *flight  // advances to be made

	mu      sync.Mutex
	term    Term     // Number is zero until the token was first found current
	leased  bool     // until is the end of the lease, not of PermitFor
	lastErr error    // of the last question, if it went unanswered
	record  Record   // the severed fence, or zero where it must be looked at
	granted *grant   // the last one
	flight  *flight  // the advance under way, if any
	refusal *Refusal // why it ended
}

// A flight is one advance that any number of sessions wait for.
type flight struct {
	done    chan struct{}
	refusal *Refusal // set before done is closed; nil when the advance succeeded
}

func newKeeper(g *Guard, at key, t election.Token) *keeper {
	return &keeper{
		g: g, at: at, token: t,
		done: make(chan struct{}), answered: make(chan struct{}), wanted: make(chan *flight, 1),
	}
}

// start runs the keeper until it has ended. The guard waits for it.
func (k *keeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.g.running.Go(func() {
		defer cancel()
		if !k.ask1(ctx) {
			return
		}
		var others sync.WaitGroup
		if k.g.fence != nil {
			others.Go(func() { k.advanceOnDemand(ctx) })
		}
		// By itself: who ends the keeper may hold what they wait for, and a question may be under
		// way.
		others.Go(func() {
			<-k.done
			k.after.call()
		})
		k.validate(ctx)
		others.Wait()
	})
}

// live reports whether the permit holds now.
func (k *keeper) live() bool {
	return !k.over.Load() && int64(time.Since(k.g.epoch)) < k.until.Load()
}

// ask1 asks the first question, and reports whether the token is current.
func (k *keeper) ask1(ctx context.Context) bool {
	select {
	case k.g.first <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	err := k.ask(ctx, k.g.c.Timeout)
	<-k.g.first
	if err != nil {
		k.end(k.refuse(BackendUnknown, "", err))
	}
	return k.ended() == nil
}

// validate asks again and again, ahead of expiry, until the keeper has ended.
func (k *keeper) validate(ctx context.Context) {
	left := k.left()
	timer := time.NewTimer(max(0, min(k.g.c.askAgain(left), left)))
	defer timer.Stop()
	pause := minAsk
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if k.g.retire(k) {
			return
		}
		if left = k.left(); left <= 0 {
			k.expire()
			return
		}
		err := k.ask(ctx, min(k.g.c.Timeout, left))
		if k.ended() != nil {
			return
		}
		left = k.left()
		next := k.g.c.askAgain(left)
		if err != nil {
			next = pause
			pause = min(2*pause, k.g.c.ValidateEvery)
		} else {
			pause = minAsk
		}
		timer.Reset(max(0, min(next, left)))
	}
}

// ask puts one question to the election backend and takes in the answer: the permit
// holds longer, or the keeper ends. The error means that there was no answer.
func (k *keeper) ask(ctx context.Context, timeout time.Duration) error {
	// INVARIANT: trust is measured from before the question. The lease's time left
	// was true at some moment after this one, so asked+left is never too late.
	asked := time.Since(k.g.epoch)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := k.g.backend.Validate(ctx, k.at.election, k.token)
	switch {
	case errors.Is(err, election.ErrInvalidID), errors.Is(err, election.ErrInvalidToken):
		k.end(k.refuse(InvalidCredential, "", err))
		return nil
	case err != nil:
		return k.unanswered(fmt.Errorf("validating the token: %w", err))
	}
	switch res.Standing {
	case election.StandingCurrent:
		if res.Number <= 0 {
			return k.unanswered(fmt.Errorf("validating the token: the backend gave no fencing number (%d)", res.Number))
		}
		k.current(asked, res)
	case election.StandingStale:
		k.end(k.stale(res.Number, res.Owner))
	case election.StandingVacant:
		k.end(k.refuse(LeaseVacant, "", nil))
	default:
		return k.unanswered(fmt.Errorf("validating the token: unknown answer %d", res.Standing))
	}
	return nil
}

func (k *keeper) unanswered(err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lastErr = err
	return err
}

func (k *keeper) stale(rules int64, leader string) *Refusal {
	r := k.refuse(Stale, "", nil)
	r.Rules, r.Leader = rules, leader
	return r
}

// current takes in the answer that the token is the live holder's.
func (k *keeper) current(asked time.Duration, res election.ValidateResult) {
	// A permit that has run out is never extended: somebody may have seen it end.
	if k.known() && !k.live() {
		k.expire()
		return
	}
	// INVARIANT: a permit is for one number. The same token under another number is
	// another term, which has to be admitted, fenced and bound by itself.
	if n := k.number(); n != 0 && n != res.Number {
		r := k.stale(res.Number, res.Owner)
		r.Err = errRenumbered
		k.end(r)
		return
	}
	holds, leased := k.g.c.PermitFor, false
	if res.Remaining < holds {
		holds, leased = res.Remaining, true
	}
	if holds <= 0 {
		k.end(k.refuse(LeaseVacant, "the lease was running out", nil))
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refusal != nil {
		return
	}
	k.lastErr = nil
	// Two questions may be under way, and answered out of order.
	if until := int64(asked + holds); until > k.until.Load() {
		k.until.Store(until)
		k.leased = leased
	}
	if k.term.Number == 0 {
		k.term = Term{Election: k.at.election, Owner: res.Owner, Number: res.Number, Digest: k.at.digest}
		close(k.answered)
	}
}

// expire ends the keeper because its time has run out.
func (k *keeper) expire() {
	if k.over.Load() {
		return
	}
	k.mu.Lock()
	err, leased := k.lastErr, k.leased
	k.mu.Unlock()
	if leased && err == nil {
		k.end(k.refuse(LeaseVacant, "the lease was not renewed in time", nil))
		return
	}
	k.end(k.refuse(BackendUnknown, "no answer for as long as the permit holds unasked", err))
}

// end ends the keeper for the reason given, unless it has ended already.
func (k *keeper) end(r *Refusal) {
	k.mu.Lock()
	if k.refusal != nil {
		k.mu.Unlock()
		return
	}
	k.refusal = r
	k.over.Store(true)
	k.mu.Unlock()
	close(k.done)
	k.cancel()
	k.g.forget(k)
	n := k.number()
	switch {
	case n == 0:
	case errors.Is(r, errUnused), errors.Is(r, ErrClosed):
		k.g.c.Log.Debug("permit given back", "election", k.at.election, "number", n)
	case r.Reason == BackendUnknown: // an operator must mend it: no takeover goes on meanwhile
		k.g.c.Log.Warn("permit ended", "election", k.at.election, "number", n, "reason", r.Error())
	default:
		k.g.c.Log.Info("permit ended", "election", k.at.election, "number", n, "reason", r.Message())
	}
}

// ended is why the keeper has ended, or nil.
func (k *keeper) ended() *Refusal {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refusal
}

func (k *keeper) known() bool { return k.number() != 0 }

func (k *keeper) number() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.term.Number
}

func (k *keeper) advancing() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flight != nil
}

// left is how long the permit still holds.
func (k *keeper) left() time.Duration {
	return time.Duration(k.until.Load()) - time.Since(k.g.epoch)
}
