package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// advanceOnDemand makes the advances that sessions wait for, until ctx is done.
func (k *keeper) advanceOnDemand(ctx context.Context) {
	for {
		var f *flight
		select {
		case f = <-k.wanted:
		case <-ctx.Done():
			return
		}
		bounded, cancel := context.WithTimeout(ctx, k.g.c.AdvanceTimeout)
		rec, refusal := k.advance(bounded)
		cancel()
		k.mu.Lock()
		k.flight = nil
		if refusal == nil {
			k.record = rec
		}
		f.refusal = refusal
		k.mu.Unlock()
		close(f.done)
	}
}

// advance brings the fence to the keeper's term, severed, and returns that record.
//
// Why no older term can bind or write once it returns:
//
//   - A raise makes every older record disappear for good, since each raise has a
//     random id of its own and a bind compares whole records. So after the raise
//     nobody binds to an older term, and the sever ends all who did before.
//   - The fence may have been lost in between and raised by a paused proxy of an
//     older term. Hence the question after every raise, and whenever a raise is
//     found: it was current after the raise, so each later term raises after it,
//     and makes this record disappear too.
//   - The record is marked severed only if it is still that very raise.
func (k *keeper) advance(ctx context.Context) (Record, *Refusal) {
	k.mu.Lock()
	t := k.term
	k.mu.Unlock()
	for try := 0; ; try++ {
		if try > 1 {
			// Somebody else keeps changing the fence: let him come to an end.
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return Record{}, k.unavailable("raising the fence", context.Cause(ctx))
			}
		}
		rec, refusal := k.raise(ctx, t)
		if errors.Is(refusal.cause(), ErrConflict) {
			continue
		}
		if refusal != nil || rec.State == Severed {
			return rec, refusal
		}
		// INVARIANT: asked after the raise was made or read, answered current.
		if refusal := k.again(ctx); refusal != nil {
			return Record{}, refusal
		}
		if refusal := k.sever(ctx, t); refusal != nil {
			if errors.Is(refusal.cause(), ErrConflict) {
				continue
			}
			return Record{}, refusal
		}
		severed := rec
		severed.State = Severed
		// INVARIANT: the mark goes on exactly the raise that was severed.
		err := k.g.fence.Swap(ctx, t.Election, rec, severed)
		if err == nil {
			k.g.c.Log.Info("fence advanced", "election", t.Election, "number", t.Number, "owner", t.Owner)
			return severed, nil
		}
		if !errors.Is(err, ErrConflict) {
			return Record{}, k.unavailable("marking the fence as severed", err)
		}
	}
}

// raise returns the fence standing at the term, raised by us where it was behind.
func (k *keeper) raise(ctx context.Context, t Term) (Record, *Refusal) {
	rec, err := k.g.fence.Read(ctx, t.Election)
	switch {
	case err != nil:
		return Record{}, k.unavailable("reading the fence", err)
	case rec.Highest > t.Number:
		return Record{}, k.above(ctx, rec.Highest, "")
	case rec.Highest == t.Number && rec.Holder != t.Digest:
		// INVARIANT: one number never has two holders.
		if refusal := k.again(ctx); refusal != nil {
			return Record{}, refusal
		}
		r := k.refuse(FenceConflict, "", nil)
		r.Rules = rec.Highest
		return Record{}, r
	case rec.Highest == t.Number:
		return rec, nil
	}
	raised := Record{Highest: t.Number, Holder: t.Digest, State: Raised}
	rand.Read(raised.Raise[:])
	if err := k.g.fence.Swap(ctx, t.Election, rec, raised); err != nil {
		return Record{}, k.unavailable("raising the fence", err)
	}
	k.g.c.Log.Info("fence raised", "election", t.Election, "number", t.Number, "from", rec.Highest)
	return raised, nil
}

func (k *keeper) sever(ctx context.Context, t Term) *Refusal {
	start := time.Now()
	err := k.g.fence.Sever(ctx, t)
	var above *BoundAboveError
	switch {
	case err == nil:
		k.g.c.Log.Info("older connections severed", "election", t.Election, "number", t.Number, "took", time.Since(start))
		return nil
	case errors.As(err, &above):
		return k.above(ctx, above.Number, "a connection is still bound to that number")
	}
	return k.unavailable("severing older connections", err)
}

// above is the refusal when the resource has seen a higher number than the token's: the
// token is stale, or else the election backend lost its counter.
func (k *keeper) above(ctx context.Context, rules int64, detail string) *Refusal {
	if refusal := k.again(ctx); refusal != nil {
		if refusal.Rules == 0 {
			c := *refusal // shared with others
			c.Rules = rules
			return &c
		}
		return refusal
	}
	r := k.refuse(FenceRegressed, detail, nil)
	r.Rules = rules
	return r
}

// again asks once more whether the token is current, and refuses if that is not the
// answer.
func (k *keeper) again(ctx context.Context) *Refusal {
	if err := k.ask(ctx, k.g.c.Timeout); err != nil {
		return k.refuse(BackendUnknown, "", err)
	}
	return k.ended()
}

func (k *keeper) unavailable(doing string, err error) *Refusal {
	return k.refuse(FenceUnavailable, "", fmt.Errorf("%s: %w", doing, err))
}

// cause is the underlying failure of a refusal that may be nil.
func (r *Refusal) cause() error {
	if r == nil {
		return nil
	}
	return r.Err
}
