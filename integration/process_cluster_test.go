package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// clusterResource is a cluster whose slots move all the time, as the fault tests see it.
type clusterResource struct {
	t     *testing.T
	c     *servers.RedisCluster
	url   string
	f     *redisfence.ClusterFence
	moves sync.Mutex // held while a slot moves
}

func newClusterResource(t *testing.T, ctx context.Context) *clusterResource {
	t.Helper()
	c, err := servers.StartRedisClusterWithReplicas(ctx, servers.RedisOptions{Args: []string{"--cluster-require-full-coverage", "no"}}, 3, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { servers.StopAll(c.All()) })
	r := &clusterResource{t: t, c: c, url: "redis+cluster://" + c.Primaries[0].Addr + "," + c.Primaries[1].Addr}
	if r.f, err = redisfence.OpenCluster(ctx, r.url, redisfence.ClusterOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.f.Close() })
	moving, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	m := &mover{c: c, election: "e", keys: []string{held(1), cnt(2)}, turn: &r.moves}
	wg.Go(func() { m.run(t, moving) })
	return r
}

func (r *clusterResource) listener() string {
	var ports []string
	for _, port := range nodePorts(r.t, 4) {
		ports = append(ports, fmt.Sprint(port))
	}
	return fmt.Sprintf("protocol: redis\nupstream: %s\ncontrol: %s\ncluster: {ports: [%s]}", r.url, r.url, strings.Join(ports, ", "))
}

type clusterClient struct{ c *redis.ClusterClient }

func (r *clusterResource) connect(ctx context.Context, addr string, c guard.Credential) (client, error) {
	cl := dialCluster(addr, 3, c)
	var err error
	for range 20 { // a slot on its way may refuse for a moment
		if err = cl.Get(ctx, "x").Err(); err == nil || errors.Is(err, redis.Nil) {
			return clusterClient{cl}, nil
		}
	}
	_ = cl.Close()
	return nil, err
}

// held is a key of number n on the node that has the fence, where it can be read while another
// node is stopped.
func held(n int64) string { return "{e}:" + cnt(n) }

func (c clusterClient) write(ctx context.Context, n int64) error { return c.c.Incr(ctx, held(n)).Err() }
func (c clusterClient) close()                                   { _ = c.c.Close() }

func (r *clusterResource) applied(t *testing.T, ctx context.Context, n int64) int {
	t.Helper()
	slot := rediscluster.Slot([]byte(held(n)))
	for {
		// Not by a cluster's client, which may go to where the slot was: that node may be stopped.
		top := r.f.Topology()
		if err := top.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		owner, _ := top.View().Owner(slot)
		got, err := top.Client(owner.Addr).Get(ctx, held(n)).Int()
		_, moved := redis.IsMovedError(err)
		_, ask := redis.IsAskError(err)
		switch {
		case err == nil || errors.Is(err, redis.Nil):
			return got
		case !moved && !ask:
			t.Fatal(err)
		}
	}
}

func (r *clusterResource) fence(t *testing.T, ctx context.Context, id string) guard.Record {
	t.Helper()
	f, err := r.f.Read(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// stall stops a node that has not the fence, and no slot moves.
func (r *clusterResource) stall(t *testing.T, ctx context.Context, _ client) func() {
	t.Helper()
	r.moves.Lock()
	if err := r.f.Topology().Refresh(ctx); err != nil { // the last view may be of before a move
		t.Fatal(err)
	}
	home, _ := r.f.Topology().View().Owner(rediscluster.Slot([]byte(redisfence.Key("e"))))
	p := r.c.Primaries[0]
	if p.Addr == home.Addr {
		p = r.c.Primaries[1]
	}
	thaw := testenv.Freeze(t, p)
	resume := sync.OnceFunc(func() {
		thaw()
		r.moves.Unlock()
	})
	t.Cleanup(resume)
	return resume
}

func TestRedisClusterProxyStoppedLongerThanALease(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	testProxyStopped(t, ctx, newClusterResource(t, ctx), url, b)
}

func TestRedisClusterProxyKilledAndRestarted(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	testProxyKilled(t, ctx, newClusterResource(t, ctx), url, b)
}

func TestRedisClusterProxyKilledBetweenRaiseAndSever(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	testKilledBetweenRaiseAndSever(t, ctx, newClusterResource(t, ctx), url, b)
}
