package protocols

import "github.com/fenceproxy/fenceproxy/guard"

// A Leadership is the proxy's own campaign in an election: the sessions of a sidecar
// listener that present no credential are admitted, fenced and bound with this one, as any
// other's are with theirs. It is safe for concurrent use.
type Leadership interface {
	// Credential returns what to ask to be admitted with, or false while the campaign does
	// not lead. It neither locks nor allocates: sessions ask it often.
	//
	// It is an offer, not a permission: nobody writes before the guard has admitted it and
	// the connection is bound.
	Credential() (guard.Credential, bool)
	// Refusal says why there is no credential, and who leads instead.
	Refusal() *guard.Refusal
	// Election is the campaign's.
	Election() string
}
