package election

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Why a leadership ended, for errors.Is, beside the end of the elector's context and a
// callback's panic.
var (
	// ErrLost: the backend said that the term is over.
	ErrLost = errors.New("leadership lost")
	// ErrTrustEnded: no renewal succeeded in time.
	ErrTrustEnded = errors.New("trust in the lease ended")
)

// A Term is one holder's time in an election.
type Term struct {
	Election string
	// Owner is the holder's name, for humans.
	Owner string
	// Number is the term's fencing number, positive.
	Number int64
	// Token is the holder's secret.
	Token Token
	// TrustedUntil is when the trust in the lease ends, as renewed so far; it has a
	// monotonic reading.
	TrustedUntil time.Time
}

// TermFrom returns the term of a context that an Elector gave to a callback, or of one
// derived from it, with TrustedUntil as it is now. It is there also after the end.
func TermFrom(ctx context.Context) (Term, bool) {
	l, ok := ctx.Value(leadershipKey{}).(*leadership)
	if !ok {
		return Term{}, false
	}
	return l.now(), true
}

type leadershipKey struct{}

// A PanicError is a panic of a callback.
type PanicError struct {
	// Callback is the function's name.
	Callback string
	// Value is what it panicked with.
	Value any
	// Stack is its goroutine's stack at the panic.
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("leader callback %s panicked: %v", e.Callback, e.Value)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// An OverstayError tells of callbacks that still ran when their lease may have ended.
type OverstayError struct {
	// Term is the term that they were called for.
	Term Term
	// Callbacks are the names of the functions.
	Callbacks []string
}

func (e *OverstayError) Error() string {
	return fmt.Sprintf("still running with number %d of election %q, whose lease may have ended: %s",
		e.Term.Number, e.Term.Election, strings.Join(e.Callbacks, ", "))
}
