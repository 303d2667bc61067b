package redisfence

import "context"

// Prepare is what is done on a new primary.
func (f *Fence) Prepare(ctx context.Context, addr string) error { return f.prepare(ctx, addr) }
