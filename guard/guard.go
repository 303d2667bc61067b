// Package guard decides who may write. It turns a session's credential into a
// permit, by asking the election backend whose token is live and by raising the
// fence inside the guarded resource to the token's number, and it ends the permit
// when leadership ends.
//
// It promises that a permit is given only while the resource's fence stands
// severed at exactly the permit's term: every connection bound to a lower number
// is gone by then, on whatever proxy it was. It refuses stale writers; it cannot
// recall bytes already sent, and so a session writes only on a connection that the
// resource itself has bound to the term, which a later term severs.
package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A Credential is what a session presents: a token and the election it is for.
type Credential struct {
	Election string
	Token    election.Token
}

// A Term is one holder's time in an election, as the guard learned it.
type Term struct {
	Election string
	// Owner is the holder's name, for humans.
	Owner string
	// Number is the term's fencing number, positive.
	Number int64
	// Digest is the digest of the holder's token.
	Digest election.Digest
}

// State says how far a fence has come in its two steps.
type State uint8

// The states of a fence. The zero value means that there is no fence.
const (
	// Raised: the number is refused to lower terms, but connections bound to lower
	// ones may still live. Nobody may bind.
	Raised State = iota + 1
	// Severed: every connection bound to a lower number is gone. The term may bind.
	Severed
)

// A Record is the fence as the resource holds it. Records are compared with ==:
// the same record is the same raise, not merely the same number. The zero Record
// means that the resource has no fence for the election.
type Record struct {
	// Highest is the highest fencing number seen.
	Highest int64
	// Holder is the digest of that number's holder.
	Holder election.Digest
	State  State
	// Raise is random for each raise, so that a fence that was lost and raised again
	// to the same number is never taken for the one before.
	Raise RaiseID
}

// A RaiseID tells one raise of a fence from every other.
type RaiseID [8]byte

// ErrConflict means that a fence was not what the caller said it was, and nothing
// was changed: read it again.
var ErrConflict = errors.New("fence changed meanwhile")

// A BoundAboveError is Sever's when the resource holds a connection that is bound
// to a higher number than the term's: a later term rules, or the fence and the
// election backend's counter were both lost.
type BoundAboveError struct {
	Election string
	// Number is the highest number found bound.
	Number int64
}

// Error says which number was found.
func (e *BoundAboveError) Error() string {
	return fmt.Sprintf("a connection is bound to number %d of election %q, which is higher", e.Number, e.Election)
}

// A Fence is the fence inside one guarded resource. Any number of proxies share
// it; each method is safe for concurrent use. Errors other than ErrConflict leave
// the outcome unknown, and are safe to retry from Read.
type Fence interface {
	// Read returns the election's record, the zero Record where there is none.
	Read(ctx context.Context, electionID string) (Record, error)
	// Swap replaces the record old by new, durably and atomically, or returns
	// ErrConflict. A zero old means that there must be no record.
	Swap(ctx context.Context, electionID string, old, new Record) error
	// Sever ends every connection that is bound to the term's election by an older
	// term (a lower number, or the same number with another holder), on every node
	// of the resource, and returns only when the resource itself says that they are
	// gone. It verifies first that it has the rights to see and to end them all, and
	// fails if it has not. A connection bound to a higher number is left alone and
	// makes it fail with *BoundAboveError.
	Sever(ctx context.Context, t Term) error
}

// Config tunes a Guard. The zero value is a working default.
type Config struct {
	// ValidateEvery is the time between two background validations of a permit;
	// zero means DefaultValidateEvery.
	ValidateEvery time.Duration
	// PermitFor is how long a permit holds after the question that the backend last
	// answered with current, measured from before that question; zero means
	// DefaultPermitFor. It is never longer than the lease's own time left.
	PermitFor time.Duration
	// Timeout bounds one question to the election backend; zero means
	// DefaultTimeout.
	Timeout time.Duration
	// AdvanceTimeout bounds one raise and sever of the fence; zero means
	// DefaultAdvanceTimeout.
	AdvanceTimeout time.Duration
}

// Defaults of Config.
const (
	DefaultValidateEvery  = 1 * time.Second
	DefaultPermitFor      = 5 * time.Second
	DefaultTimeout        = 2 * time.Second
	DefaultAdvanceTimeout = 30 * time.Second
)

