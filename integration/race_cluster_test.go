package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// A valve is shut to stop all that a proxy is about to write to the servers, after it has
// looked whether it may: as if the proxy had been paused there.
type valve struct {
	mu   sync.Mutex
	open chan struct{} // closed while it is open
}

func newValve() *valve {
	v := &valve{open: make(chan struct{})}
	close(v.open)
	return v
}

// shut shuts it until the returned function is called.
func (v *valve) shut() (reopen func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	closed := make(chan struct{})
	v.open = closed
	return func() { close(closed) }
}

func (v *valve) state() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open
}

// A valved connection is one behind a valve.
type valved struct {
	net.Conn
	v    *valve
	once sync.Once
	done chan struct{}
}

func (c *valved) Write(b []byte) (int, error) {
	select {
	case <-c.v.state():
		return c.Conn.Write(b)
	case <-c.done:
		return 0, net.ErrClosed
	}
}

func (c *valved) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// nodePorts are free ports, no two the same.
func nodePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := servers.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// clusterProxy serves a proxy of its own guard, fence and topology in front of a cluster,
// in this process, and returns its address and its valve. wrap may weaken its fence.
func clusterProxy(t *testing.T, ctx context.Context, url string, b election.Backend, wrap func(guard.Fence) guard.Fence) (string, *valve) {
	t.Helper()
	f, err := redisfence.OpenCluster(ctx, url, redisfence.ClusterOptions{Log: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	var fence guard.Fence = f
	if wrap != nil {
		fence = wrap(f)
	}
	// Permits that outlast a race nearly: all depends on the fence.
	g := guard.New(b, fence, guard.Config{PermitFor: time.Minute, ValidateEvery: 20 * time.Second})
	v := newValve()
	c := resp.ClusterConfig{
		Config: resp.Config{Upstream: "the cluster", Guard: g, Log: testLogger(t), Loops: loopstest.Start(t)}, Fence: f, Topology: f.Topology(),
		DialNode: func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return &valved{Conn: conn, v: v, done: make(chan struct{})}, nil
		},
		Listen: func(ctx context.Context, port int) (net.Listener, error) {
			var lc net.ListenConfig
			return lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		},
	}
	c.Ports = nodePorts(t, 8)
	srv, err := resp.NewCluster(c)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, srv.Serve, func() {
		g.Close()
		_ = f.Close()
	}), v
}

// clusterRaced floods a cluster through two proxies with cluster-aware clients. A write of
// number n appends n to the list of a key.
type clusterRaced struct {
	proxies [2]string
	valves  [2]*valve
	direct  *redis.ClusterClient
	keys    []string
}

func (r *clusterRaced) key() string { return r.keys[rand.IntN(len(r.keys))] }

// dial opens a client that follows the proxy's own redirections.
func (r *clusterRaced) dial(proxy, protocol int, c guard.Credential) *redis.ClusterClient {
	return dialCluster(r.proxies[proxy], protocol, c)
}

func dialCluster(addr string, protocol int, c guard.Credential) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{addr}, Protocol: protocol, PoolSize: 2, DisableIdentity: true, MaxRedirects: 8, ReadTimeout: 30 * time.Second,
		OnConnect: func(ctx context.Context, cn *redis.Conn) error {
			return cn.Do(ctx, "FENCE", "BIND", c.Election, c.Token.Reveal()).Err()
		},
	})
}

var clusterWays = []func(ctx context.Context, c *redis.ClusterClient, r *clusterRaced, n int64) error{
	func(ctx context.Context, c *redis.ClusterClient, r *clusterRaced, n int64) error {
		return c.RPush(ctx, r.key(), n).Err()
	},
	func(ctx context.Context, c *redis.ClusterClient, r *clusterRaced, n int64) error { // over all nodes
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 20 {
				p.RPush(ctx, r.key(), n)
			}
			return nil
		})
		return err
	},
	func(ctx context.Context, c *redis.ClusterClient, r *clusterRaced, n int64) error {
		key := r.key()
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for range 5 {
				p.RPush(ctx, key, n)
			}
			return nil
		})
		return err
	},
	func(ctx context.Context, c *redis.ClusterClient, r *clusterRaced, n int64) error {
		return c.Eval(ctx, "for i = 1, 10 do redis.call('RPUSH', KEYS[1], ARGV[1]) end return redis.status_reply('OK')", []string{r.key()}, n).Err()
	},
	func(ctx context.Context, c *redis.ClusterClient, r *clusterRaced, n int64) error { // blocked, with writes behind
		key := r.key()
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.BLPop(ctx, time.Second, key+":src")
			p.RPush(ctx, key, n)
			return nil
		})
		if err == redis.Nil { // nothing came
			return nil
		}
		return err
	},
}

