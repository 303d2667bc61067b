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
	AfterFunc(f func()) (stop func() bool)
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

// A Holder lets one session at a time, or those of one client, have a permit for an
// election.
type Holder interface {
	// Hold returns a permit in the place of p that lives only while the session holds the
	// election. Its error is a *guard.Refusal; p is released then.
	Hold(ctx context.Context, p Permit, client string) (Permit, error)
}

// Hold makes a Holder of a guard.Exclusive.
func Hold(x *guard.Exclusive) Holder { return holder{x} }

type holder struct{ x *guard.Exclusive }

func (h holder) Hold(ctx context.Context, p Permit, client string) (Permit, error) {
	g, ok := p.(*guard.Permit)
	if !ok {
		p.Release()
		return nil, &guard.Refusal{Reason: guard.NotAllowed, Election: p.Term().Election, Detail: "a permit of another kind"}
	}
	held, err := h.x.Hold(ctx, g, client)
	if err != nil {
		return nil, err
	}
	return held, nil
}
