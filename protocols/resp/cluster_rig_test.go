package resp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// A clusterRig is a proxy in front of a cluster.
type clusterRig struct {
	*rig
	nodes []*servers.Process
	top   *rediscluster.Topology
	fence *memFence
	ports []int
}

// memFence is a fence in memory, of a cluster without takeovers.
type memFence struct {
	mu  sync.Mutex
	r   map[string]guard.Record
	err error // of Confirm
}

func (f *memFence) Read(_ context.Context, id string) (guard.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.r[id], nil
}

func (f *memFence) Swap(_ context.Context, id string, old, new guard.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.r[id] != old {
		return guard.ErrConflict
	}
	f.r[id] = new
	return nil
}

func (f *memFence) Sever(context.Context, guard.Term) error { return nil }

func (f *memFence) Confirm(_ context.Context, _ rediscluster.Node, t guard.Term, r guard.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if f.r[t.Election] != r {
		return guard.ErrConflict
	}
	return nil
}

func newClusterRig(t testing.TB, nodes []*servers.Process, config func(*resp.ClusterConfig)) *clusterRig {
	t.Helper()
	r := &clusterRig{rig: &rig{election: testenv.Name(t, "e"), elections: memory.New(), log: new(testenv.Buffer)}, nodes: nodes,
		fence: &memFence{r: make(map[string]guard.Record)}}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	r.top = rediscluster.New(rediscluster.Options{
		Seeds: []string{nodes[0].Addr, nodes[1].Addr}, Every: 200 * time.Millisecond,
		Redis: redis.Options{Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return fromProxy(ctx, addr) }},
	})
	g := guard.New(r.elections, r.fence, guard.Config{ValidateEvery: 100 * time.Millisecond, Log: log})
	for range 2 * len(nodes) {
		p, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		r.ports = append(r.ports, p)
	}
	c := resp.ClusterConfig{
		Config:   resp.Config{Upstream: "the cluster", Guard: g, Election: r.election, Log: log},
		Fence:    r.fence,
		Topology: r.top,
		DialNode: fromProxy,
		Ports:    r.ports,
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.top.Run(ctx) })
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		wg.Wait()
		g.Close()
		_ = r.top.Close()
		if t.Failed() {
			t.Logf("log:\n%s", r.log.String())
		}
	})
	eventually(t, "every node is served", func() bool {
		return strings.Count(r.log.String(), "serving a node of the cluster") >= len(nodes)
	})
	return r
}

// startCluster starts three primaries.
func startCluster(t testing.TB, program string, args ...string) []*servers.Process {
	t.Helper()
	// Redis 7.0 knows one loopback address only.
	args = append([]string{"--protected-mode", "no"}, args...)
	nodes, err := servers.StartRedisCluster(testenv.Context(t), servers.RedisOptions{Program: program, Args: args}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range nodes {
		t.Cleanup(p.Stop)
	}
	return nodes
}

// proxyHost is the address that the proxy connects to nodes from, and nobody else.
const proxyHost = "127.0.0.2"

func fromProxy(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(proxyHost)}}
	return d.DialContext(ctx, "tcp", addr)
}

// strangers are the connections of a node's clients that are not the proxy's.
func strangers(t testing.TB, addr string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(direct(t, addr, "CLIENT", "LIST", "TYPE", "normal")) {
		if !strings.Contains(line, " addr="+proxyHost+":") && !strings.Contains(line, " cmd=client|list ") && !strings.Contains(line, " cmd=client ") {
			lines = append(lines, line)
		}
	}
	return lines
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

// proxied is the proxy's address of the node at addr.
func (r *clusterRig) proxied(t testing.TB, addr string) string {
	t.Helper()
	n, ok := r.top.View().ByAddr(addr)
	if !ok {
		t.Fatalf("no node at %s", addr)
	}
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "serving a node") && strings.Contains(line, "node="+n.ID) {
			_, port, _ := strings.Cut(strings.TrimSpace(line), "port=")
			return net.JoinHostPort("127.0.0.1", port)
		}
	}
	t.Fatalf("no port for %s", addr)
	return ""
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
