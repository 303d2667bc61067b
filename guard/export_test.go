package guard

import (
	"context"
	"time"
)

// Keepers is how many keepers the guard has.
func (g *Guard) Keepers() int { g.mu.Lock(); defer g.mu.Unlock(); return len(g.keepers) }

// ExtendTooLate makes a binding of p whose trust has run out unseen, as in a process that
// was paused, and extends it.
func (g *Gate) ExtendTooLate(p *Permit) *Binding {
	b := newBinding(g, "late", p)
	b.until.Store(int64(time.Since(g.epoch)))
	b.extend(time.Since(g.epoch) + time.Hour)
	return b
}

// Permit is an admission of the gate's own guard.
func (g *Gate) Permit(ctx context.Context, c Credential) (*Permit, error) {
	return g.guard.Admit(ctx, c)
}
