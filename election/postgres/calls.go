package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// SQLSTATEs that are handled.
const (
	numericOverflow      = "22003"
	serializationFailure = "40001"
	deadlock             = "40P01"
	undefinedColumn      = "42703"
	undefinedTable       = "42P01"
	undefinedSchema      = "3F000"

	insufficientPrivilege = "42501"
	limitExceeded         = "54000" // the queue of notifications is full, among others
	undefinedFunction     = "42883"

	unknownStatement   = "26000" // a prepared one
	duplicateStatement = "42P05"
	notSupported       = "0A000" // "cached plan must not change result type", among others
)

// maxTries bounds how often a call is begun anew because another was faster. Each time
// somebody else has got on, so that many in a row mean that something is wrong.
const maxTries = 100

// sqlState returns the SQLSTATE of a server's error, whatever the driver.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// row runs one statement.
func (b *Backend) row(ctx context.Context, doing, id, query string, args []any, into ...any) error {
	return b.run(ctx, doing, id, func() error { return b.db.row(ctx, query, args, into...) })
}

// run runs one statement, by f. Where the server undid it in favour of another, as it does
// at higher isolation levels, it runs it again.
func (b *Backend) run(ctx context.Context, doing, id string, f func() error) error {
	for try := 1; ; try++ {
		if b.closed.Load() {
			return fault.Closed(doing, id)
		}
		if err := ctx.Err(); err != nil {
			return fault.Unavailable(ctx, doing, id, err)
		}
		err := f()
		if err == nil || errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if s := sqlState(err); (s == serializationFailure || s == deadlock) && try < maxTries {
			continue
		}
		return b.failed(ctx, doing, id, err)
	}
}

// failed words the error of a statement.
func (b *Backend) failed(ctx context.Context, doing, id string, err error) error {
	if b.closed.Load() {
		return fault.Closed(doing, id)
	}
	switch sqlState(err) {
	case numericOverflow:
		return fmt.Errorf("%s %q: %w", doing, id, election.ErrNumbersExhausted)
	case undefinedTable, undefinedSchema, undefinedColumn:
		return fault.Unavailable(ctx, doing, id, fmt.Errorf("%w in schema %q: run fenceproxy install --elections: %w",
			ErrNotInstalled, b.queries.schema, err))
	case insufficientPrivilege:
		return fault.Unavailable(ctx, doing, id, fmt.Errorf("the role lacks rights in schema %q: run fenceproxy install --elections --grant ROLE: %w",
			b.queries.schema, err))
	}
	return fault.Unavailable(ctx, doing, id, err)
}

// Acquire implements election.Backend.
func (b *Backend) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	o, err := o.Normalize(id)
	if err != nil {
		return election.AcquireResult{}, err
	}
	const doing = "acquiring"
	digest := o.Token.Digest()
	args := []any{id, o.Owner, digest[:], o.TTL.Milliseconds(), o.MinFencing}
	for range maxTries {
		var granted bool
		var owner string
		var number, left int64
		if err := b.row(ctx, doing, id, b.queries.acquire, args, &granted, &owner, &number, &left); err != nil {
			return election.AcquireResult{}, err
		}
		r := election.AcquireResult{Number: number, Owner: owner, Remaining: micros(left)}
		switch {
		case granted && left > 0:
			r.Status, r.Token = election.Acquired, o.Token
			return r, nil
		case left > 0:
			r.Status, r.Reason = election.Busy, election.BusyHeld
			return r, nil
		}
		// Another was faster than this statement, and it saw only what was before.
	}
	return election.AcquireResult{}, fault.Unavailable(ctx, doing, id, fmt.Errorf("others were faster %d times", maxTries))
}

// Renew implements election.Backend.
func (b *Backend) Renew(ctx context.Context, id string, t election.Token) (election.RenewResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.RenewResult{}, err
	}
	digest := t.Digest()
	var number, left int64
	err := b.row(ctx, "renewing", id, b.queries.renew, []any{id, digest[:]}, &number, &left)
	switch {
	case err != nil:
		return election.RenewResult{}, err
	case number == 0:
		return election.RenewResult{Status: election.Lost}, nil
	}
	return election.RenewResult{Status: election.Renewed, Number: number, Remaining: micros(left)}, nil
}

