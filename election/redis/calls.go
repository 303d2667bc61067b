package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// An answer is what a script returned.
type answer struct {
	outcome string
	number  int64
	owner   string
	left    time.Duration
}

// ask runs one script for one election and reads its answer. The token itself is
// never sent: scripts compare digests.
func (b *Backend) ask(ctx context.Context, doing, id string, s *goredis.Script, args ...any) (answer, error) {
	keys := []string{
		"fenceproxy:{" + id + "}:lease",
		"fenceproxy:{" + id + "}:number",
		"fenceproxy:{" + id + "}:holdoff",
	}
	// EVALSHA, and EVAL where the server does not know the script yet. Not EVALSHA_RO
	// or HMGET for the calls that only read: a cluster client may send those to a
	// replica, which does not know the latest holder.
	reply, err := b.do(ctx, func() *goredis.Cmd { return s.Run(ctx, b.client, keys, args...) })
	switch {
	case err == nil:
	case errors.Is(err, election.ErrClosed), errors.Is(err, goredis.ErrClosed):
		return answer{}, fault.Closed(doing, id)
	case goredis.HasErrorPrefix(err, "WRONGTYPE"):
		return answer{}, fault.Corrupt(doing, id, err.Error())
	default:
		return answer{}, fault.Unavailable(ctx, doing, id, err)
	}
	a, ok := parse(reply)
	switch {
	case !ok:
		return answer{}, fault.Corrupt(doing, id, "its keys do not hold what an election needs")
	case a.outcome == "exhausted":
		return answer{}, fmt.Errorf("%s %q: %w", doing, id, election.ErrNumbersExhausted)
	}
	return a, nil
}

// parse reads a script's reply: an outcome alone, or with a number as a string, an
// owner and milliseconds.
func parse(reply []any) (a answer, ok bool) {
	if len(reply) == 0 {
		return answer{}, false
	}
	if a.outcome, ok = reply[0].(string); !ok || a.outcome == "corrupt" || len(reply) == 1 {
		return a, ok && a.outcome != "corrupt"
	}
	if len(reply) != 4 {
		return answer{}, false
	}
	number, ok1 := reply[1].(string)
	owner, ok2 := reply[2].(string)
	ms, ok3 := reply[3].(int64)
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok1 || !ok2 || !ok3 || err != nil || n < 0 || n == 0 && owner != "" {
		return answer{}, false
	}
	a.number, a.owner, a.left = n, owner, time.Duration(ms)*time.Millisecond
	return a, true
}

// Acquire implements election.Backend.
func (b *Backend) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	o, err := o.Normalize(id)
	if err != nil {
		return election.AcquireResult{}, err
	}
	const doing = "acquiring"
	a, err := b.ask(ctx, doing, id, b.scripts.acquire,
		o.Token.Digest().String(), o.Owner, o.TTL.Milliseconds(), o.MinFencing)
	if err != nil {
		return election.AcquireResult{}, err
	}
	r := election.AcquireResult{Number: a.number, Owner: a.owner, Remaining: a.left}
	switch a.outcome {
	case "acquired":
		r.Status, r.Token = election.Acquired, o.Token
	case "busy":
		r.Status, r.Reason = election.Busy, election.BusyHeld
	case "hold-off":
		r.Status, r.Reason = election.Busy, election.BusyHoldOff
	default:
		return election.AcquireResult{}, unknown(doing, id, a)
	}
	return r, nil
}

// Renew implements election.Backend.
func (b *Backend) Renew(ctx context.Context, id string, t election.Token) (election.RenewResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.RenewResult{}, err
	}
	const doing = "renewing"
	a, err := b.ask(ctx, doing, id, b.scripts.renew, t.Digest().String())
	if err != nil {
		return election.RenewResult{}, err
	}
	switch a.outcome {
	case "renewed":
		return election.RenewResult{Status: election.Renewed, Number: a.number, Remaining: a.left}, nil
	case "lost":
		return election.RenewResult{Status: election.Lost}, nil
	}
	return election.RenewResult{}, unknown(doing, id, a)
}

// Resign implements election.Backend.
func (b *Backend) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (election.ResignResult, error) {
	if err := o.Check(id, t); err != nil {
		return election.ResignResult{}, err
	}
	const doing = "resigning"
	holdOff := (o.HoldOff + time.Millisecond - 1).Milliseconds() // never shorter than asked
	a, err := b.ask(ctx, doing, id, b.scripts.resign, t.Digest().String(), holdOff)
	if err != nil {
		return election.ResignResult{}, err
	}
	switch a.outcome {
	case "released":
		return election.ResignResult{Status: election.Released}, nil
	case "not-owner":
		return election.ResignResult{Status: election.NotOwner}, nil
	}
	return election.ResignResult{}, unknown(doing, id, a)
}

// Status implements election.Backend.
func (b *Backend) Status(ctx context.Context, id string) (election.StatusResult, error) {
	if err := election.CheckID(id); err != nil {
		return election.StatusResult{}, err
	}
	const doing = "asking about"
	a, err := b.ask(ctx, doing, id, b.scripts.status)
	if err != nil {
		return election.StatusResult{}, err
	}
	switch a.outcome {
	case "held":
		return election.StatusResult{Status: election.Held, Owner: a.owner, Number: a.number, Remaining: a.left}, nil
	case "vacant":
		return election.StatusResult{Status: election.Vacant, Number: a.number, HoldOff: a.left}, nil
	}
	return election.StatusResult{}, unknown(doing, id, a)
}

// Validate implements election.Backend.
func (b *Backend) Validate(ctx context.Context, id string, t election.Token) (election.ValidateResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.ValidateResult{}, err
	}
	const doing = "validating"
	a, err := b.ask(ctx, doing, id, b.scripts.validate, t.Digest().String())
	if err != nil {
		return election.ValidateResult{}, err
	}
	r := election.ValidateResult{Number: a.number, Owner: a.owner, Remaining: a.left}
	switch a.outcome {
	case "current":
		r.Standing = election.StandingCurrent
	case "stale":
		r.Standing = election.StandingStale
	case "vacant":
		r.Standing = election.StandingVacant
	default:
		return election.ValidateResult{}, unknown(doing, id, a)
	}
	return r, nil
}

// unknown is the error of an outcome that no script of ours returns.
func unknown(doing, id string, a answer) error {
	return fault.Corrupt(doing, id, fmt.Sprintf("the script answered %q", a.outcome))
}
