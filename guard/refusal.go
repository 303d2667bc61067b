package guard

import (
	"fmt"
	"strings"
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
	// LeaseVacant: the token's lease has ended and nobody was seen to hold the election
	// since; it ran out or was resigned.
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
	// Unbindable: this session's own connection could not be bound to the term; Detail says
	// why, and what to do.
	Unbindable
	// Occupied: another consumer or session is bound for the election. Rules is its number
	// and Leader its owner.
	Occupied
	// BindingLost: the gate's hold on the partition has ended; Detail says why.
	BindingLost
	// InvalidPartition: the partition's name is malformed, or makes no election of it.
	InvalidPartition
	// TooMany: the gate holds as many bindings as it may.
	TooMany
	// NotElected: the session presents no credential, the listener campaigns itself for those
	// that do not, and the session is not bound to a term of the listener's own.
	NotElected
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

// ForLog is the election's name and the error's text as they may be logged. known says that the
// election is one of the proxy's own configuration.
//
// INVARIANT: no token is logged. A client that mixes up its arguments names its token as an
// election; a name that neither the configuration nor a number vouches for is not written down.
func (r *Refusal) ForLog(known bool) (election, text string) {
	if known || r.Held > 0 || r.Rules > 0 || r.Election == "" {
		return r.Election, r.Error()
	}
	return "(unknown)", strings.ReplaceAll(r.Error(), r.Election, "(unknown)")
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
		return "stale leader refused: nobody leads " + e + " (its lease ran out or was resigned, or the name is wrong)"
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
	case Unbindable:
		return "refused: this connection could not be bound to " + e
	case Occupied:
		if r.Rules == 0 {
			return "refused: " + e + " is bound already"
		}
		return fmt.Sprintf("refused: %s is bound already, with number %d", e, r.Rules)
	case BindingLost:
		return "the binding to " + e + " has ended"
	case InvalidPartition:
		return "refused: this is no partition of the gate"
	case TooMany:
		return "refused: the gate holds as many bindings as it may"
	case NotElected:
		if r.Rules != 0 {
			return fmt.Sprintf("write refused: this listener's %s is ruled by number %d", e, r.Rules)
		}
		return "write refused: this session is not bound to this listener's " + e
	}
	return "refused"
}

// Hint tells the refused person what to try, whatever the protocol.
func (r *Refusal) Hint() string {
	return r.hint("; reading works without one.", "; reading works meanwhile.")
}

// HintBound is Hint where a session that is not bound may not even read.
func (r *Refusal) HintBound() string { return r.hint(".", ".") }

// hint ends, where the session could go on as one that reads, in words that say so.
func (r *Refusal) hint(without, meanwhile string) string {
	stale := "Stop writing, acquire the election again and connect with the new token" + without
	switch r.Reason {
	case NoCredential:
		return "Present the live token."
	case InvalidCredential:
		return "Pass the election id and the token exactly as Acquire returned them."
	case Stale:
		return stale
	case LeaseVacant:
		return stale + " If the lease is live, the proxy asks another election backend than the one it was acquired on."
	case BackendUnknown:
		return "Check that the proxy reaches the election backend, then reconnect."
	case FenceUnavailable:
		return "Check the proxy's control connection and its rights: fenceproxy check -c <configuration>."
	case FenceRegressed, FenceConflict:
		return "Acquire again with a floor above that number (fenceproxy election acquire --min-fencing)."
	case Unseverable:
		return "Let the proxy connect directly to the server."
	case WrongElection:
		return "Connect to the listener of that election, or add it to this listener's configuration."
	case Occupied:
		return "Release the other binding, or wait for its end: one consumer at a time holds it."
	case BindingLost:
		return "Stop working on it at once; bind again with the live token."
	case InvalidPartition:
		return "Name the partition by letters, digits and . _ - : alone."
	case TooMany:
		return "Release bindings that are not needed, or raise the gate's max."
	case NotElected:
		return "Write through the proxy that leads, or try again when this one does" + meanwhile
	}
	return ""
}
