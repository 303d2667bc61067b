package redisfence_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// startCluster starts a cluster of three primaries.
func startCluster(t testing.TB, program string, replicas bool, args ...string) *servers.RedisCluster {
	t.Helper()
	c, err := servers.StartRedisClusterWithReplicas(testenv.Context(t), servers.RedisOptions{Program: program, Args: args}, 3, replicas)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, p := range c.All() {
				t.Logf("%s:\n%s", p.Addr, p.Log())
			}
		}
		servers.StopAll(c.All())
	})
	return c
}

func clusterURL(c *servers.RedisCluster) string {
	var addrs []string
	for _, p := range c.Primaries {
		addrs = append(addrs, p.Addr)
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

func openCluster(t testing.TB, c *servers.RedisCluster) *redisfence.ClusterFence {
	t.Helper()
	f, err := redisfence.OpenCluster(t.Context(), clusterURL(c), redisfence.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// bindAt binds a connection to a node of a cluster as the wire does.
func bindAt(t testing.TB, f *redisfence.ClusterFence, addr string, term guard.Term, r guard.Record) (*clusterConn, error) {
	t.Helper()
	c, err := nameAt(t, addr, term)
	if err != nil {
		return nil, err
	}
	if f.Topology().View() == nil {
		if err := f.Topology().Refresh(t.Context()); err != nil {
			return nil, err
		}
	}
	n, ok := f.Topology().View().ByAddr(addr)
	if !ok {
		return nil, fmt.Errorf("%s is not in the view", addr)
	}
	if err := f.Confirm(t.Context(), n, term, r); err != nil {
		_ = c.c.Close()
		return nil, err
	}
	return c, nil
}

// nameAt opens a connection that has the name, and is not confirmed.
func nameAt(t testing.TB, addr string, term guard.Term) (*clusterConn, error) {
	c := client(t, addr).Conn()
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Do(t.Context(), "CLIENT", "SETNAME", nameOf(term)).Err(); err != nil {
		return nil, err
	}
	role, err := c.Do(t.Context(), "ROLE").Slice()
	if err != nil {
		return nil, err
	}
	if role[0] != "master" {
		_ = c.Close()
		return nil, redisfence.ErrReplica
	}
	return &clusterConn{c}, nil
}

// A clusterConn is bound to one node.
type clusterConn struct{ c *redis.Conn }

// Write writes to a slot that the node owns; whether it does is no matter to whether the
// connection lives.
func (c *clusterConn) Write(ctx context.Context) error {
	err := c.c.Incr(ctx, "writes").Err()
	if _, moved := redis.IsMovedError(err); moved {
		return nil
	}
	return err
}

func clusterResource(t testing.TB, c *servers.RedisCluster, f *redisfence.ClusterFence) guardtest.Resource {
	return guardtest.Resource{
		Fence:    f,
		Election: func(t testing.TB) string { return testenv.Name(t, "e:") },
		Bind: func(t testing.TB, term guard.Term, r guard.Record) (guardtest.Conn, error) {
			return bindAt(t, f, c.Primaries[rand.IntN(3)].Addr, term, r)
		},
		Lose: func(t testing.TB, id string) {
			n, _ := f.Topology().View().Owner(rediscluster.Slot([]byte(redisfence.Key(id))))
			if err := client(t, n.Addr).Del(t.Context(), redisfence.Key(id)).Err(); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestClusterSuite(t *testing.T) {
	t.Parallel() // it waits most of the time
	for _, program := range []string{testenv.RedisServer, testenv.ValkeyServer} {
		t.Run(program, func(t *testing.T) {
			c := startCluster(t, program, false)
			f := openCluster(t, c)
			guardtest.Run(t, clusterResource(t, c, f))
			if ps := f.Check(t.Context()); len(ps) > 0 {
				t.Errorf("check: %v", ps)
			}
			t.Run("everything lost", func(t *testing.T) {
				r := clusterResource(t, c, f)
				r.Lose = func(t testing.TB, _ string) {
					for _, p := range c.Primaries {
						if err := client(t, p.Addr).FlushAll(t.Context()).Err(); err != nil {
							t.Fatal(err)
						}
					}
				}
				guardtest.Run(t, r)
			})
		})
	}
}
