package resp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// A ClusterFence is the fence on the nodes of a cluster; *redisfence.ClusterFence is one.
type ClusterFence interface {
	// Confirm returns nil when the record still stands in the cluster and a sweep of a later
	// term will come to the node, ErrConflict when it is another by now. After any other
	// error it is not known. A bind asks it when the connection carries its name.
	Confirm(ctx context.Context, n rediscluster.Node, t guard.Term, r guard.Record) error
}

// A Topology knows a cluster's nodes, and is kept fresh by who made it;
// *rediscluster.Topology is one.
type Topology interface {
	View() *rediscluster.View
	Changed() <-chan struct{}
	Refresh(ctx context.Context) error
	Suspect()
	Client(addr string) *redis.Client
}

// ClusterConfig says what a Cluster serves.
type ClusterConfig struct {
	// Config is that of each node's sessions. Its Dial and Control are not used, and Upstream
	// only names the cluster in the log.
	Config
	// Fence and Topology are those of the cluster, which Config.Guard's fence is of, too.
	Fence    ClusterFence
	Topology Topology
	// DialNode connects to a node at host:port, within DialTimeout; nil means a Dialer with
	// UpstreamTLS and KeepAlive.
	DialNode func(ctx context.Context, addr string) (net.Conn, error)
	// Ports are those at which clients find the nodes, one for each node that there may
	// be: in this order for the nodes at the start, sorted by address, then for later ones. A
	// node keeps its port; one that is gone leaves it to a new one when no other is left.
	Ports []int
	// Listen opens one of the ports; nil means on all addresses.
	Listen func(ctx context.Context, port int) (net.Listener, error)
	// Announce is the host that clients are told for every node; empty means the address
	// at which the client itself reached the proxy.
	Announce string
}

// A Cluster serves the clients of a Redis or Valkey cluster: each node has a port of the
// proxy's, and clients are told no other addresses.
//
// INVARIANT: a client's connection leads to one node only, as if the proxy were not there.
// So a bind is of that node, and what passes untouched (MULTI, ASKING, READONLY, tracking)
// means what it means there.
type Cluster struct {
	c     ClusterConfig
	seed  *Server
	looks chan chan struct{}

	mu    sync.RWMutex
	ports map[string]int   // by node id
	nodes map[string]*node // those that are served
}

// listenAgain is how long after a port could not be opened it is tried again.
const listenAgain = 5 * time.Second

// NewCluster checks c and makes a Cluster. It asks nobody anything.
func NewCluster(c ClusterConfig) (*Cluster, error) {
	if c.Fence == nil || c.Topology == nil || len(c.Ports) == 0 {
		return nil, fmt.Errorf("%w: a cluster needs its fence, its topology and ports", ErrConfig)
	}
	for i, p := range c.Ports {
		if p < 1 || p > 65535 || slices.Contains(c.Ports[:i], p) {
			return nil, fmt.Errorf("%w: port %d is none, or given twice", ErrConfig, p)
		}
	}
	if c.DialNode == nil {
		c.DialNode = Dialer{TLS: c.UpstreamTLS, KeepAlive: c.KeepAlive}.Dial
	}
	if c.Listen == nil {
		c.Listen = func(ctx context.Context, port int) (net.Listener, error) {
			var lc net.ListenConfig
			return lc.Listen(ctx, "tcp", ":"+strconv.Itoa(port))
		}
	}
	k := &Cluster{looks: make(chan chan struct{}), ports: make(map[string]int), nodes: make(map[string]*node)}
	c.Dial = func(context.Context) (net.Conn, error) { return nil, errNoNode }
	c.Control = noControl{}
	var err error
	if c.Config, err = c.check(); err != nil {
		return nil, err
	}
	k.c = c
	seed := c.Config
	seed.IdleTimeout = 0 // every session is a node's, which says whether it is idle
	k.seed = newServer(seed, new(places))
	k.seed.cluster = k
	return k, nil
}

var errNoNode = errors.New("no primary of the cluster is known and reachable")

type noControl struct{}

func (noControl) Do(ctx context.Context, args ...any) *redis.Cmd {
	c := redis.NewCmd(ctx, args...)
	c.SetErr(errNoNode)
	return c
}

// Serve serves clients, those of l by a primary, until ctx is done, and returns when the
// last session has ended. It closes l.
func (k *Cluster) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { k.follow(ctx, &wg) })
	err := k.seed.Serve(ctx, l)
	cancel()
	wg.Wait()
	return err
}

// follow serves the nodes as they come and go.
func (k *Cluster) follow(ctx context.Context, wg *sync.WaitGroup) {
	for {
		changed := k.c.Topology.Changed()
		var again <-chan time.Time
		if view := k.c.Topology.View(); view != nil && !k.arrange(ctx, wg, view) {
			again = time.After(listenAgain)
		}
		select {
		case <-changed:
		case <-again:
		case done := <-k.looks:
			if view := k.c.Topology.View(); view != nil {
				k.arrange(ctx, wg, view)
			}
			close(done)
		case <-ctx.Done():
			return
		}
	}
}

