package election

import (
	"context"
	"errors"
	"time"
)

// An Operation is one of a Backend's five calls.
type Operation string

// The five calls.
const (
	OpAcquire  Operation = "acquire"
	OpRenew    Operation = "renew"
	OpResign   Operation = "resign"
	OpStatus   Operation = "status"
	OpValidate Operation = "validate"
)

// An Observation is what metrics may know of one call. It holds no election, owner or
// token, and each field but Took is one of a few words, so that all of them serve as
// labels.
type Observation struct {
	// Backend is the name that Observe was given.
	Backend string
	// Operation is the call.
	Operation Operation
	// Status is the outcome, as acquired, busy, hold-off, renewed, lost, released,
	// not-owner, vacant, held, current, stale; or the kind of error: invalid,
	// unsupported, exhausted, unavailable, corrupt, closed, cancelled, error.
	Status string
	// Failed says that Status is a kind of error.
	Failed bool
	// Took is how long the call lasted.
	Took time.Duration
}

// Observe returns b with every call reported to observe, when it has returned. The name
// says what b is, as redis or postgres: a word of the program, not of its users.
// observe is called from many goroutines at once and must return soon; a nil one
// observes nothing.
func Observe(b Backend, name string, observe func(Observation)) Backend {
	if observe == nil {
		return b
	}
	return observed{b, name, observe}
}

type observed struct {
	Backend
	name    string
	observe func(Observation)
}

// Hints implements Hinter. It is no call of the five.
func (o observed) Hints(ctx context.Context, id string, hint func()) error {
	return Hints(ctx, o.Backend, id, hint)
}

// done reports a call that began at asked.
func (o observed) done(op Operation, asked time.Time, status string, err error) {
	if err != nil {
		status = errorKind(err)
	}
	o.observe(Observation{
		Backend: o.name, Operation: op, Status: status, Failed: err != nil, Took: time.Since(asked),
	})
}

// errorKind sorts errors into a few words. A call that its caller gave up is not a
// failure of the backend's; one that ran out of time may be.
func errorKind(err error) string {
	for _, k := range []struct {
		is   error
		kind string
	}{
		{ErrInvalidID, "invalid"},
		{ErrInvalidToken, "invalid"},
		{ErrInvalidOwner, "invalid"},
		{ErrInvalidTTL, "invalid"},
		{ErrInvalidFencing, "invalid"},
		{ErrUnsupportedOption, "unsupported"},
		{ErrNumbersExhausted, "exhausted"},
		{ErrCorrupt, "corrupt"},
		{ErrClosed, "closed"},
		{context.Canceled, "cancelled"},
		{ErrUnavailable, "unavailable"},
	} {
		if errors.Is(err, k.is) {
			return k.kind
		}
	}
	return "error"
}

// Acquire implements Backend.
func (o observed) Acquire(ctx context.Context, id string, opt AcquireOptions) (AcquireResult, error) {
	asked := time.Now()
	r, err := o.Backend.Acquire(ctx, id, opt)
	status := r.Status.String()
	if r.Reason == BusyHoldOff {
		status = r.Reason.String()
	}
	o.done(OpAcquire, asked, status, err)
	return r, err
}

// Renew implements Backend.
func (o observed) Renew(ctx context.Context, id string, t Token) (RenewResult, error) {
	asked := time.Now()
	r, err := o.Backend.Renew(ctx, id, t)
	o.done(OpRenew, asked, r.Status.String(), err)
	return r, err
}

// Resign implements Backend.
func (o observed) Resign(ctx context.Context, id string, t Token, opt ResignOptions) (ResignResult, error) {
	asked := time.Now()
	r, err := o.Backend.Resign(ctx, id, t, opt)
	o.done(OpResign, asked, r.Status.String(), err)
	return r, err
}

// Status implements Backend.
func (o observed) Status(ctx context.Context, id string) (StatusResult, error) {
	asked := time.Now()
	r, err := o.Backend.Status(ctx, id)
	o.done(OpStatus, asked, r.Status.String(), err)
	return r, err
}

// Validate implements Backend.
func (o observed) Validate(ctx context.Context, id string, t Token) (ValidateResult, error) {
	asked := time.Now()
	r, err := o.Backend.Validate(ctx, id, t)
	o.done(OpValidate, asked, r.Standing.String(), err)
	return r, err
}
