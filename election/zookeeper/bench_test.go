package zookeeper

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Validate, beside what the driver needs for a read, with and without a sync before it.
// Both go to a server that follows, as two in three do.
func BenchmarkValidate(b *testing.B) {
	z := testenv.SharedZooKeeper(b)
	leader, err := z.Leader(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for name, addr := range map[string]string{"AtFollower": z.Nodes[(leader+1)%3].Addr, "AtLeader": z.Nodes[leader].Addr} {
		e := opened(b, addr, "/bench", Options{})
		g := acquire(b, e, name, election.AcquireOptions{}, election.Acquired)
		c := plainAt(b, addr)
		path := e.path(name)
		b.Run(name+"/Get", func(b *testing.B) {
			for b.Loop() {
				if _, _, err := c.Get(path); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/Validate", func(b *testing.B) {
			ctx := b.Context()
			for b.Loop() {
				if r, err := e.Validate(ctx, name, g.Token); err != nil || r.Standing != election.StandingCurrent {
					b.Fatal(r, err)
				}
			}
		})
		b.Run(name+"/SyncThenGet", func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Sync(path); err != nil {
					b.Fatal(err)
				}
				if _, _, err := c.Get(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
