package guard

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// claim acquires the gate's lease for the binding and makes it live. It waits, as long as
// ctx and the permit last, while an older consumer's binding has the lease: the gate of
// that one finds its consumer stale, ends its binding and gives the lease back, or else
// the lease runs out. A second binding for the same token is refused.
func (b *Binding) claim(ctx context.Context) *Refusal {
	// INVARIANT: the trust is measured from before the question that was granted.
	asked, n, r := b.acquire(ctx)
	if r != nil {
		return r
	}
	// INVARIANT: asked after the lease was granted, answered current. A binding of a later
	// term, whose lease would come after this one, has not been before it either.
	if r := b.permit.k.again(ctx); r != nil {
		return r
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refusal != nil {
		return b.refusal
	}
	b.number = n
	b.until.Store(int64(asked + b.g.c.PermitFor - b.g.margin()))
	if b.left() <= 0 || !b.permit.Live() {
		return b.refuse(BackendUnknown, "the election backend took too long to answer", nil)
	}
	b.since = time.Now()
	close(b.live)
	return nil
}

// acquire asks for the lease until it is granted. It returns when it asked, since
// the gate's epoch, and the lease's number.
func (b *Binding) acquire(ctx context.Context) (time.Duration, int64, *Refusal) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(b.ctx, cancel)
	defer stop()
	o := election.AcquireOptions{Owner: leaseOwner(b.term), TTL: b.g.c.PermitFor, Token: b.token}
	b.asked.Store(true)
	var (
		last   error         // of the last question
		before time.Duration // when the lease in the way would have ended, as seen first
		way    election.AcquireResult
	)
	pause := minAsk
	for {
		asked := time.Since(b.g.epoch)
		res, err := b.ask(ctx, o)
		switch {
		case err != nil && election.Permanent(err):
			return 0, 0, b.refuse(BackendUnknown, "", err)
		case err != nil:
			last = err
			pause = min(2*pause, b.g.c.ValidateEvery)
		case res.Status == election.Acquired && res.Number > 0:
			return asked, res.Number, nil
		case res.Status != election.Busy:
			return 0, 0, b.refuse(BackendUnknown, "", fmt.Errorf("acquiring the gate's lease: unknown answer %d, number %d", res.Status, res.Number))
		default:
			last, way = nil, res
			number, owner := parseLeaseOwner(res.Owner)
			if number > b.term.Number {
				return 0, 0, b.permit.k.above(ctx, number, "a consumer with that number is bound")
			}
			// Who is bound with this very number has the same token. Where its lease is
			// renewed it lives; else it waits for its end, or its gate is dead.
			end := asked + res.Remaining
			if before == 0 {
				before = end
			}
			if number == b.term.Number && end-before > b.g.c.ValidateEvery/2 {
				return 0, 0, b.occupied(number, owner)
			}
			pause = min(b.g.c.ValidateEvery/4, max(res.Remaining, minAsk))
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
			continue
		case <-ctx.Done():
			t.Stop()
		}
		switch r := b.ended(); {
		case r != nil:
			return 0, 0, r
		case last != nil || way.Status != election.Busy:
			return 0, 0, b.refuse(BackendUnknown, "gave up waiting for the election backend's answer", last)
		default:
			number, owner := parseLeaseOwner(way.Owner)
			return 0, 0, b.occupiedStill(number, owner, context.Cause(ctx))
		}
	}
}

func (b *Binding) ask(ctx context.Context, o election.AcquireOptions) (election.AcquireResult, error) {
	ctx, cancel := context.WithTimeout(ctx, b.g.c.Timeout)
	defer cancel()
	res, err := b.g.backend.Acquire(ctx, b.lease, o)
	if err != nil {
		return res, fmt.Errorf("acquiring the gate's lease: %w", err)
	}
	return res, nil
}

// renew renews the lease until the binding has ended.
func (b *Binding) renew() {
	select {
	case <-b.live:
	case <-b.done:
		return
	}
	every := b.g.c.ValidateEvery
	t := time.NewTimer(min(every, b.left()/2))
	defer t.Stop()
	pause := minAsk
	for {
		select {
		case <-t.C:
		case <-b.done:
			return
		}
		left := b.left()
		if left <= 0 {
			b.expire()
			return
		}
		asked := time.Since(b.g.epoch)
		ctx, cancel := context.WithTimeout(b.ctx, min(b.g.c.Timeout, left))
		res, err := b.g.backend.Renew(ctx, b.lease, b.token)
		cancel()
		switch {
		case err != nil: // the outcome is unknown: the trust does not move, and ends by itself
			t.Reset(pause)
			pause = min(2*pause, every)
			continue
		case res.Status != election.Renewed || res.Number != b.number:
			b.end(b.lost("the gate's lease was lost; the election backend may have lost its data", nil))
			return
		}
		b.extend(asked + b.g.c.PermitFor - b.g.margin())
		pause = minAsk
		t.Reset(every)
	}
}

// extend moves the end of the trust in the lease.
//
// INVARIANT: what has ended, or has run out unseen, is never extended.
func (b *Binding) extend(until time.Duration) {
	if !b.Live() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refusal == nil {
		b.until.Store(max(b.until.Load(), int64(until)))
	}
}

// resign gives the lease back. Where that fails it runs out by itself.
func (b *Binding) resign() {
	if !b.asked.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.g.c.Timeout)
	defer cancel()
	if _, err := b.g.backend.Resign(ctx, b.lease, b.token, election.ResignOptions{}); err != nil {
		b.g.c.Log.Warn("the gate's lease was not given back, and has to run out",
			b.where("election", b.term.Election, "error", err.Error())...)
	}
}

// leaseOwner is the name under which a gate holds a lease: the consumer's number and
// owner, so that another gate can say who is in the way.
func leaseOwner(t Term) string {
	s := strconv.FormatInt(t.Number, 10) + "@" + t.Owner
	return s[:min(len(s), election.MaxOwnerLen)]
}

// parseLeaseOwner reads what leaseOwner wrote; number is zero for what it did not.
func parseLeaseOwner(s string) (number int64, owner string) {
	n, owner, ok := strings.Cut(s, "@")
	number, err := strconv.ParseInt(n, 10, 64)
	if !ok || err != nil || number <= 0 {
		return 0, s
	}
	return number, owner
}
