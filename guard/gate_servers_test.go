package guard_test

import (
	"os"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
	"github.com/fenceproxy/fenceproxy/election/postgres"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Two gates over a real backend: a second consumer is refused, a stale one is told, a later
// one is bound once it has stopped.
func TestGatesOnServers(t *testing.T) {
	backends := map[string]func() string{
		"redis":    func() string { return "redis://" + testenv.SharedRedis(t).Addr },
		"postgres": func() string { return testenv.SharedPostgres(t).DSN("postgres", "postgres") },
	}
	if os.Getenv("FENCEPROXY_LONG") != "" { // their servers take their time to start
		backends["zookeeper"] = func() string { return "zookeeper://" + testenv.SharedZooKeeper(t).Nodes[0].Addr + "/gates" }
		backends["kubernetes"] = func() string { return "kubernetes:///default?kubeconfig=" + testenv.SharedKubeconfig(t) }
	}
	for name, url := range backends {
		t.Run(name, func(t *testing.T) {
			ctx := testenv.Context(t)
			b, err := open.Backend(ctx, url(), open.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			if p, ok := b.(*postgres.Backend); ok {
				if err := p.EnsureSchema(ctx); err != nil {
					t.Fatal(err)
				}
			}
			id := testenv.Name(t, "gate")
			var gates []*guard.Gate
			for range 2 {
				g, err := guard.NewGate(b, guard.GateConfig{Election: id + "-{partition}", PermitFor: time.Second, ValidateEvery: 100 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				gates = append(gates, g)
			}
			lead := func(owner string) election.AcquireResult {
				r, err := b.Acquire(ctx, id+"-0", election.AcquireOptions{Owner: owner})
				if err != nil || r.Status != election.Acquired {
					t.Fatalf("%+v, %v", r, err)
				}
				return r
			}
			first := lead("worker-1")
			x, err := gates[0].Bind(ctx, "0", first.Token)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range gates {
				_, err := g.Bind(ctx, "0", first.Token)
				if r := refused(t, err, guard.Occupied); r.Leader != "worker-1" || r.Rules != first.Number {
					t.Errorf("%+v", r)
				}
			}
			if _, err := b.Resign(ctx, id+"-0", first.Token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
			second := lead("worker-2")
			told := x.TrustedUntil()
			if told.IsZero() {
				told = time.Now()
			}
			y, err := gates[1].Bind(ctx, "0", second.Token)
			if err != nil {
				t.Fatal(err)
			}
			if now := time.Now(); now.Before(told) || now.Sub(told) > 10*time.Second { // soon, on a busy machine too
				t.Errorf("bound %v after the end that the first was told", now.Sub(told))
			}
			<-x.Done()
			x.Release()
			y.Release()
			<-y.Free()
			z, err := gates[0].Bind(ctx, "0", second.Token)
			if err != nil {
				t.Fatal(err)
			}
			z.Release()
		})
	}
}
