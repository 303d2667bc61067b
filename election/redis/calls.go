package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// A call is a script for one election.
type call struct {
	script *goredis.Script
	keys   []string
	args   []any
}

// on sends the call: EVALSHA, and EVAL where the server does not know the script yet.
// Not EVALSHA_RO or GET for the calls that only read: a cluster client may send those to
// a replica, which does not know the latest holder.
func (c call) on(ctx context.Context, server goredis.Scripter) *goredis.Cmd {
	return c.script.Run(ctx, server, c.keys, c.args...)
}

// ask makes a call. The token itself is never sent: scripts compare digests.
func (b *Backend) ask(ctx context.Context, doing, id string, c call) ([]any, error) {
	reply, err := b.server.run(ctx, c)
	switch {
	case err == nil:
		return reply, nil
	case errors.Is(err, election.ErrClosed), errors.Is(err, goredis.ErrClosed):
		return nil, fault.Closed(doing, id)
	case goredis.HasErrorPrefix(err, "WRONGTYPE"):
		return nil, fault.Corrupt(doing, id, err.Error())
	}
	return nil, fault.Unavailable(ctx, doing, id, err)
}

func leaseKey(id string) string { return "fenceproxy:{" + id + "}:lease" }

// all are the keys of an election.
func all(id string) []string {
	return []string{leaseKey(id), "fenceproxy:{" + id + "}:number", "fenceproxy:{" + id + "}:holdoff"}
}

// An answer is what a script that changes something returned.
type answer struct {
	outcome string
	number  int64
	owner   string
	left    time.Duration
}

// change asks a script that may change something.
func (b *Backend) change(ctx context.Context, doing, id string, s *goredis.Script, args ...any) (answer, error) {
	reply, err := b.ask(ctx, doing, id, call{s, all(id), args})
	if err != nil {
		return answer{}, err
	}
	a, ok := parseAnswer(reply)
	switch {
	case !ok:
		return answer{}, corrupt(doing, id)
	case a.outcome == "exhausted":
		return answer{}, fmt.Errorf("%s %q: %w", doing, id, election.ErrNumbersExhausted)
	}
	return a, nil
}

func corrupt(doing, id string) error {
	return fault.Corrupt(doing, id, "its keys do not hold what an election needs")
}

// parseAnswer reads a script's reply: an outcome alone, or with a number as a string,
// an owner and milliseconds.
func parseAnswer(reply []any) (a answer, ok bool) {
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
	left, ok3 := parseTTL(reply[3])
	n, err := parseNumber(number)
	if !ok1 || !ok2 || !ok3 || err != nil || n == 0 && owner != "" {
		return answer{}, false
	}
	a.number, a.owner, a.left = n, owner, left
	return a, true
}

// Acquire implements election.Backend.
func (b *Backend) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	o, err := o.Normalize(id)
	if err != nil {
		return election.AcquireResult{}, err
	}
	const doing = "acquiring"
	a, err := b.change(ctx, doing, id, b.scripts.acquire,
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
	a, err := b.change(ctx, doing, id, b.scripts.renew, t.Digest().String())
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
	a, err := b.change(ctx, doing, id, b.scripts.resign, t.Digest().String(), holdOff, releasedChannel(id))
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
	reply, err := b.ask(ctx, doing, id, call{script: b.scripts.status, keys: all(id)})
	switch {
	case err != nil:
		return election.StatusResult{}, err
	case len(reply) != 4:
		return election.StatusResult{}, corrupt(doing, id)
	}
	l, ok1 := parseLease(reply[0], reply[1])
	if ok1 && l.left > 0 {
		return election.StatusResult{Status: election.Held, Owner: l.owner, Number: l.number, Remaining: l.left}, nil
	}
	holdOff, ok2 := parseTTL(reply[2])
	r := election.StatusResult{Status: election.Vacant, HoldOff: holdOff}
	if reply[3] != nil {
		s, _ := reply[3].(string)
		r.Number, err = parseNumber(s)
	}
	if !ok1 || !ok2 || err != nil {
		return election.StatusResult{}, corrupt(doing, id)
	}
	return r, nil
}

// Validate implements election.Backend.
func (b *Backend) Validate(ctx context.Context, id string, t election.Token) (election.ValidateResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.ValidateResult{}, err
	}
	const doing = "validating"
	reply, err := b.ask(ctx, doing, id, call{script: b.scripts.validate, keys: []string{leaseKey(id)}})
	switch {
	case err != nil:
		return election.ValidateResult{}, err
	case len(reply) != 2:
		return election.ValidateResult{}, corrupt(doing, id)
	}
	l, ok := parseLease(reply[0], reply[1])
	switch {
	case !ok:
		return election.ValidateResult{}, corrupt(doing, id)
	case l.left == 0:
		return election.ValidateResult{Standing: election.StandingVacant}, nil
	}
	r := election.ValidateResult{Standing: election.StandingStale, Number: l.number, Owner: l.owner, Remaining: l.left}
	if l.digest == t.Digest() {
		r.Standing = election.StandingCurrent
	}
	return r, nil
}

// unknown is the error of an outcome that no script of ours returns.
func unknown(doing, id string, a answer) error {
	return fault.Corrupt(doing, id, fmt.Sprintf("the script answered %q", a.outcome))
}
