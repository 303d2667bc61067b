package guard

import (
	"context"

	"github.com/fenceproxy/fenceproxy/election"
)

// A Guard admits sessions to one guarded resource. It is safe for concurrent use.
type Guard struct{}

// New returns a guard that asks b who leads and keeps the fence f. Close it.
func New(b election.Backend, f Fence, c Config) *Guard { return &Guard{} }

// Close ends every permit and waits for all that the guard started.
func (g *Guard) Close() {}

// Admit turns a credential into a permit, raising and severing the fence first
// where that is behind. The error is always a *Refusal.
func (g *Guard) Admit(ctx context.Context, c Credential) (*Permit, error) {
	return nil, &Refusal{Reason: BackendUnknown, Election: c.Election}
}

// A Permit lets one session bind and then write for a term. Release it.
type Permit struct{}

// Term is the term that the permit is for.
func (p *Permit) Term() Term { return Term{} }

// Record is the fence, severed, as it must stand in the resource when the session's
// connection is bound.
func (p *Permit) Record() Record { return Record{} }

// Live reports whether the session may write now. Once false it stays false.
func (p *Permit) Live() bool { return false }

// Done is closed when the permit has ended. Live may turn false a little earlier.
func (p *Permit) Done() <-chan struct{} { return nil }

// Err is nil while the permit lives, and then a *Refusal that says why it ended.
func (p *Permit) Err() error { return nil }

// Invalidate tells the guard that the resource no longer holds Record (a bind
// failed with ErrConflict). Call it, Release the permit and Admit again: the guard
// then reads the fence anew and, where it was lost, raises, validates and severs again.
func (p *Permit) Invalidate() {}

// Release gives the permit back. It may be called more than once.
func (p *Permit) Release() {}