// flood writes until ctx is done. A session that is refused is opened again now and then:
// its holder does not know that another one leads.
func (r *clusterRaced) flood(ctx context.Context, c guard.Credential, n int64, proxy, way int, written *atomic.Int64) {
	for ctx.Err() == nil {
		cl := r.dial(proxy, 2+way%2, c)
		stop := context.AfterFunc(ctx, func() { _ = cl.Close() })
		for refused := 0; ctx.Err() == nil && refused < 3; {
			if err := clusterWays[way](ctx, cl, r, n); err != nil {
				refused++
			} else {
				written.Add(1)
				refused = 0
			}
		}
		stop()
		_ = cl.Close()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// first appends n to every key.
func (r *clusterRaced) first(ctx context.Context, c guard.Credential, n int64, proxy int) error {
	cl := r.dial(proxy, 3, c)
	defer cl.Close()
	deadline := time.Now().Add(time.Minute)
	for _, key := range r.keys {
		for {
			err := cl.RPush(ctx, key, n).Err()
			if err == nil {
				break
			}
			if ctx.Err() != nil || time.Now().After(deadline) {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return nil
}

// A clusterTerm is a holder and its writers.
type clusterTerm struct {
	c       guard.Credential
	n       int64
	written atomic.Int64
	stop    context.CancelFunc
	writers sync.WaitGroup
}

// takeovers makes one holder after the other write. A holder's writers go on while the
// next one leads, and while the one after that takes over. Half of the times nothing comes
// out of one proxy any more when the next holder begins: what its sessions were about to
// write reaches the servers after the takeover.
func (r *clusterRaced) takeovers(t *testing.T, ctx context.Context, b election.Backend, count int) {
	var terms []*clusterTerm
	defer func() {
		for _, x := range terms {
			x.stop()
			x.writers.Wait()
		}
	}()
	for i := range count {
		if i > 0 && i%50 == 0 {
			t.Logf("%d takeovers", i)
		}
		proxy, reopen := rand.IntN(2), func() {}
		if i > 0 {
			if rand.IntN(2) == 0 {
				reopen = r.valves[1-proxy].shut()
			}
			if _, err := b.Resign(ctx, raceElection, terms[i-1].c.Token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := b.Acquire(ctx, raceElection, election.AcquireOptions{TTL: time.Hour})
		if err != nil || got.Status != election.Acquired {
			t.Fatalf("acquire: %+v, %v", got, err)
		}
		x := &clusterTerm{c: guard.Credential{Election: raceElection, Token: got.Token}, n: got.Number}
		var floods context.Context
		floods, x.stop = context.WithCancel(ctx)
		terms = append(terms, x)
		err = r.first(ctx, x.c, x.n, proxy)
		reopen()
		if err != nil {
			t.Fatalf("takeover %d: first writes of the live holder: %v", i, err)
		}
		if i > 1 {
			terms[i-2].stop()
			terms[i-2].writers.Wait()
		}
		for way := range clusterWays {
			for proxy := range r.proxies {
				x.writers.Go(func() { r.flood(floods, x.c, x.n, proxy, way, &x.written) })
			}
		}
		testenv.Eventually(t, "the writers write", func() bool { return x.written.Load() > 10*int64(len(clusterWays)) || ctx.Err() != nil })
	}
}

// late counts the writes of lower numbers behind one of a higher number, and all writes.
func (r *clusterRaced) late(t *testing.T, ctx context.Context) (late, all int) {
	for _, key := range r.keys {
		list, err := r.direct.LRange(ctx, key, 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		all += len(list)
		highest := int64(0)
		for i, s := range list {
			number, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if number < highest {
				late++
				if late < 10 {
					t.Logf("%s: %d at %d of %d, after %d", key, number, i, len(list), highest)
				}
			}
			highest = max(highest, number)
		}
	}
	return late, all
}

// A mover moves slots from one primary to another all the time, as redis-cli --cluster
// reshard does: those of the written keys, of the fence, of its copies, and any others.
type mover struct {
	c        *servers.RedisCluster
	election string
	keys     []string
	turn     sync.Locker // held while a slot moves
	moved    atomic.Int64
}

func (m *mover) run(t *testing.T, ctx context.Context) {
	top := rediscluster.New(rediscluster.Options{Seeds: []string{m.c.Primaries[0].Addr}, NodeTimeout: 10 * time.Second})
	defer top.Close()
	for ctx.Err() == nil {
		if err := m.move(ctx, top); err != nil && ctx.Err() == nil {
			t.Errorf("moving a slot: %v", err)
			return
		}
	}
}

func (m *mover) move(ctx context.Context, top *rediscluster.Topology) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	if err := top.Refresh(ctx); err != nil {
		return err
	}
	v := top.View()
	slot := rand.IntN(rediscluster.Slots)
	switch rand.IntN(4) {
	case 0:
		slot = rediscluster.Slot([]byte(redisfence.Key(m.election)))
	case 1:
		if n, _ := v.ByAddr(m.c.Primaries[rand.IntN(len(m.c.Primaries))].Addr); len(n.Slots) > 0 {
			slot = n.Slots[len(n.Slots)-1].Last
		}
	case 2:
		slot = rediscluster.Slot([]byte(m.keys[rand.IntN(len(m.keys))]))
	}
	owner, _ := v.Owner(slot)
	i := slices.IndexFunc(m.c.Primaries, func(p *servers.Process) bool { return p.Addr == owner.Addr })
	if i < 0 {
		return fmt.Errorf("slot %d is owned by %q", slot, owner.Addr)
	}
	from, to := m.c.Primaries[i], m.c.Primaries[(i+1+rand.IntN(len(m.c.Primaries)-1))%len(m.c.Primaries)]
	// Once it has begun it comes to its end.
	if err := m.c.MoveSlot(context.WithoutCancel(ctx), slot, from, to); err != nil {
		return err
	}
	m.moved.Add(1)
	return nil
}

const raceElection = "orders"

func clusterRace(t *testing.T, program string, replicas bool, takeovers int, wrap func(guard.Fence) guard.Fence) int {
	ctx := testenv.Context(t)
	c, err := servers.StartRedisClusterWithReplicas(ctx, servers.RedisOptions{Program: program}, 3, replicas)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { servers.StopAll(c.All()) })
	var addrs []string
	for _, p := range c.Primaries {
		addrs = append(addrs, p.Addr)
	}
	r := &clusterRaced{direct: redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, MaxRedirects: 16})}
	defer r.direct.Close()
	for i := range 30 {
		r.keys = append(r.keys, fmt.Sprintf("{k%d}", i))
	}
	r.keys = append(r.keys, "{"+raceElection+"}") // goes where the fence goes
	b := memory.New()
	for i := range r.proxies {
		r.proxies[i], r.valves[i] = clusterProxy(t, ctx, "redis+cluster://"+strings.Join(addrs, ","), b, wrap)
	}
	moving, stop := context.WithCancel(ctx)
	m := &mover{c: c, election: raceElection, keys: r.keys, turn: new(sync.Mutex)}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { m.run(t, moving) })
	start := time.Now()
	r.takeovers(t, ctx, b, takeovers)
	stop()
	wg.Wait()
	late, all := r.late(t, ctx)
	t.Logf("%d takeovers in %v, %d slots moved, %d writes, %d late", takeovers, time.Since(start).Round(time.Second), m.moved.Load(), all, late)
	if m.moved.Load() < int64(takeovers) {
		t.Error("hardly any slot moved")
	}
	return late
}

// No write of a lower number lands behind one of a higher number on any key of a cluster
// whose slots move all the time, whichever of two proxies it went through and however long
// that one was held up.
func TestRedisClusterNoLateWrites(t *testing.T) {
	takeovers := 20
	if long() {
		takeovers = 500
	}
	if late := clusterRace(t, testenv.RedisServer, long(), takeovers, nil); late != 0 {
		t.Errorf("%d late writes", late)
	}
}

func TestValkeyClusterNoLateWrites(t *testing.T) {
	takeovers := 5
	if long() {
		takeovers = 100
	}
	if late := clusterRace(t, testenv.ValkeyServer, false, takeovers, nil); late != 0 {
		t.Errorf("%d late writes", late)
	}
}

// The same race finds late writes when old connections are not severed.
func TestRedisClusterRaceFindsMissingSever(t *testing.T) {
	if late := clusterRace(t, testenv.ValkeyServer, false, 8, func(f guard.Fence) guard.Fence { return unsevered{f} }); late == 0 {
		t.Error("no late write without the sever step: this race cannot fail")
	}
}
