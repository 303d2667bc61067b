package resp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/loops/loopstest"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// A clusterRig is a proxy in front of a cluster.
type clusterRig struct {
	*rig
	nodes *servers.RedisCluster
	fence *watchedFence
	top   *rediscluster.Topology
}

// A watchedFence is the fence, with a Confirm that can be made to fail.
type watchedFence struct {
	*redisfence.ClusterFence
	mu  sync.Mutex
	err error
}

func (f *watchedFence) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *watchedFence) Confirm(ctx context.Context, n rediscluster.Node, t guard.Term, r guard.Record) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.ClusterFence.Confirm(ctx, n, t, r)
}

func newClusterRig(t testing.TB, nodes *servers.RedisCluster, config func(*resp.ClusterConfig), control ...func(*rediscluster.Options)) *clusterRig {
	t.Helper()
	r := &clusterRig{rig: &rig{election: testenv.Name(t, "e"), elections: memory.New(), log: new(testenv.Buffer)}, nodes: nodes}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	o := rediscluster.Options{
		Seeds: []string{nodes.Primaries[0].Addr, nodes.Primaries[1].Addr}, Every: 200 * time.Millisecond,
		Redis: redis.Options{Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return fromProxy(ctx, addr) }},
	}
	for _, change := range control {
		change(&o)
	}
	r.fence = &watchedFence{ClusterFence: redisfence.NewCluster(o, redisfence.ClusterOptions{Log: log})}
	r.top = r.fence.Topology()
	g := guard.New(r.elections, r.fence, guard.Config{ValidateEvery: 100 * time.Millisecond, Log: log})
	var ports []int
	for len(ports) < 2*len(nodes.Primaries) {
		p, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	c := resp.ClusterConfig{
		Config:   resp.Config{Upstream: "the cluster", Guard: g, Election: r.election, Log: log, Loops: loopstest.Start(t)},
		Fence:    r.fence,
		Topology: r.top,
		DialNode: fromProxy,
		Ports:    ports,
		Listen: func(ctx context.Context, port int) (net.Listener, error) {
			var lc net.ListenConfig
			return lc.Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
		},
	}
	if config != nil {
		config(&c)
	}
	s, err := resp.NewCluster(c)
	if err != nil {
		t.Fatal(err)
	}
	l := testenv.Listen(t)
	r.addr = l.Addr().String()
	t.Cleanup(func() { // once the server has ended
		g.Close()
		_ = r.fence.Close()
		if t.Failed() {
			t.Logf("log:\n%s", r.log.String())
		}
	})
	testenv.Serve(t, l, s.Serve)
	eventually(t, "every node is served", func() bool {
		return strings.Count(r.log.String(), "serving a node") >= min(len(c.Ports), len(nodes.All()))
	})
	return r
}

// startCluster starts three primaries.
func startCluster(t testing.TB, v servers.RedisVersion) *servers.RedisCluster {
	t.Helper()
	o := servers.RedisOptions{Bin: testenv.RedisBin(t, v), Program: v.Program,
		Args: []string{"--protected-mode", "no"}} // Redis 7.0 knows one loopback address only
	c, err := servers.StartRedisClusterWithReplicas(testenv.Context(t), o, 3, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { servers.StopAll(c.All()) })
	return c
}

// proxyHost is the address that the proxy connects to nodes from, and nobody else.
const proxyHost = "127.0.0.2"

func fromProxy(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(proxyHost)}}
	return d.DialContext(ctx, "tcp", addr)
}

// noStrangers checks that a node's clients are all the proxy's, but for this test's own
// and for other nodes that bring it keys.
func noStrangers(t testing.TB, addr string) {
	t.Helper()
	eventually(t, "all the clients of "+addr+" are the proxy's", func() bool {
		for line := range strings.Lines(direct(t, addr, "CLIENT", "LIST", "TYPE", "normal")) {
			if !strings.Contains(line, " addr="+proxyHost+":") && !strings.Contains(line, " cmd=client|list ") && !strings.Contains(line, " cmd=restore-asking ") {
				return false
			}
		}
		return true
	})
}

// client is a cluster client of the proxy's that leads.
func (r *clusterRig) client(t testing.TB, token election.Token) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{r.addr}, DisableIdentity: true, ContextTimeoutEnabled: true,
		CredentialsProvider: func() (string, string) { return r.user("", token), "x" },
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// proxied is the proxy's address of the node at addr, which may have to be found first.
func (r *clusterRig) proxied(t testing.TB, addr string) (at string) {
	t.Helper()
	eventually(t, "the node at "+addr+" is served", func() bool {
		n, ok := rediscluster.Node{}, false
		if v := r.top.View(); v != nil {
			n, ok = v.ByAddr(addr)
		}
		if !ok {
			return false
		}
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, "serving a node") && strings.Contains(line, "node="+n.ID) {
				_, port, _ := strings.Cut(strings.TrimSpace(line), " port=")
				at = net.JoinHostPort("127.0.0.1", port)
			}
		}
		return at != ""
	})
	return at
}

// direct asks a node itself.
func direct(t testing.TB, addr string, args ...any) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	defer c.Close()
	v, err := c.Do(t.Context(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v at %s: %v", args, addr, err)
	}
	return fmt.Sprint(v)
}
