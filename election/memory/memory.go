// Package memory keeps elections in the memory of one process, for a first try
// and for tests.
//
// It promises everything that the election contract asks for, hold-off included,
// among the users of one Backend value. It does not promise that another process,
// or this one after a restart, knows of them: two processes with a memory backend
// each elect two leaders.
package memory

import (
	"context"
	"crypto/subtle"
	"fmt"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A Backend keeps elections in memory. The zero value is ready for use; it must
// not be copied.
type Backend struct {
	mu        sync.Mutex
	closed    bool
	elections map[string]*record
	releases  map[string]chan struct{} // closed, and gone, at the next; for those that listen
}

var _ election.Hinter = (*Backend)(nil)

// New returns an empty backend.
func New() *Backend { return &Backend{} }

// A record is one election. It outlives its holders, so that numbers never fall.
type record struct {
	owner   string
	digest  election.Digest
	number  int64 // the last number granted
	ttl     time.Duration
	until   time.Time // end of the lease; zero when resigned
	holdOff time.Time // end of the hold-off; zero for none
}

// held reports whether the lease is live.
func (r *record) held(now time.Time) bool { return r != nil && now.Before(r.until) }

// heldBy reports whether t is the live holder's token.
func (r *record) heldBy(t election.Token, now time.Time) bool {
	if !r.held(now) {
		return false
	}
	d := t.Digest()
	return subtle.ConstantTimeCompare(r.digest[:], d[:]) == 1
}

// begin checks that a call may go on and takes the lock; the caller unlocks. The
// time is read under the lock, so that calls see it in the order of their effects.
func (b *Backend) begin(ctx context.Context, doing, id string) (now time.Time, err error) {
	b.mu.Lock()
	err = ctx.Err()
	if err != nil {
		err = fmt.Errorf("%s %q: %w: %w", doing, id, election.ErrUnavailable, err)
	} else if b.closed {
		err = fmt.Errorf("%s %q: %w", doing, id, election.ErrClosed)
	}
	if err != nil {
		b.mu.Unlock()
	}
	return time.Now(), err
}

// Acquire implements election.Backend.
func (b *Backend) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	o, err := o.Normalize(id)
	if err != nil {
		return election.AcquireResult{}, err
	}
	now, err := b.begin(ctx, "acquiring", id)
	if err != nil {
		return election.AcquireResult{}, err
	}
	defer b.mu.Unlock()

	r := b.elections[id]
	switch {
	case r.heldBy(o.Token, now): // asked again: its own grant, with a fresh lease
		r.ttl = max(r.ttl, o.TTL) // a late request must not shorten what a later one was told
		r.until = now.Add(r.ttl)
	case r.held(now):
		return election.AcquireResult{
			Status: election.Busy, Reason: election.BusyHeld,
			Number: r.number, Owner: r.owner, Remaining: r.until.Sub(now),
		}, nil
	case r != nil && now.Before(r.holdOff):
		return election.AcquireResult{
			Status: election.Busy, Reason: election.BusyHoldOff, Remaining: r.holdOff.Sub(now),
		}, nil
	default:
		var last int64
		if r != nil {
			last = r.number
		}
		n, err := election.NextNumber(last, o.MinFencing, now)
		if err != nil {
			return election.AcquireResult{}, fmt.Errorf("acquiring %q: %w", id, err)
		}
		r = &record{owner: o.Owner, digest: o.Token.Digest(), number: n, ttl: o.TTL, until: now.Add(o.TTL)}
		if b.elections == nil {
			b.elections = make(map[string]*record)
		}
		b.elections[id] = r
	}
	return election.AcquireResult{
		Status: election.Acquired, Token: o.Token,
		Number: r.number, Owner: r.owner, Remaining: r.ttl,
	}, nil
}

// Renew implements election.Backend.
func (b *Backend) Renew(ctx context.Context, id string, t election.Token) (election.RenewResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.RenewResult{}, err
	}
	now, err := b.begin(ctx, "renewing", id)
	if err != nil {
		return election.RenewResult{}, err
	}
	defer b.mu.Unlock()

	r := b.elections[id]
	if !r.heldBy(t, now) {
		return election.RenewResult{Status: election.Lost}, nil
	}
	r.until = now.Add(r.ttl)
	return election.RenewResult{Status: election.Renewed, Number: r.number, Remaining: r.ttl}, nil
}

// Resign implements election.Backend.
func (b *Backend) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (election.ResignResult, error) {
	if err := o.Check(id, t); err != nil {
		return election.ResignResult{}, err
	}
	now, err := b.begin(ctx, "resigning", id)
	if err != nil {
		return election.ResignResult{}, err
	}
	defer b.mu.Unlock()

	r := b.elections[id]
	if !r.heldBy(t, now) {
		return election.ResignResult{Status: election.NotOwner}, nil
	}
	r.until, r.owner, r.digest = time.Time{}, "", election.Digest{}
	if o.HoldOff > 0 {
		r.holdOff = now.Add(o.HoldOff)
	}
	if released, ok := b.releases[id]; ok {
		close(released)
		delete(b.releases, id)
	}
	return election.ResignResult{Status: election.Released}, nil
}

// Hints implements election.Hinter. It tells of releases.
func (b *Backend) Hints(ctx context.Context, id string, hint func()) error {
	if err := election.CheckID(id); err != nil {
		return err
	}
	for {
		if _, err := b.begin(ctx, "listening for releases of", id); err != nil {
			return err
		}
		released, ok := b.releases[id]
		if !ok {
			if b.releases == nil {
				b.releases = make(map[string]chan struct{})
			}
			released = make(chan struct{})
			b.releases[id] = released
		}
		b.mu.Unlock()
		hint()
		select {
		case <-released:
		case <-ctx.Done():
			return fmt.Errorf("listening for releases of %q: %w", id, ctx.Err())
		}
	}
}

// Status implements election.Backend.
func (b *Backend) Status(ctx context.Context, id string) (election.StatusResult, error) {
	if err := election.CheckID(id); err != nil {
		return election.StatusResult{}, err
	}
	now, err := b.begin(ctx, "asking about", id)
	if err != nil {
		return election.StatusResult{}, err
	}
	defer b.mu.Unlock()

	r := b.elections[id]
	if r.held(now) {
		return election.StatusResult{
			Status: election.Held, Owner: r.owner, Number: r.number, Remaining: r.until.Sub(now),
		}, nil
	}
	s := election.StatusResult{Status: election.Vacant}
	if r != nil {
		s.Number = r.number
		s.HoldOff = max(0, r.holdOff.Sub(now))
	}
	return s, nil
}

// Validate implements election.Backend.
func (b *Backend) Validate(ctx context.Context, id string, t election.Token) (election.ValidateResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.ValidateResult{}, err
	}
	now, err := b.begin(ctx, "validating", id)
	if err != nil {
		return election.ValidateResult{}, err
	}
	defer b.mu.Unlock()

	r := b.elections[id]
	if !r.held(now) {
		return election.ValidateResult{Standing: election.StandingVacant}, nil
	}
	v := election.ValidateResult{
		Standing: election.StandingStale, Number: r.number, Owner: r.owner, Remaining: r.until.Sub(now),
	}
	if r.heldBy(t, now) {
		v.Standing = election.StandingCurrent
	}
	return v, nil
}

// Close makes every later call fail with election.ErrClosed.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, released := range b.releases {
		close(released)
	}
	b.releases = nil
	return nil
}
