package guard

import (
	"sync/atomic"
	"time"
)

// A Permit lets one session bind and then write for a term. It is safe for
// concurrent use. Release it.
type Permit struct {
	k        *keeper
	is       *grant // shared by all that were given for it
	hold     *hold  // of an exclusive listener's session; nil: none is needed
	released atomic.Bool
}

// A grant is what a permit is for. It never changes.
type grant struct {
	term   Term
	record Record
}

// share returns another permit for the same, to be released by itself.
func (p *Permit) share() *Permit {
	p.k.g.mu.Lock()
	defer p.k.g.mu.Unlock()
	p.k.users++
	return &Permit{k: p.k, is: p.is}
}

// Term is the term that the permit is for.
func (p *Permit) Term() Term { return p.is.term }

// Record is the fence, severed, as it must stand in the resource when the session's
// connection is bound. The bind checks it there.
func (p *Permit) Record() Record { return p.is.record }

// Live reports whether the session may write now. It asks the clock, not a timer, so
// that a process that was paused past the end sees it at its first step. Once false it
// stays false. It does not allocate.
func (p *Permit) Live() bool {
	// INVARIANT: a session that must hold its election lives no longer than its hold, which
	// lives no longer than the permit.
	if p.hold != nil {
		return p.hold.b.Live()
	}
	if p.k.live() {
		return true
	}
	p.k.expire()
	return false
}

// TrustedUntil is when the permit ends unless it is extended meanwhile; it has a monotonic
// reading. It only ever moves later.
func (p *Permit) TrustedUntil() time.Time {
	return p.k.g.epoch.Add(time.Duration(p.k.until.Load()))
}

// Done is closed when the permit has ended. Live may turn false a moment earlier.
func (p *Permit) Done() <-chan struct{} {
	if p.hold != nil {
		return p.hold.b.done // which ends with the permit, too
	}
	return p.k.done
}

// AfterFunc has f called once, when the permit has ended or at once if it has: Err says why
// then. Until then it costs no goroutine, as a wait for Done does. Neither Release nor the
// garbage collector keeps f from being called: stop does, and reports whether it did. When stop
// has returned f does not run, and will not: where f runs already, stop waits for it.
//
// The functions of all sessions of a token are called one after the other, so that f must not
// wait for a peer. Stop must not be called by f, nor with a lock held that f takes.
func (p *Permit) AfterFunc(f func()) (stop func() bool) {
	if p.hold != nil {
		return p.hold.b.after.add(f) // as with Done
	}
	return p.k.after.add(f)
}

// Err is nil while the permit lives, and then a *Refusal that says why it ended.
func (p *Permit) Err() error {
	if p.Live() {
		return nil
	}
	if p.hold != nil {
		return p.hold.b.ended()
	}
	return p.k.ended()
}

// Invalidate tells the guard that the resource no longer holds Record: a bind failed
// with ErrConflict. Call it, Release the permit and Admit again: the guard then reads
// the fence anew and, where it was lost, raises, validates and severs again.
func (p *Permit) Invalidate() {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if p.k.record == p.is.record {
		p.k.record = Record{}
	}
}

// Release gives the permit back, after the session's last write. Calling it again
// does nothing.
func (p *Permit) Release() {
	if p.released.Swap(true) {
		return
	}
	if p.hold != nil {
		p.hold.leave()
	}
	p.k.g.leave(p.k)
}