// Resign implements election.Backend. It refuses a hold-off.
func (b *Backend) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (election.ResignResult, error) {
	if err := o.Check(id, t); err != nil {
		return election.ResignResult{}, err
	}
	const doing = "resigning"
	if o.HoldOff > 0 {
		return election.ResignResult{}, fmt.Errorf("%s %q: hold-off: %w", doing, id, election.ErrUnsupportedOption)
	}
	digest := t.Digest()
	var released bool
	args := []any{id, digest[:]}
	err := b.row(ctx, doing, id, b.queries.resign, args, &released)
	if err != nil && unnotified(err) {
		err = b.row(ctx, doing, id, b.queries.resignQuietly, args, &released)
	}
	if err != nil {
		return election.ResignResult{}, err
	}
	if !released {
		return election.ResignResult{Status: election.NotOwner}, nil
	}
	return election.ResignResult{Status: election.Released}, nil
}

// unnotified reports whether a release was undone because it may not, or cannot, be notified.
//
// INVARIANT: a release does not fail for want of its hint.
func unnotified(err error) bool {
	switch sqlState(err) {
	case insufficientPrivilege, limitExceeded, undefinedFunction, notSupported:
		return true
	}
	return false
}

// Status implements election.Backend.
func (b *Backend) Status(ctx context.Context, id string) (election.StatusResult, error) {
	if err := election.CheckID(id); err != nil {
		return election.StatusResult{}, err
	}
	r, err := b.read(ctx, "asking about", id)
	switch {
	case err != nil:
		return election.StatusResult{}, err
	case r.left == 0:
		return election.StatusResult{Status: election.Vacant, Number: r.number}, nil
	}
	return election.StatusResult{Status: election.Held, Owner: r.owner, Number: r.number, Remaining: r.left}, nil
}

// Validate implements election.Backend.
func (b *Backend) Validate(ctx context.Context, id string, t election.Token) (election.ValidateResult, error) {
	if err := election.CheckIDToken(id, t); err != nil {
		return election.ValidateResult{}, err
	}
	r, err := b.read(ctx, "validating", id)
	switch {
	case err != nil:
		return election.ValidateResult{}, err
	case r.left == 0:
		return election.ValidateResult{Standing: election.StandingVacant}, nil
	}
	v := election.ValidateResult{Standing: election.StandingStale, Number: r.number, Owner: r.owner, Remaining: r.left}
	if r.digest == t.Digest() {
		v.Standing = election.StandingCurrent
	}
	return v, nil
}

// A reading is what an election's row says.
type reading struct {
	number int64 // 0 when there is no row
	owner  string
	digest election.Digest
	left   time.Duration // 0 when vacant
}

// read reads an election's row, on a primary only: a standby may not have heard of a
// takeover.
func (b *Backend) read(ctx context.Context, doing, id string) (reading, error) {
	var standby bool
	var number *int64
	var owner *string
	var digest []byte
	var left *float64
	one := func(query string) error {
		return b.run(ctx, doing, id, func() error {
			return b.db.read(ctx, query, []any{id}, &standby, &number, &owner, &digest, &left)
		})
	}
	err := one(b.queries.read)
	if errors.Is(err, sql.ErrNoRows) {
		err = one(b.queries.readAlways)
	}
	switch {
	case err != nil:
		return reading{}, err
	case standby:
		return reading{}, fault.Unavailable(ctx, doing, id, errors.New("the server is a standby"))
	case number == nil:
		return reading{}, nil
	}
	r := reading{number: *number}
	if owner == nil || left == nil {
		return r, nil
	}
	if copy(r.digest[:], digest) != len(r.digest) || *left > election.MaxTTL.Seconds()*2 {
		return reading{}, fault.Corrupt(doing, id, "its row is none of ours")
	}
	if us := int64(*left * 1e6); us > 0 {
		r.owner, r.left = *owner, micros(us)
	}
	return r, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
