package redisfence

import (
	"context"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// owe notes that a node may have connections of ended terms, and is to be swept as soon as
// it answers.
func (f *ClusterFence) owe(id string) {
	f.mu.Lock()
	f.owed[id] = struct{}{}
	f.mu.Unlock()
	select {
	case f.nudge <- struct{}{}:
	default:
	}
}

// watch sweeps each node that returns after it did not answer. A takeover may have done
// without it, and a connection that it kept would write again if the node became a primary
// once more. It is a second net: Sever and Confirm do not rely on it.
func (f *ClusterFence) watch(ctx context.Context) {
	answered := make(map[string]bool) // by id
	tick := time.NewTicker(rediscluster.DefaultEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		changed := f.top.Changed()
		if v := f.top.View(); v != nil {
			for _, n := range v.Nodes() {
				if before, known := answered[n.ID]; known && !before && n.Answered {
					f.owe(n.ID)
				}
				answered[n.ID] = n.Answered
			}
			f.settle(ctx, v)
		}
		select {
		case <-changed:
		case <-f.nudge:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// settle sweeps the nodes that it is owed and that answer.
func (f *ClusterFence) settle(ctx context.Context, v *rediscluster.View) {
	f.mu.Lock()
	var owed, elections []string
	for id := range f.owed {
		owed = append(owed, id)
	}
	for id := range f.known {
		elections = append(elections, id)
	}
	f.mu.Unlock()
	slices.Sort(elections)
	for _, id := range owed {
		n, listed := v.ByID(id)
		if listed && (!n.Answered || !f.returned(ctx, n, elections)) {
			continue
		}
		f.mu.Lock()
		delete(f.owed, id)
		f.mu.Unlock()
	}
}

// returned sweeps a node for every election that is known here, and reports whether that
// was done.
func (f *ClusterFence) returned(ctx context.Context, n rediscluster.Node, elections []string) bool {
	for _, id := range elections {
		r, err := f.Read(ctx, id)
		if err == nil && r != (guard.Record{}) {
			// Every term below the record's has ended, however far its sever has come.
			err = f.sweepNode(ctx, n, guard.Term{Election: id, Number: r.Highest, Digest: r.Holder})
		}
		if err != nil {
			f.log.Info("a node that returned cannot be swept yet", "node", n.Addr, "election", id, "error", err)
			return false
		}
	}
	f.log.Info("a node that returned was swept", "node", n.Addr)
	return true
}
