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
	// makes it fail with *BoundAboveError. A fence that keeps more than the connections'
	// bounds may also return ErrConflict where the record is not the term's.
	Sever(ctx context.Context, t Term) error
}
