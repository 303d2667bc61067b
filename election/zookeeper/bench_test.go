package zookeeper

import (
	"context"
	"testing"

	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Validate beside a read by the same driver, which may be out of date, and beside a sync
// with a read after it, which is not. At a server that follows, as two in three do, and
// at the one that leads.
func BenchmarkValidate(b *testing.B) {
	z := testenv.SharedZooKeeper(b)
	leader, err := z.Leader(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for name, addr := range map[string]string{"AtFollower": z.Nodes[(leader+1)%3].Addr, "AtLeader": z.Nodes[leader].Addr} {
		b.Run(name, func(b *testing.B) {
			h, c := opened(b, addr, "/bench", Options{}), plainAt(b, addr)
			id := testenv.Name(b, "e")
			path := h.path(id)
			get := func(context.Context) error { _, _, err := c.Get(path); return err }
			electiontest.BenchValidate(b, h, id, "get", map[string]func(context.Context) error{
				"get": get,
				"sync-then-get": func(ctx context.Context) error {
					if _, err := c.Sync(path); err != nil {
						return err
					}
					return get(ctx)
				},
			})
		})
	}
}
