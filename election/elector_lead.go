package election

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// lead keeps the leadership from its grant until no callback of it runs, and releases
// it where it is still ours. An error ends the elector.
func (e *Elector) lead(ctx context.Context, asked time.Time, g AcquireResult) error {
	l := newLeadership(ctx, Term{
		Election: e.c.Election, Owner: g.Owner, Number: g.Number, Token: g.Token, TrustedUntil: e.trust(asked),
	})
	defer l.cancel(nil)
	overstayed := make(chan *OverstayError, 1)
	var watch sync.WaitGroup
	watch.Go(func() { e.watch(l, overstayed) })
	e.begin(l)

	replaced := e.renew(ctx, l, asked)
	err := e.drain(ctx, l, overstayed)
	watch.Wait()
	e.mu.Lock()
	e.current, e.overstays = nil, false
	e.mu.Unlock()
	if err != nil {
		return err
	}

	cause := l.lost()
	var panicked *PanicError
	switch {
	case cause == nil:
		err = e.release(ctx, l.term.Token)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("releasing the leadership: %w", err)
		}
		if errors.As(context.Cause(l.ctx), &panicked) {
			// Others try first: they ask at least once in this time.
			sleep(ctx, e.c.Retry+upTo(e.c.Retry/2))
		}
	case errors.Is(cause, ErrTrustEnded) || replaced:
		// The record may still carry our token.
		e.report(e.ofTerm(l, cause))
		e.giveBack(ctx, l.term.Token, true)
	default:
		e.report(e.ofTerm(l, cause))
	}
	return nil
}

// ofTerm says which term an error is about.
func (e *Elector) ofTerm(l *leadership, err error) error {
	return fmt.Errorf("election %q, number %d: %w", e.c.Election, l.term.Number, err)
}

// begin makes l the present leadership and starts every callback, once each: a callback
// that is registered meanwhile is started here or by OnBecomeLeader.
func (e *Elector) begin(l *leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = l
	for _, c := range e.callbacks {
		e.start(l, c)
	}
}

// start runs a callback under l unless it has ended. drain waits for it.
func (e *Elector) start(l *leadership, c callback) {
	id, ok := l.enter(c.name)
	if !ok {
		return
	}
	go func() {
		defer l.leave(id)
		defer func() {
			if v := recover(); v != nil {
				err := &PanicError{Callback: c.name, Value: v, Stack: debug.Stack()}
				l.end(err)
				e.report(err)
			}
		}()
		c.run(l.context())
	}()
}

// renew extends the lease every Heartbeat until its trust has ended, or until callbacks
// have wound down or taken too long for it. It reports whether the backend said that
// our token has a number that is not this term's.
//
// Safety (E5): it goes on after the context's end, while callbacks wind down.
func (e *Elector) renew(ctx context.Context, l *leadership, asked time.Time) (replaced bool) {
	next := time.NewTimer(time.Until(asked.Add(e.c.Heartbeat)))
	defer next.Stop()
	done := l.ctx.Done()
	var tooLong <-chan time.Time
	for {
		select {
		case <-l.gone:
			return false
		case <-l.idle:
			return false
		case <-done:
			l.end(context.Cause(ctx))
			done = nil
			if e.c.WindDown > 0 {
				t := time.NewTimer(e.c.WindDown)
				defer t.Stop()
				tooLong = t.C
			}
			continue
		case <-tooLong:
			return false
		case <-next.C:
		}
		asked, left := time.Now(), l.expire()
		if left == 0 {
			return false
		}
		r, err := e.askRenew(ctx, l.term.Token, min(left, e.c.CallTimeout))
		switch {
		case err != nil:
			// E4: the outcome is unknown. The trust does not move, and ends by itself.
			next.Reset(e.failed(err))
			continue
		case r.Status == Renewed && r.Number == l.term.Number:
			e.reached()
			l.extend(e.trust(asked)) // where it is too late, gone is closed
		default:
			e.reached()
			l.lose(ErrLost)
			return r.Status == Renewed
		}
		next.Reset(time.Until(asked.Add(e.c.Heartbeat)))
	}
}

// askRenew asks once, whatever became of ctx.
func (e *Elector) askRenew(ctx context.Context, token Token, timeout time.Duration) (RenewResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return e.b.Renew(ctx, e.c.Election, token)
}

// watch ends the trust on time, whatever the goroutine that renews is blocked in, and
// tells of callbacks that run on. It returns when no callback runs, or after it told.
func (e *Elector) watch(l *leadership, overstayed chan<- *OverstayError) {
	// E3: the deadline is the clock's, not a call's.
	t := time.NewTimer(l.expire())
	defer t.Stop()
	for ended := false; !ended; {
		select {
		case <-l.idle:
			return
		case <-l.gone:
			ended = true
		case <-t.C:
			t.Reset(l.expire()) // extended meanwhile, or gone
		}
	}
	t.Reset(e.c.Margin)
	select {
	case <-l.idle:
		return
	case <-t.C:
	}
	err := &OverstayError{Term: l.now(), Callbacks: l.names()}
	if len(err.Callbacks) == 0 {
		return // the last one returned just now
	}
	e.mu.Lock()
	e.overstays = true
	e.mu.Unlock()
	if e.c.Overstay != nil {
		e.c.Overstay(err)
	} else {
		e.report(err)
	}
	overstayed <- err
}

// drain waits until no callback runs. It gives up, with an error, only when the trust
// and the elector's context have ended and callbacks have outstayed both.
//
// Safety: a callback of an old term never runs beside one of a new term.
func (e *Elector) drain(ctx context.Context, l *leadership, overstayed <-chan *OverstayError) error {
	var err *OverstayError
	select {
	case <-l.idle:
		return nil
	case err = <-overstayed:
	}
	select {
	case <-l.idle:
		return nil
	case <-ctx.Done():
		return err
	}
}

// release gives the leadership up, within ReleaseTimeout and whatever became of ctx
// (E6). No callback runs any more.
func (e *Elector) release(ctx context.Context, token Token) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.c.ReleaseTimeout)
	defer cancel()
	for {
		err := e.resign(ctx, token, e.c.HoldOff)
		if err == nil {
			return nil // not-owner too: it is not ours any more
		}
		if pause := e.failed(err); Permanent(err) || !sleep(ctx, pause) {
			return err
		}
	}
}
