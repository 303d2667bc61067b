// Package kubernetes keeps elections in a Kubernetes API server, one Lease object
// of coordination.k8s.io/v1 for each election.
//
// It promises that every change is a single write which the API server makes only if
// the Lease is still the very one that the decision was made on; that no clock of any
// machine decides when a lease ends; and that a released or expired election keeps its
// Lease, and with it the number. It does not promise that another backend, or this one
// after a restart, takes an abandoned lease over at once: see below.
//
// # When a lease ends
//
// An API server does not expire a Lease, and the times written in it are the clocks of
// others. So a backend remembers, for each election, the last write that it saw and
// when it first saw it, by its own monotonic clock. The lease ends one TTL after that:
// never earlier than one TTL after the write itself, so that a holder which counts
// from before its renewal has always stopped. The price is that a backend which has
// never seen the election takes its lease for live, for one TTL from its first look,
// even if the holder is long gone. Until then Acquire is busy, and Validate and Status
// answer as for a live lease. What Validate says is no less true for that: nobody
// else holds the election, and its number is still the highest.
//
// # What is stored
//
// In the Lease: spec.holderIdentity is the owner, empty when nobody holds it;
// spec.leaseDurationSeconds, acquireTime, renewTime and leaseTransitions are for
// people to read; annotations hold what decides:
//
//	fenceproxy.github.io/election          the election id
//	fenceproxy.github.io/fencing-number    the last number granted
//	fenceproxy.github.io/token-digest      SHA-256 of the holder's token; absent when released
//	fenceproxy.github.io/ttl-milliseconds  the TTL; absent when released
//	fenceproxy.github.io/write             a random mark, new with each write
//
// A Lease of that name without them belongs to somebody else, and is left alone.
package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// A Backend keeps elections as Leases in one namespace.
type Backend struct {
	client    rest.Interface
	namespace string
	conns     *conns
	seen      *seen
	wall      func() time.Time // the local wall clock; tests set others

	// mu guards closed, ends, and that no call begins after Close.
	mu     sync.Mutex
	closed bool
	ends   map[*call]context.CancelCauseFunc
	calls  sync.WaitGroup
}

var _ election.Hinter = (*Backend)(nil)

// A call is one call of the five, for one election.
type call struct {
	*Backend
	doing, id string
	lease     string // the Lease's name
	tries     int
}

// begin starts a call, which the caller ends with end. The context that it returns ends
// with the one given and with Close.
func (b *Backend) begin(ctx context.Context, doing, id string) (context.Context, *call, error) {
	c := &call{Backend: b, doing: doing, id: id, lease: leaseName(id)}
	// client-go logs to a logger of the whole process unless the context has another.
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx, logr.Discard()))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		cancel(nil)
		return ctx, nil, fault.Closed(doing, id)
	}
	if ended := fault.Ended(ctx); ended != nil {
		cancel(nil)
		return ctx, nil, fault.Unavailable(ctx, doing, id, nil)
	}
	b.ends[c] = cancel
	b.calls.Add(1)
	return ctx, c, nil
}

func (c *call) end() {
	c.mu.Lock()
	cancel := c.ends[c]
	delete(c.ends, c)
	c.mu.Unlock()
	cancel(nil)
	c.calls.Done()
}

// Close ends the calls under way, waits for them, and closes the connections.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	for _, cancel := range b.ends {
		cancel(election.ErrClosed)
	}
	b.mu.Unlock()
	b.calls.Wait()
	b.conns.close()
	return nil
}

