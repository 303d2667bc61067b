package pg

import (
	"context"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
)

// A Permit is what a session needs of guard.Permit.
type Permit interface {
	Term() guard.Term
	Record() guard.Record
	Live() bool
	Done() <-chan struct{}
	Err() error
	Invalidate()
	Release()
}

// An Admitter turns credentials into permits. Its error is a *guard.Refusal.
type Admitter interface {
	Admit(ctx context.Context, c guard.Credential) (Permit, error)
}

// A Binder ties server processes to terms; *pgfence.Fence is one.
type Binder interface {
	// Bind's error is a *guard.Refusal; it wraps guard.ErrConflict when the fence
	// is not what the record says.
	Bind(ctx context.Context, b pgfence.Backend, t guard.Term, r guard.Record) (pgfence.Bound, error)
	Unbind(ctx context.Context, b pgfence.Bound) error
	// Read returns the fence, by which a session that the server ended knows
	// whether it was severed.
	Read(ctx context.Context, election string) (guard.Record, error)
}

var _ Binder = (*pgfence.Fence)(nil)

// Admit makes an Admitter of a guard.
func Admit(g *guard.Guard) Admitter { return admitter{g} }

type admitter struct{ g *guard.Guard }

func (a admitter) Admit(ctx context.Context, c guard.Credential) (Permit, error) {
	p, err := a.g.Admit(ctx, c)
	if err != nil {
		return nil, err
	}
	return p, nil
}
