package election

import (
	"context"
	"sync"
	"time"
)

// A leadership is one term of an elector: its trust, its context, and the callbacks
// that run under it.
type leadership struct {
	term   Term            // but for TrustedUntil
	ctx    context.Context //nolint:containedctx // callbacks that come later get it too
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when the trust has ended
	idle   chan struct{} // closed when ctx has ended and no callback runs

	mu      sync.Mutex
	until   time.Time      // the end of the trust
	cause   error          // why the trust ended; nil while it has not
	ended   bool           // no callback starts any more
	running map[int]string // the callbacks that run, by the order of their start
	started int
}

func newLeadership(ctx context.Context, t Term) *leadership {
	l := &leadership{
		term: t, until: t.TrustedUntil,
		gone: make(chan struct{}), idle: make(chan struct{}), running: make(map[int]string),
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	return l
}

// now returns the term with the trust as it is now.
func (l *leadership) now() Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.term
	t.TrustedUntil = l.until
	return t
}

// extend moves the end of the trust. It reports false when the trust has ended before:
// what has ended stays so.
func (l *leadership) extend(until time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expireLocked() == 0 {
		return false
	}
	l.until = until
	return true
}

// expire ends the trust if its time is over, and returns how long it still lasts: zero
// means that it has ended.
func (l *leadership) expire() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expireLocked()
}

func (l *leadership) expireLocked() time.Duration {
	if l.cause != nil {
		return 0
	}
	left := time.Until(l.until)
	if left <= 0 {
		l.loseLocked(ErrTrustEnded)
		return 0
	}
	return left
}

// lose ends the trust.
func (l *leadership) lose(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loseLocked(cause)
}

func (l *leadership) loseLocked(cause error) {
	if l.cause != nil {
		return
	}
	l.cause = cause
	if now := time.Now(); now.Before(l.until) {
		l.until = now
	}
	close(l.gone)
	l.endLocked(cause)
}

// end ends the context while the trust goes on, so that callbacks wind down.
func (l *leadership) end(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(cause)
}

func (l *leadership) endLocked(cause error) {
	l.cancel(cause)
	if l.ended {
		return
	}
	l.ended = true
	if len(l.running) == 0 {
		close(l.idle)
	}
}

// lost returns why the trust ended, nil while it has not.
func (l *leadership) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// enter notes that a callback runs from now on; leave takes its number. It reports
// false when the leadership has ended, and then the callback must not run.
func (l *leadership) enter(name string) (id int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked()
	if l.ended || l.ctx.Err() != nil {
		return 0, false
	}
	l.started++
	l.running[l.started] = name
	return l.started, true
}

func (l *leadership) leave(id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, id)
	if l.ended && len(l.running) == 0 {
		close(l.idle) // once: nothing enters any more
	}
}

// names returns the callbacks that run, in the order of their start.
func (l *leadership) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for id := 1; id <= l.started; id++ {
		if name, ok := l.running[id]; ok {
			names = append(names, name)
		}
	}
	return names
}

// context is the context of callbacks.
func (l *leadership) context() context.Context { return leaderContext{l.ctx, l} }

// A leaderContext is a context whose Err looks at the clock: a process that was paused
// learns the end of its trust from it although no timer has fired yet.
type leaderContext struct {
	context.Context //nolint:containedctx // it is a context itself
	l               *leadership
}

func (c leaderContext) Err() error {
	c.l.expire()
	return c.Context.Err()
}

func (c leaderContext) Value(key any) any {
	if _, ok := key.(leadershipKey); ok {
		return c.l
	}
	return c.Context.Value(key)
}