// arrange makes what is served what the view says. It reports whether every node has its
// port.
func (k *Cluster) arrange(ctx context.Context, wg *sync.WaitGroup, view *rediscluster.View) bool {
	all := true
	for _, n := range view.Nodes() {
		if n.Addr == "" {
			continue
		}
		here, known := k.node(n.ID)
		if !known {
			here = k.newNode(n)
			k.mu.Lock()
			k.nodes[n.ID] = here
			k.mu.Unlock()
		}
		here.addr.Store(&n.Addr)
		if here.stop == nil && !k.open(ctx, wg, here, view) {
			all = false
		}
		if !n.Primary {
			// INVARIANT: a node that is no primary has no bound session. Were it promoted again,
			// they could go on writing; the sweep of a takeover comes to it all the same.
			here.endBound()
		}
	}
	k.mu.Lock()
	var gone []*node
	for id, n := range k.nodes {
		if now, ok := view.ByID(id); !ok || now.Addr == "" {
			delete(k.nodes, id)
			gone = append(gone, n)
		}
	}
	k.mu.Unlock()
	for _, n := range gone {
		k.c.Log.Info("a node has left the cluster", "node", n.id, "addr", *n.addr.Load())
		n.leave()
	}
	return all
}

func (k *Cluster) node(id string) (*node, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	n, ok := k.nodes[id]
	return n, ok
}

// port returns the port at which clients find a node.
func (k *Cluster) port(id string) (int, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	p, ok := k.ports[id]
	return p, ok
}

// open opens the port of a node and serves its clients.
func (k *Cluster) open(ctx context.Context, wg *sync.WaitGroup, n *node, view *rediscluster.View) bool {
	var failures []string
	for _, port := range k.candidates(n.id, view) {
		l, err := k.c.Listen(ctx, port)
		if err != nil {
			failures = append(failures, err.Error())
			continue
		}
		k.mu.Lock()
		for id, p := range k.ports {
			if p == port {
				delete(k.ports, id)
			}
		}
		k.ports[n.id] = port
		k.mu.Unlock()
		ctx, stop := context.WithCancel(ctx)
		n.stop, n.failure = stop, ""
		n.noPort.Store(false)
		wg.Go(func() {
			defer stop()
			if err := n.server.Serve(ctx, l); err != nil {
				k.c.Log.Error("a node's port failed", "node", n.id, "port", port, "error", err)
			}
		})
		k.c.Log.Info("serving a node of the cluster", "node", n.id, "addr", *n.addr.Load(), "port", port)
		return true
	}
	n.noPort.Store(true)
	failure := "there are more nodes than ports: add some to cluster.ports"
	if len(failures) > 0 {
		failure = strings.Join(failures, "; ")
	}
	if n.failure != failure { // this is tried often
		n.failure = failure
		k.c.Log.Error("a node of the cluster is not served: no port could be opened for it", "node", n.id, "addr", *n.addr.Load(), "error", failure)
	}
	return false
}

// candidates are the ports that a node may get: its own, else those that nobody has, else
// those of nodes that are gone.
func (k *Cluster) candidates(id string, view *rediscluster.View) []int {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if p, ok := k.ports[id]; ok {
		return []int{p}
	}
	taken, left := make(map[int]bool), make(map[int]bool)
	for other, p := range k.ports {
		taken[p] = true
		if _, there := view.ByID(other); !there {
			left[p] = true
		}
	}
	var free, old []int
	for _, p := range k.c.Ports {
		switch {
		case !taken[p]:
			free = append(free, p)
		case left[p]:
			old = append(old, p)
		}
	}
	return append(free, old...)
}

// refresh looks at the cluster anew, and serves the nodes that are new.
func (k *Cluster) refresh(ctx context.Context) {
	if err := k.c.Topology.Refresh(ctx); err != nil {
		return
	}
	done := make(chan struct{})
	select {
	case k.looks <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// reach connects to any primary, those that are not known to have failed first.
func (k *Cluster) reach(ctx context.Context) (*Server, *table, net.Conn, error) {
	primaries := k.primaries()
	if len(primaries) == 0 { // the proxy may have only just begun
		asking, cancel := context.WithTimeout(ctx, k.c.DialTimeout)
		k.refresh(asking)
		cancel()
		primaries = k.primaries()
	}
	err := errNoNode
	for _, n := range primaries {
		t, c, failure := n.server.open(ctx)
		if failure == nil {
			return n.server, t, c, nil
		}
		err = failure
		if ctx.Err() != nil {
			break
		}
	}
	k.c.Topology.Suspect()
	return nil, nil, nil, err
}

// primaries are those that are served, in random order, those that are known to have failed
// or to have no slots last.
func (k *Cluster) primaries() []*node {
	view := k.c.Topology.View()
	if view == nil {
		return nil
	}
	var good, bad []*node
	for _, n := range view.Nodes() {
		here, ok := k.node(n.ID)
		_, served := k.port(n.ID)
		switch {
		case !ok || !served || !n.Primary:
		case n.Failed || len(n.Slots) == 0:
			bad = append(bad, here)
		default:
			good = append(good, here)
		}
	}
	//nolint:gosec // to spread load, not to hide
	rand.Shuffle(len(good), func(i, j int) { good[i], good[j] = good[j], good[i] })
	return append(good, bad...)
}

// host is what a client is told as every node's host.
func (k *Cluster) host(client net.Conn) string {
	if k.c.Announce != "" {
		return k.c.Announce
	}
	if a, err := netip.ParseAddrPort(client.LocalAddr().String()); err == nil {
		return a.Addr().Unmap().WithZone("").String()
	}
	return "127.0.0.1" // a Unix socket
}
