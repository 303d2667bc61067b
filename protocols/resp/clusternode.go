package resp

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
)

// A node is a node of a cluster with its sessions.
type node struct {
	id      string
	cluster *Cluster
	server  *Server
	addr    atomic.Pointer[string]
	stop    context.CancelFunc // ends serving its port; only arrange uses it
	failure string             // why it has no port, as it was logged; only arrange uses it
	noPort  atomic.Bool        // it cannot be had for now

	mu       sync.Mutex
	sessions map[*session]context.CancelFunc
	gone     bool
}

func (k *Cluster) newNode(n rediscluster.Node) *node {
	here := &node{id: n.ID, cluster: k, sessions: make(map[*session]context.CancelFunc)}
	here.addr.Store(&n.Addr)
	c := k.c.Config
	c.Upstream, c.Control = n.Addr, here
	c.Dial = func(ctx context.Context) (net.Conn, error) { return k.c.DialNode(ctx, *here.addr.Load()) }
	here.server = newServer(c, k.seed.places)
	here.server.node = here
	return here
}

// Do asks the node on a control connection.
func (n *node) Do(ctx context.Context, args ...any) *redis.Cmd {
	return n.cluster.c.Topology.Client(*n.addr.Load()).Do(ctx, args...)
}

// enter takes in a session that begins; end ends it in order.
func (n *node) enter(x *session, end context.CancelFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sessions[x] = end
	if n.gone {
		end()
	}
}

func (n *node) exit(x *session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sessions, x)
}

// endBound ends the sessions that are bound, or about to be.
func (n *node) endBound() {
	n.mu.Lock()
	all := make([]*session, 0, len(n.sessions))
	for x := range n.sessions {
		all = append(all, x)
	}
	n.mu.Unlock()
	for _, x := range all {
		x.mu.Lock()
		held := x.core.holds()
		x.mu.Unlock()
		if held {
			x.endNow("")
		}
	}
}

// leave ends all sessions in order: the node is gone.
func (n *node) leave() {
	if n.stop != nil {
		n.stop()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = true
	for _, end := range n.sessions {
		end()
	}
}

// settling is how long a bind waits for a cluster that is about to change: a node that was
// just promoted is a primary before its slots are known to be its own.
const settling = time.Second

// confirmSoon is confirm, once more each time that the cluster changes meanwhile.
func (n *node) confirmSoon(ctx context.Context, p *guard.Permit) (confirmation, error) {
	limit := time.NewTimer(settling)
	defer limit.Stop()
	for {
		changed := n.cluster.c.Topology.Changed()
		is, err := n.confirm(ctx, p)
		if err == nil {
			return is, nil
		}
		n.cluster.c.Topology.Suspect()
		select {
		case <-changed:
		case <-limit.C:
			return is, err
		case <-ctx.Done():
			return is, err
		}
	}
}

// confirm asks whether the record is as the permit says.
func (n *node) confirm(ctx context.Context, p *guard.Permit) (confirmation, error) {
	view := n.cluster.c.Topology.View()
	now, ok := view.ByID(n.id)
	if !ok {
		return isUnknown, errNoNode
	}
	switch err := n.cluster.c.Fence.Confirm(ctx, now, p.Term(), p.Record()); {
	case err == nil:
		return isRecorded, nil
	case errors.Is(err, guard.ErrConflict):
		return isChanged, nil
	case errors.Is(err, redisfence.ErrNotPrimary):
		return isEarly, err
	default:
		return isUnknown, err
	}
}

// A neighbourhood is the cluster as one session sees it.
type neighbourhood struct {
	n    *node
	host string
}

var _ clusterMap = neighbourhood{}

func (h neighbourhood) view() *rediscluster.View { return h.n.cluster.c.Topology.View() }

func (h neighbourhood) id() string { return h.n.id }

func (h neighbourhood) primary() bool {
	n, ok := h.view().ByID(h.n.id)
	return ok && n.Primary
}

func (h neighbourhood) node(id []byte) (address, bool) {
	if port, ok := h.n.cluster.port(string(id)); ok {
		return address{host: h.host, port: port}, true
	}
	if n, ok := h.n.cluster.node(string(id)); ok && n.noPort.Load() {
		return address{unserved: n.id}, false
	}
	return address{}, false
}

func (h neighbourhood) at(n rediscluster.Node) (address, bool) { return h.node([]byte(n.ID)) }

func (h neighbourhood) redirected(slot int, moved bool, host, port string) (address, bool) {
	v := h.view()
	owner, owned := v.Owner(slot)
	var (
		n  rediscluster.Node
		ok bool
	)
	switch host {
	case "":
		own, _, _ := net.SplitHostPort(*h.n.addr.Load())
		n, ok = v.ByAddr(net.JoinHostPort(own, port))
	case "?": // a node that has no hostname, where those are told
		_, its, _ := net.SplitHostPort(owner.Addr)
		n, ok = owner, owned && its == port
	default:
		n, ok = v.ByAddr(net.JoinHostPort(host, port))
	}
	if !ok || moved && n.ID != owner.ID {
		h.n.cluster.c.Topology.Suspect()
	}
	if !ok {
		return address{}, false
	}
	return h.at(n)
}

func (h neighbourhood) owner(slot int) (address, bool) {
	n, ok := h.view().Owner(slot)
	if !ok || n.ID == h.n.id {
		h.n.cluster.c.Topology.Suspect()
		return address{}, false
	}
	return h.at(n)
}

func (h neighbourhood) shardSlot() (int, bool) {
	v := h.view()
	n, _ := v.ByID(h.n.id)
	if p, ok := v.ByID(n.PrimaryID); ok && len(p.Slots) > 0 {
		return p.Slots[0].First, true
	}
	return 0, false
}
