package redisfence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// atOnce is how many nodes or slots are dealt with at the same time.
const atOnce = 16

// A severing is one Sever under way.
type severing struct {
	f       *ClusterFence
	t       guard.Term
	record  guard.Record
	copied  map[int]bool    // slots
	swept   map[string]bool // nodes, by id; also those that need not be
	excused []string        // addresses
}

// Sever implements guard.Fence. The record must be the term's already.
//
// INVARIANT: members are read after the raise; a node is swept after all copies are in
// place; and it goes on until nothing is left that was not dealt with, since nodes join,
// slots move and primaries change meanwhile.
func (f *ClusterFence) Sever(ctx context.Context, t guard.Term) error {
	f.remember(t.Election)
	record, err := f.Read(ctx, t.Election)
	switch {
	case err != nil:
		return err
	case record.Highest > t.Number:
		return &guard.BoundAboveError{Election: t.Election, Number: record.Highest}
	case record.Highest != t.Number || record.Holder != t.Digest:
		return fmt.Errorf("severing: %w", guard.ErrConflict)
	}
	x := &severing{f: f, t: t, record: record, copied: make(map[int]bool), swept: make(map[string]bool)}
	start := time.Now()
	for {
		more, err := x.round(ctx)
		var above *guard.BoundAboveError
		switch {
		case err == nil && !more:
			if len(x.excused) > 0 {
				f.log.Warn("nodes that the cluster has given up were not swept", "election", t.Election, "number", t.Number, "nodes", x.excused)
			}
			return nil
		case errors.As(err, &above), errors.Is(err, ErrRights):
			return err
		case err != nil && (ctx.Err() != nil || time.Since(start) > nodeTimeout || pause(ctx) != nil):
			return err
		}
	}
}

// round does what is left to do as the cluster is now, and reports whether there was any.
func (x *severing) round(ctx context.Context) (more bool, err error) {
	m, err := x.f.members(ctx, x.t.Election)
	if err != nil {
		return false, err
	}
	if err := x.f.top.RefreshWith(ctx, m.nodes...); err != nil {
		return false, err
	}
	v := x.f.top.View()
	slots := slices.DeleteFunc(copySlots(v, m), func(s int) bool { return x.copied[s] })
	if err := firstOf(several(slots, func(slot int) error { return x.f.putAnywhere(ctx, x.t.Election, slot, x.record) })); err != nil {
		return false, err
	}
	for _, s := range slots {
		x.copied[s] = true
	}
	nodes := slices.DeleteFunc(x.nodes(v, m), func(n rediscluster.Node) bool { return x.swept[n.ID] })
	if err := x.sweep(ctx, v, nodes); err != nil {
		return false, err
	}
	if len(slots) > 0 || len(nodes) > 0 {
		return true, nil
	}
	x.forget(ctx, v, m)
	return false, nil
}

// copySlots are the slots in which a copy is or has to be: the members', as far as anybody
// owns them, and one of each primary.
func copySlots(v *rediscluster.View, m members) (slots []int) {
	for _, s := range m.slots {
		if _, owned := v.Owner(s); owned {
			slots = append(slots, s)
		}
	}
	for _, n := range v.Nodes() {
		if s, ok := copySlot(n); ok && n.Primary {
			slots = append(slots, s)
		}
	}
	slices.Sort(slots)
	return slices.Compact(slots)
}

// nodes are all that may have connections: those that any node knows, and the members.
func (x *severing) nodes(v *rediscluster.View, m members) []rediscluster.Node {
	nodes := slices.Clone(v.Nodes())
	for _, n := range m.nodes {
		if _, listed := v.ByID(n.ID); !listed {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// sweep sweeps nodes, several at a time, but those that need not be.
func (x *severing) sweep(ctx context.Context, v *rediscluster.View, nodes []rediscluster.Node) error {
	errs := several(nodes, func(n rediscluster.Node) error {
		if declared(v, n) {
			return errGivenUp
		}
		err := x.f.sweepNode(ctx, n, x.t)
		if silent(ctx, err) && unlisted(v, n) {
			return errGivenUp
		}
		return err
	})
	for i, n := range nodes {
		if errors.Is(errs[i], errGivenUp) {
			x.excused = append(x.excused, n.Addr)
			x.f.owe(n.ID)
			errs[i] = nil
		}
		if errs[i] == nil {
			x.swept[n.ID] = true
		}
	}
	return firstOf(errs)
}

// several calls do for each item, some at a time, and returns their errors.
func several[T any](items []T, do func(T) error) []error {
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, item := range items {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			errs[i] = do(item)
		})
	}
	wg.Wait()
	return errs
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Two kinds of nodes need not be swept. What is written on them the cluster throws away
// should they return.
//
// INVARIANT: the owners of more than half of all slots say so.

// declared: it does not answer, the cluster has declared it failed, and its slots are
// others'.
func declared(v *rediscluster.View, n rediscluster.Node) bool {
	now, listed := v.ByID(n.ID)
	return listed && !now.Answered && now.Failed && len(now.Slots) == 0 && heard(v)
}

// unlisted: no node lists it any more.
func unlisted(v *rediscluster.View, n rediscluster.Node) bool {
	_, listed := v.ByID(n.ID)
	return !listed && heard(v)
}

// heard reports whether the owners of more than half of all slots answered.
func heard(v *rediscluster.View) bool {
	slots := 0
	for _, n := range v.Nodes() {
		for _, r := range n.Slots {
			if n.Answered {
				slots += r.Last - r.First + 1
			}
		}
	}
	return slots > rediscluster.Slots/2
}

// silent reports whether a node could not be swept since it is not there: nothing came
// from it, or another node has its address.
func silent(ctx context.Context, err error) bool {
	var said redis.Error
	var above *guard.BoundAboveError
	return err != nil && ctx.Err() == nil && !errors.As(err, &said) && !errors.As(err, &above)
}

// sweepNode sweeps one node, after it has said who it is.
func (f *ClusterFence) sweepNode(ctx context.Context, n rediscluster.Node, t guard.Term) error {
	failed := func(doing string, err error) error {
		return fmt.Errorf("%w: node %s at %s (if it is gone for good: CLUSTER FORGET it): %s: %w", ErrNode, n.ID, n.Addr, doing, explain(err))
	}
	if n.Addr == "" {
		return failed("asking who it is", errNoAddress)
	}
	c := f.top.Client(n.Addr)
	var id string
	if err := patiently(ctx, c, func() (err error) {
		id, err = c.Do(ctx, "CLUSTER", "MYID").Text()
		return err
	}); err != nil {
		return failed("asking who it is", err)
	}
	err := sweep(ctx, c, t, failed)
	if id != n.ID {
		// It may be the same server under another id, which it got by CLUSTER RESET.
		return failed("asking who it is", errOther)
	}
	return err
}

var (
	errGivenUp   = errors.New("it need not be swept")
	errNoAddress = errors.New("nobody knows its address")
	errOther     = errors.New("another node answers at its address")
)

// forget drops members that are of no use any more: addresses that a node has left, and
// nodes that nobody lists.
func (x *severing) forget(ctx context.Context, v *rediscluster.View, m members) {
	var old []string
	for _, n := range m.nodes {
		if now, listed := v.ByID(n.ID); !listed || now.Answered && now.Addr != n.Addr {
			old = append(old, nodeMember(n))
		}
	}
	x.f.dropMembers(ctx, x.t.Election, x.record, old)
}