// Acquire implements election.Backend.
func (b *Backend) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	o, err := o.Normalize(id)
	if err != nil {
		return election.AcquireResult{}, err
	}
	ctx, c, err := b.begin(ctx, "acquiring", id)
	if err != nil {
		return election.AcquireResult{}, err
	}
	defer c.end()
	for {
		s, err := c.read(ctx)
		if err != nil {
			return election.AcquireResult{}, err
		}
		next := s.record
		switch {
		case s.heldBy(o.Token): // asked again: its own grant, with a fresh lease
			next.ttl = max(next.ttl, o.TTL) // an earlier request that comes late shortens nothing
		case s.live():
			return election.AcquireResult{
				Status: election.Busy, Reason: election.BusyHeld,
				Number: s.number, Owner: s.owner, Remaining: s.left(),
			}, nil
		default:
			// Also above what this backend saw of a Lease that is gone now.
			n, err := election.NextNumber(max(s.number, s.highest), o.MinFencing, s.clock)
			if err != nil {
				return election.AcquireResult{}, fmt.Errorf("acquiring %q: %w", id, err)
			}
			next = record{number: n, held: true, owner: o.Owner, digest: o.Token.Digest(), ttl: o.TTL}
		}
		if done, err := c.write(ctx, s, next); err != nil {
			return election.AcquireResult{}, err
		} else if done {
			return election.AcquireResult{
				Status: election.Acquired, Token: o.Token,
				Number: next.number, Owner: next.owner, Remaining: next.ttl,
			}, nil
		}
	}
}

// Renew implements election.Backend.
func (b *Backend) Renew(ctx context.Context, id string, t election.Token) (election.RenewResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.RenewResult{}, err
	}
	ctx, c, err := b.begin(ctx, "renewing", id)
	if err != nil {
		return election.RenewResult{}, err
	}
	defer c.end()
	for {
		s, err := c.read(ctx)
		if err != nil {
			return election.RenewResult{}, err
		}
		if !s.heldBy(t) {
			return election.RenewResult{Status: election.Lost}, nil
		}
		if done, err := c.write(ctx, s, s.record); err != nil {
			return election.RenewResult{}, err
		} else if done {
			return election.RenewResult{Status: election.Renewed, Number: s.number, Remaining: s.ttl}, nil
		}
	}
}

// Resign implements election.Backend. It refuses a hold-off: nothing in a Lease would
// keep others from claiming the election until it has passed.
func (b *Backend) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (election.ResignResult, error) {
	if err := o.Check(id, t); err != nil {
		return election.ResignResult{}, err
	}
	if o.HoldOff > 0 {
		return election.ResignResult{}, fmt.Errorf("resigning %q: hold-off: %w", id, election.ErrUnsupportedOption)
	}
	ctx, c, err := b.begin(ctx, "resigning", id)
	if err != nil {
		return election.ResignResult{}, err
	}
	defer c.end()
	for {
		s, err := c.read(ctx)
		if err != nil {
			return election.ResignResult{}, err
		}
		if !s.heldBy(t) {
			return election.ResignResult{Status: election.NotOwner}, nil
		}
		if done, err := c.write(ctx, s, record{number: s.number}); err != nil {
			return election.ResignResult{}, err
		} else if done {
			return election.ResignResult{Status: election.Released}, nil
		}
	}
}

// Status implements election.Backend.
func (b *Backend) Status(ctx context.Context, id string) (election.StatusResult, error) {
	if err := election.CheckID(id); err != nil {
		return election.StatusResult{}, err
	}
	ctx, c, err := b.begin(ctx, "asking about", id)
	if err != nil {
		return election.StatusResult{}, err
	}
	defer c.end()
	s, err := c.read(ctx)
	if err != nil {
		return election.StatusResult{}, err
	}
	if !s.live() {
		return election.StatusResult{Status: election.Vacant, Number: s.number}, nil
	}
	return election.StatusResult{Status: election.Held, Owner: s.owner, Number: s.number, Remaining: s.left()}, nil
}

// Validate implements election.Backend.
func (b *Backend) Validate(ctx context.Context, id string, t election.Token) (election.ValidateResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.ValidateResult{}, err
	}
	ctx, c, err := b.begin(ctx, "validating", id)
	if err != nil {
		return election.ValidateResult{}, err
	}
	defer c.end()
	s, err := c.read(ctx)
	if err != nil {
		return election.ValidateResult{}, err
	}
	if !s.live() {
		return election.ValidateResult{Standing: election.StandingVacant}, nil
	}
	v := election.ValidateResult{
		Standing: election.StandingStale, Number: s.number, Owner: s.owner, Remaining: s.left(),
	}
	if s.heldBy(t) {
		v.Standing = election.StandingCurrent
	}
	return v, nil
}