// Reason says why a credential was refused or a permit ended.
type Reason uint8

// The reasons of a Refusal. The zero value is none of them.
const (
	// NoCredential: the session presented none, and the request is a write.
	NoCredential Reason = iota + 1
	// InvalidCredential: the election id or the token is malformed.
	InvalidCredential
	// Stale: another term rules the election.
	Stale
	// LeaseVacant: nobody holds the election; the lease ran out or was resigned.
	LeaseVacant
	// BackendUnknown: the election backend could not be asked, for longer than a
	// permit holds unasked.
	BackendUnknown
	// FenceUnavailable: the resource's fence could not be read, raised or severed.
	FenceUnavailable
	// FenceRegressed: the token is current, but the fence has seen a higher number:
	// the election backend lost its counter.
	FenceRegressed
	// FenceConflict: the token is current, but the fence has seen its number with
	// another holder.
	FenceConflict
	// Unseverable: this connection could not be ended at a takeover (a superuser's,
	// or one behind a pooler), so it is not bound.
	Unseverable
	// WrongElection: the credential is for an election that this listener does not
	// serve.
	WrongElection
	// NotAllowed: the request is refused to everyone here, leader or not.
	NotAllowed
)

// A Refusal is the error of everything that the guard refuses. It never holds a
// token.
type Refusal struct {
	Reason   Reason
	Election string
	// Held is the number that the refused session holds; zero where unknown.
	Held int64
	// Rules is the number that rules, and Leader who holds it; zero and empty where
	// unknown.
	Rules  int64
	Leader string
	// Detail says more in words, for the person who reads the error.
	Detail string
	// Err is the underlying failure, if any.
	Err error
}

// Unwrap returns the underlying failure.
func (r *Refusal) Unwrap() error { return r.Err }

// Error says what was refused and why, without a line break.
func (r *Refusal) Error() string {
	s := r.Message()
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// Message is one sentence for the refused person, without detail.
func (r *Refusal) Message() string {
	e := fmt.Sprintf("election %q", r.Election)
	switch r.Reason {
	case NoCredential:
		if r.Election == "" {
			return "write refused: this session has no live token"
		}
		return "write refused: this session has no live token of " + e
	case InvalidCredential:
		return "credential refused: it is malformed"
	case Stale:
		return fmt.Sprintf("stale leader refused: %s is ruled by number %d", e, r.Rules)
	case LeaseVacant:
		return "refused: nobody holds " + e + " (the lease ran out or was resigned)"
	case BackendUnknown:
		return "refused: cannot find out who holds " + e
	case FenceUnavailable:
		return "refused: the fence of " + e + " cannot be reached or moved"
	case FenceRegressed:
		return fmt.Sprintf("refused: the fence of %s has already seen number %d, and this token's is lower", e, r.Rules)
	case FenceConflict:
		return fmt.Sprintf("refused: number %d of %s was already used by another holder", r.Rules, e)
	case Unseverable:
		return "refused: a takeover could not end this connection, so it may not write for " + e
	case WrongElection:
		return "credential refused: this listener does not serve " + e
	case NotAllowed:
		return "refused: not allowed through this proxy"
	}
	return "refused"
}

// Hint tells the refused person what to try.
func (r *Refusal) Hint() string {
	switch r.Reason {
	case NoCredential:
		return "Present the election's live token at connect or on this session; see the documentation on credentials."
	case InvalidCredential:
		return "Pass the election id and the token exactly as Acquire returned them."
	case Stale, LeaseVacant:
		return "Stop writing, acquire the election again and connect with the new token; reading works without one."
	case BackendUnknown:
		return "Check that the proxy reaches the election backend, then reconnect."
	case FenceUnavailable:
		return "Check the proxy's control connection and its rights: fenceproxy check -c <configuration>."
	case FenceRegressed, FenceConflict:
		return "Acquire again with a floor above that number (fenceproxy election acquire --min-fencing)."
	case Unseverable:
		return "Connect as an ordinary role, directly from the proxy to the server."
	case WrongElection:
		return "Connect to the listener of that election, or add it to this listener's configuration."
	}
	return ""
}
