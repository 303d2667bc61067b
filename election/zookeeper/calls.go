package zookeeper

import (
	"context"
	"fmt"

	"github.com/fenceproxy/fenceproxy/election"
)

// Acquire implements election.Backend. A grant takes three round trips, any other
// answer one.
func (b *Backend) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	o, err := o.Normalize(id)
	if err != nil {
		return election.AcquireResult{}, err
	}
	var r election.AcquireResult
	err = b.each(ctx, "acquiring", id, func(s *session) error {
		v, err := b.look(ctx, s, id)
		if err != nil {
			return err
		}
		own := v.exists && v.of(o.Token)
		var next record
		switch {
		case v.held() && own: // asked again (E11): its own grant, with a fresh lease, in this session
			next = v.record
			// Never a shorter one: this may be an earlier request, carried out late.
			next.TTL, next.Session, next.Renewals = max(v.TTL, o.TTL.Milliseconds()), s.name(), v.Renewals+1
		case v.held():
			r = election.AcquireResult{
				Status: election.Busy, Reason: election.BusyHeld, Number: v.Number, Owner: v.Owner, Remaining: v.left,
			}
			return nil
		case v.pending() && !own: // its holder's session is over, its holder's trust perhaps not
			r = election.AcquireResult{Status: election.Busy, Reason: election.BusyHoldOff, Remaining: v.left}
			return nil
		default:
			now, err := b.now(ctx, s)
			if err != nil {
				return err
			}
			n, err := election.NextNumber(v.Number, o.MinFencing, now)
			if err != nil {
				return err
			}
			next = record{
				Number: n, State: stateHeld, Owner: o.Owner, Digest: o.Token.Digest().String(),
				TTL: o.TTL.Milliseconds(), Session: s.name(),
			}
		}
		if err := b.write(ctx, s, id, v, next); err != nil {
			return err
		}
		r = election.AcquireResult{
			Status: election.Acquired, Token: o.Token, Number: next.Number, Owner: next.Owner, Remaining: next.ttl(),
		}
		return nil
	})
	if err != nil {
		return election.AcquireResult{}, err
	}
	return r, nil
}

// Renew implements election.Backend. The lease is in this session afterwards, whichever
// it was in before.
func (b *Backend) Renew(ctx context.Context, id string, t election.Token) (election.RenewResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.RenewResult{}, err
	}
	var r election.RenewResult
	err := b.each(ctx, "renewing", id, func(s *session) error {
		v, err := b.look(ctx, s, id)
		if err != nil {
			return err
		}
		if !v.held() || !v.of(t) {
			r = election.RenewResult{Status: election.Lost}
			return nil
		}
		next := v.record
		next.Session, next.Renewals = s.name(), v.Renewals+1
		if err := b.write(ctx, s, id, v, next); err != nil {
			return err
		}
		r = election.RenewResult{Status: election.Renewed, Number: next.Number, Remaining: next.ttl()}
		return nil
	})
	if err != nil {
		return election.RenewResult{}, err
	}
	return r, nil
}

// Resign implements election.Backend. ZooKeeper has nothing that expires by itself but
// sessions, and so cannot enforce a hold-off.
func (b *Backend) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (election.ResignResult, error) {
	if err := o.Check(id, t); err != nil {
		return election.ResignResult{}, err
	}
	if o.HoldOff > 0 {
		return election.ResignResult{}, fmt.Errorf("resigning %q: hold-off on zookeeper: %w", id, election.ErrUnsupportedOption)
	}
	r := election.ResignResult{Status: election.Released}
	var sent record // the release that was sent, and may have been carried out
	err := b.each(ctx, "resigning", id, func(s *session) error {
		v, err := b.look(ctx, s, id)
		switch {
		case err != nil:
			return err
		case sent != record{} && v.record == sent:
			return nil
		case !v.held() || !v.of(t):
			r.Status = election.NotOwner
			return nil
		}
		sent = v.record
		sent.State = stateReleased
		return b.write(ctx, s, id, v, sent)
	})
	if err != nil {
		return election.ResignResult{}, err
	}
	return r, nil
}

// Status implements election.Backend.
func (b *Backend) Status(ctx context.Context, id string) (election.StatusResult, error) {
	if err := election.CheckID(id); err != nil {
		return election.StatusResult{}, err
	}
	var v view
	err := b.each(ctx, "asking about", id, func(s *session) (err error) {
		v, err = b.look(ctx, s, id)
		return err
	})
	switch {
	case err != nil:
		return election.StatusResult{}, err
	case v.held():
		return election.StatusResult{Status: election.Held, Owner: v.Owner, Number: v.Number, Remaining: v.left}, nil
	case v.pending():
		return election.StatusResult{Status: election.Vacant, Number: v.Number, HoldOff: v.left}, nil
	}
	return election.StatusResult{Status: election.Vacant, Number: v.Number}, nil
}

// Validate implements election.Backend.
func (b *Backend) Validate(ctx context.Context, id string, t election.Token) (election.ValidateResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.ValidateResult{}, err
	}
	var v view
	err := b.each(ctx, "validating", id, func(s *session) (err error) {
		v, err = b.look(ctx, s, id)
		return err
	})
	if err != nil {
		return election.ValidateResult{}, err
	}
	if !v.held() {
		return election.ValidateResult{Standing: election.StandingVacant}, nil
	}
	r := election.ValidateResult{Standing: election.StandingStale, Number: v.Number, Owner: v.Owner, Remaining: v.left}
	if v.of(t) {
		r.Standing = election.StandingCurrent
	}
	return r, nil
}
