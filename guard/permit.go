package guard

import (
	"sync/atomic"
	"time"
)

// A Permit lets one session bind and then write for a term. It is safe for
// concurrent use. Release it.
type Permit struct {
	k        *keeper
	term     Term
	record   Record
	released atomic.Bool
}

// Term is the term that the permit is for.
func (p *Permit) Term() Term { return p.term }

// Record is the fence, severed, as it must stand in the resource when the session's
// connection is bound. The bind checks it there.
func (p *Permit) Record() Record { return p.record }

// Live reports whether the session may write now. It asks the clock, not a timer, so
// that a process that was paused past the end sees it at its first step. Once false it
// stays false. It does not allocate.
func (p *Permit) Live() bool {
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
func (p *Permit) Done() <-chan struct{} { return p.k.done }

// Err is nil while the permit lives, and then a *Refusal that says why it ended.
func (p *Permit) Err() error {
	if p.Live() {
		return nil
	}
	return p.k.ended()
}

// Invalidate tells the guard that the resource no longer holds Record: a bind failed
// with ErrConflict. Call it, Release the permit and Admit again: the guard then reads
// the fence anew and, where it was lost, raises, validates and severs again.
func (p *Permit) Invalidate() {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if p.k.record == p.record {
		p.k.record = Record{}
	}
}

// Release gives the permit back, after the session's last write. Calling it again
// does nothing.
func (p *Permit) Release() {
	if !p.released.Swap(true) {
		p.k.g.leave(p.k)
	}
}
