package redisfence

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// Errors of a ClusterFence, for errors.Is.
var (
	// ErrNotPrimary: the node is no primary, and nobody may bind there.
	ErrNotPrimary = errors.New("the node is not a primary")
	// ErrBehind: the fence is behind a copy of it on another node: a failover lost its last
	// raise. The next raise mends it.
	ErrBehind = errors.New("the fence lost its last raise, as copies of it on other nodes show")
)

// ClusterRules are the ACL rules of a control user on each node of a cluster.
const ClusterRules = Rules + " +cluster|nodes +cluster|myid +smembers +smismember +sadd +srem +asking"

// ClusterOptions tune a ClusterFence. The zero value is a working default.
type ClusterOptions struct {
	// Log receives what concerns no call: nodes that return, topologies that cannot be
	// refreshed; nil means no log.
	Log *slog.Logger
	// TLS is that of Options.
	TLS func(host string) *tls.Config
}

// A ClusterFence is the fence of a Redis or Valkey cluster. It implements guard.Fence.
//
// The record is one key, as on a single server, in the slot that its name gives it: its
// home. Raises are ordered there. Beside it, in the same slot, a set holds the members:
// every node on which a connection may be bound, and the slots that hold copies. A copy
// says which record rules, on each primary, in a slot of that primary's own.
//
// INVARIANT: nobody is bound on a node unless, after the connection had its name, the home
// was seen to hold the record and the node as a member, and the node the record's copy
// (Confirm). A sever reads the members after the raise, writes all copies, and then sweeps
// every member and every node that any node knows (Sever). So a bind that a raise did not
// stop at home is on a node that its sever looks at, with the name on; and where a failover
// lost the raise at home, the copies still refuse the older term.
type ClusterFence struct {
	top  *rediscluster.Topology
	log  *slog.Logger
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu sync.Mutex
	// known are the elections that were seen here, whose fences a node that returns must
	// be swept for.
	known map[string]struct{}
	// owed are the ids of nodes that are to be swept when they answer.
	owed  map[string]struct{}
	nudge chan struct{}
}

var _ guard.Fence = (*ClusterFence)(nil)

// OpenCluster makes control clients for a URL as rediscluster.ParseURL reads it, and
// follows the cluster's topology until Close; it does not wait for the servers.
func OpenCluster(_ context.Context, url string, o ClusterOptions) (*ClusterFence, error) {
	c, err := rediscluster.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("control connection: %w", err)
	}
	c.Log = o.Log
	if o.TLS != nil && c.Redis.TLSConfig != nil {
		c.Redis.Dialer = DialTLS(o.TLS, c.Redis.DialTimeout)
	}
	return NewCluster(c, o), nil
}

// NewCluster makes control clients for a cluster, and follows its topology until Close.
func NewCluster(c rediscluster.Options, o ClusterOptions) *ClusterFence {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &ClusterFence{top: rediscluster.New(c), log: o.Log, stop: stop,
		known: make(map[string]struct{}), owed: make(map[string]struct{}), nudge: make(chan struct{}, 1)}
	f.wg.Go(func() { _ = f.top.Run(ctx) })
	f.wg.Go(func() { f.watch(ctx) })
	return f
}

// Close ends what OpenCluster began and closes the control connections.
func (f *ClusterFence) Close() error {
	f.stop()
	f.wg.Wait()
	return f.top.Close()
}

// Topology is the cluster's, which the fence keeps running.
func (f *ClusterFence) Topology() *rediscluster.Topology { return f.top }

// Read implements guard.Fence.
func (f *ClusterFence) Read(ctx context.Context, electionID string) (guard.Record, error) {
	key := Key(electionID)
	value, err := f.do(ctx, key, retry, "GET", key).Text()
	return recordIn(key, value, err)
}

// Swap implements guard.Fence.
func (f *ClusterFence) Swap(ctx context.Context, electionID string, old, new guard.Record) error {
	key, was := Key(electionID), ""
	if old != (guard.Record{}) {
		was = Encode(old)
	}
	swapped, err := f.do(ctx, key, once, "EVAL", swap, 1, key, was, Encode(new)).Int64()
	if err != nil {
		return fmt.Errorf("writing %s: %w", key, explain(err))
	}
	if swapped != 1 {
		return guard.ErrConflict
	}
	return nil
}

// membersKey is the key of the set of an election's members, in the slot of its fence.
func membersKey(electionID string) string { return Prefix + "{" + electionID + "}:nodes" }

// copyKey is the key of the copy of an election's fence in a slot.
func copyKey(electionID string, slot int) string {
	return Prefix + "{" + rediscluster.Tag(slot) + "}:copy:" + electionID
}

// remember notes that the election is fenced here.
func (f *ClusterFence) remember(electionID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known[electionID] = struct{}{}
}

// A member of an election: a node, as "node:id@host:port", or a slot with a copy, as
// "slot:n".
func nodeMember(n rediscluster.Node) string { return "node:" + n.ID + "@" + n.Addr }
func slotMember(slot int) string            { return "slot:" + strconv.Itoa(slot) }

// copySlot is the slot for the copy on a node: the last of its own that is not on its way
// to another, where there is one. Most tools move a node's first slots first.
func copySlot(n rediscluster.Node) (slot int, ok bool) {
	slot, tries := -1, len(n.Leaving)
	for i := len(n.Slots) - 1; i >= 0; i-- {
		for s := n.Slots[i].Last; s >= n.Slots[i].First; s-- {
			if slot < 0 {
				slot = s
			}
			if !slices.Contains(n.Leaving, s) {
				return s, true
			}
			if tries--; tries < 0 {
				return slot, true
			}
		}
	}
	return slot, slot >= 0
}
