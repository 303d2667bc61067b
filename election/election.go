// Package election keeps named leaderships on a backend: one holder at a
// time, a lease that must be renewed, and a fencing number that strictly rises
// with every acquisition.
//
// It promises that no two acquisitions of one election ever carry the same
// fencing number and that a later one carries a higher number. It does not
// promise that a holder whose lease ran out has noticed it: only a resource that
// refuses lower fencing numbers can stop that holder's late writes. Package guard
// is that resource's gatekeeper.
//
// Every call has a typed outcome. An outcome that the backend stated (busy, lost,
// not-owner, stale, vacant) is a result, never an error. An error means that the
// outcome is unknown: the backend was out of reach, refused the request, or the
// arguments were invalid.
//
// # The elector
//
// An Elector campaigns in the background and runs callbacks while it leads. One
// goroutine makes all its calls, one after the other.
//
//	               acquired              its context ended, or a callback panicked
//	campaigning ------------> leading ----------------------------------------> winding down
//	     ^                       |                                               |        |
//	     |                       | lost, or trust ended     lost, or trust ended |        |
//	     |                       v                                               |        |
//	     |<------------------ stopping <-----------------------------------------+        |
//	     |  callbacks returned                                         callbacks returned |
//	     |                                                                                v
//	     |<------------------------------------------------------------------------- releasing
//	     |
//	     +--> ended, once the elector's context has
//
// Leading and winding down renew the lease; the context of the callbacks is live in
// leading alone. So a leader that is told to stop gives its leadership up when its last
// callback has returned, and not before: the next leader never runs beside it. Where
// the trust is gone, callbacks are waited for too, but somebody else may lead by now.
//
// A candidate asks again and again, by the clock. Where the backend gives hints (Hinter), it
// also asks soon after the leader has resigned. Nothing else rests on a hint.
//
// How long a lease is trusted:
//
//	trusted until = asked at + TTL - margin
//
// where asked at is taken from the monotonic clock before the call that acquired or
// renewed. The backend counts the lease from when it has the request, which is later;
// so the trust ends at least a margin before the lease does, however long the answer
// took. A failed renewal moves nothing and is tried again until the trust ends; an
// answer that says lost, or another number than the term's, ends it at once. The clock
// decides, not a call: the context ends on time with a call blocked.
//
// The margin pays for clocks that run at different speeds, for timers that fire late,
// and for callbacks that take a moment to return. It cannot pay for a process that is
// stopped and wakes after its lease, nor for a machine whose monotonic clock stands
// still while it sleeps. That process has the number of its term to show, and a fence
// refuses it.
package election

import (
	"context"
	"time"
)

// DefaultTTL is how long a lease lasts unrenewed when AcquireOptions.TTL is zero.
const DefaultTTL = 15 * time.Second

// Limits of what callers may ask for.
const (
	// MinTTL is the shortest lease accepted: shorter ones are within the noise of
	// schedulers and networks.
	MinTTL = 100 * time.Millisecond
	// MaxTTL is the longest lease, and the longest hold-off, accepted.
	MaxTTL = 24 * time.Hour
)

// A Backend keeps elections. All methods are safe for concurrent use, honour the
// context, and may be called for any election id at any time.
//
// Implementations take the fencing number in the same atomic step as the
// acquisition, as NextNumber defines it, and store only a token's digest. One that can tell
// candidates of a release is a Hinter as well.
type Backend interface {
	// Acquire asks for the leadership of the election. It reports Acquired with a
	// token and a fencing number, or Busy with who holds it and for how long.
	// Asking again with the token of a live grant of one's own (AcquireOptions.Token)
	// reports that grant, with its own number and a fresh lease, so that a lost
	// reply costs nothing. The lease then lasts the longest TTL that was asked for with
	// the token: a request that arrives late shortens nothing that a later one was told.
	Acquire(ctx context.Context, id string, o AcquireOptions) (AcquireResult, error)

	// Renew extends the holder's lease by the TTL it was acquired with and
	// reports Renewed with the holder's number, or Lost when the token is not the
	// live holder's. Lost changes nothing. Any error leaves the outcome unknown.
	Renew(ctx context.Context, id string, t Token) (RenewResult, error)

	// Resign gives the leadership up and reports Released, or NotOwner when the
	// token is not the live holder's. A backend that cannot enforce
	// ResignOptions.HoldOff returns ErrUnsupportedOption before it changes anything.
	Resign(ctx context.Context, id string, t Token, o ResignOptions) (ResignResult, error)

	// Status describes the election for a human. It never returns the token and
	// cannot answer whether a token is the holder's: that is Validate.
	Status(ctx context.Context, id string) (StatusResult, error)

	// Validate answers one question, for anyone: is this token the live holder's?
	// It is read-only, idempotent and one round trip.
	Validate(ctx context.Context, id string, t Token) (ValidateResult, error)

	// Close releases what the backend itself opened. It gives up no leadership.
	Close() error
}

