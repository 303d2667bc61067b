package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// redisResource is a Redis and a second node that takeovers sweep too, as the fault
// tests see them.
type redisResource struct {
	server, node *servers.Process
	direct       *redis.Client
	f            *redisfence.Fence
}

func newRedisResource(t *testing.T, ctx context.Context, args ...string) *redisResource {
	t.Helper()
	r := &redisResource{server: testenv.Redis(t, args...), node: testenv.Redis(t)}
	r.direct = redis.NewClient(&redis.Options{Addr: r.server.Addr})
	t.Cleanup(func() { _ = r.direct.Close() })
	f, err := redisfence.Open(ctx, "redis://"+r.server.Addr, redisfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	r.f = f
	return r
}

func (r *redisResource) listener() string {
	return fmt.Sprintf("protocol: redis\nupstream: %s\ncontrol: redis://%s\nnodes: [%s]", r.server.Addr, r.server.Addr, r.node.Addr)
}

type redisClient struct{ c *redis.Client }

func (r *redisResource) connect(ctx context.Context, addr string, c guard.Credential) (client, error) {
	cl := dialRedis(addr, 3, &c)
	if err := cl.Ping(ctx).Err(); err != nil {
		_ = cl.Close()
		return nil, err
	}
	return redisClient{cl}, nil
}

func (c redisClient) write(ctx context.Context, n int64) error { return c.c.Incr(ctx, cnt(n)).Err() }
func (c redisClient) close()                                   { _ = c.c.Close() }

func (r *redisResource) applied(t *testing.T, ctx context.Context, n int64) int {
	t.Helper()
	got, err := r.direct.Get(ctx, cnt(n)).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return got
}

func (r *redisResource) fence(t *testing.T, ctx context.Context, id string) guard.Record {
	t.Helper()
	f, err := r.f.Read(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// stall stops the second node, which a takeover must sweep as well.
func (r *redisResource) stall(t *testing.T, _ context.Context, _ client) func() {
	t.Helper()
	if err := r.node.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() { _ = r.node.Signal(syscall.SIGCONT) })
	t.Cleanup(resume)
	return resume
}

func TestRedisProxyStoppedLongerThanALease(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	testProxyStopped(t, ctx, newRedisResource(t, ctx), url, b)
}

func TestRedisProxyKilledAndRestarted(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	testProxyKilled(t, ctx, newRedisResource(t, ctx), url, b)
}

func TestRedisProxyKilledBetweenRaiseAndSever(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	testKilledBetweenRaiseAndSever(t, ctx, newRedisResource(t, ctx), url, b)
}

// The guarded server starts again with nothing in it: the fence is made anew, for the
// live holder only.
func TestRedisRestartedEmpty(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	r := newRedisResource(t, ctx)
	testServerRestarted(t, ctx, r, url, b, func(id string, live guard.Record) {
		port := r.server.Port()
		r.server.Stop()
		again, err := servers.StartRedis(ctx, servers.RedisOptions{Port: port})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(again.Stop)
		// The proxy makes it anew at once, as soon as it has seen the server again.
		if f := r.fence(t, ctx, id); f != (guard.Record{}) && f.Raise == live.Raise {
			t.Errorf("the fence is still %+v", f)
		}
	})
}