// AcquireOptions are the options of Acquire; the zero value is useful.
type AcquireOptions struct {
	// Owner names the candidate to humans; empty means DefaultOwner().
	Owner string
	// TTL is how long the lease lasts unrenewed; zero means DefaultTTL. Backends
	// keep it in milliseconds.
	TTL time.Duration
	// Token is the token that the grant will carry; the zero Token means a new
	// random one. Set it to ask again after an error without knowing whether the
	// first request was granted.
	Token Token
	// MinFencing is a floor: the number granted is at least this. Zero means no
	// floor. It does not apply to a repeated Acquire that finds its own grant.
	MinFencing int64
}

// ResignOptions are the options of Resign; the zero value releases at once.
type ResignOptions struct {
	// HoldOff keeps the election unclaimable for this long after the release,
	// atomically with it; zero means none. Only redis, valkey and memory enforce it.
	HoldOff time.Duration
}

// AcquireStatus is the outcome of Acquire.
type AcquireStatus uint8

// The outcomes of Acquire. The zero value is none of them.
const (
	Acquired AcquireStatus = iota + 1
	Busy
)

// BusyReason says why Acquire was busy.
type BusyReason uint8

// The reasons of a busy Acquire.
const (
	// BusyHeld means that somebody holds the election.
	BusyHeld BusyReason = iota + 1
	// BusyHoldOff means that its last holder resigned with a hold-off that has
	// not run out.
	BusyHoldOff
)

// AcquireResult is what Acquire reports.
type AcquireResult struct {
	Status AcquireStatus
	// Token is the new holder's secret; set when Acquired.
	Token Token
	// Number is the fencing number of the grant when Acquired, positive; when Busy,
	// that of the present holder, zero during a hold-off.
	Number int64
	// Owner is the holder: the caller when Acquired, else who is in the way.
	Owner string
	// Remaining is the time left of the lease or, for BusyHoldOff, of the hold-off.
	Remaining time.Duration
	// Reason is set when Busy.
	Reason BusyReason
}

// RenewStatus is the outcome of Renew.
type RenewStatus uint8

// The outcomes of Renew. The zero value is none of them.
const (
	Renewed RenewStatus = iota + 1
	Lost
)

// RenewResult is what Renew reports.
type RenewResult struct {
	Status RenewStatus
	// Number is the holder's fencing number when Renewed: the same as at its
	// acquisition.
	Number int64
	// Remaining is the lease's time left when Renewed.
	Remaining time.Duration
}

// ResignStatus is the outcome of Resign.
type ResignStatus uint8

// The outcomes of Resign. The zero value is none of them.
const (
	Released ResignStatus = iota + 1
	NotOwner
)

// ResignResult is what Resign reports.
type ResignResult struct {
	Status ResignStatus
}

// HeldStatus is the outcome of Status.
type HeldStatus uint8

// The outcomes of Status. The zero value is none of them.
const (
	Vacant HeldStatus = iota + 1
	Held
)

// StatusResult is what Status reports.
type StatusResult struct {
	Status HeldStatus
	// Owner is who holds the election; empty when vacant.
	Owner string
	// Number is the holder's fencing number when held; when vacant, the last one
	// that the backend granted, zero where it remembers none.
	Number int64
	// Remaining is the lease's time left when held.
	Remaining time.Duration
	// HoldOff is the time left of a hold-off, zero for none.
	HoldOff time.Duration
}

// Standing is the outcome of Validate.
type Standing uint8

// The outcomes of Validate. The zero value is none of them.
const (
	// StandingCurrent: the token is the live holder's.
	StandingCurrent Standing = iota + 1
	// StandingStale: another holder has the election.
	StandingStale
	// StandingVacant: nobody holds the election.
	StandingVacant
)

// ValidateResult is what Validate reports.
type ValidateResult struct {
	Standing Standing
	// Number is the token's own fencing number when current; when stale, the number
	// of the holder that rules; zero when vacant.
	Number int64
	// Owner is the live holder's name when current or stale.
	Owner string
	// Remaining is the live lease's time left when current or stale.
	Remaining time.Duration
}
