package redisfence

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// confirmTries is how often Confirm looks: slots may move between two looks.
const confirmTries = 4

// Confirm says whether a connection to a node that has its name on is bound to the term by
// the record, which has to be severed: nil if it is, guard.ErrConflict if the fence is
// another. Any other error leaves it unknown.
//
// INVARIANT: what Confirm reads it reads after the call, and so after the name was on:
// a raise that it does not see at home comes later, and its sever sees the node among the
// members; a copy that it does not see on the node comes later, and so does the sweep.
func (f *ClusterFence) Confirm(ctx context.Context, node rediscluster.Node, t guard.Term, r guard.Record) error {
	if r.State != guard.Severed || r.Highest != t.Number || r.Holder != t.Digest {
		return fmt.Errorf("confirming: %w", guard.ErrConflict)
	}
	f.remember(t.Election)
	witnessed := false
	for range confirmTries {
		bound, err := f.look(ctx, &node, t.Election, r, witnessed)
		if err != nil || bound {
			return err
		}
		if err := f.enlist(ctx, &node, t.Election, r); err != nil {
			return f.changed(ctx, t.Election, r, err)
		}
		witnessed = true
	}
	return fmt.Errorf("confirming: slots move: %w", guard.ErrConflict)
}

// changed is the error of what failed, or guard.ErrConflict where it failed since the
// record is another by now.
func (f *ClusterFence) changed(ctx context.Context, electionID string, r guard.Record, failed error) error {
	if now, err := f.Read(ctx, electionID); err == nil && now != r {
		return fmt.Errorf("confirming: %w", guard.ErrConflict)
	}
	return failed
}

// look reports whether all is in place: the record at home, the node and the copy's slot
// among the members, the copy on the node itself, and the same copy on another primary,
// which is the witness: a failover of the home's own primary that loses a raise may lose
// the copy on it too. Where all copies were looked at since, no witness is needed.
func (f *ClusterFence) look(ctx context.Context, node *rediscluster.Node, electionID string, r guard.Record, witnessed bool) (bool, error) {
	if err := f.place(ctx, node); err != nil {
		return false, err
	}
	slot, has := copySlot(*node)
	if !has {
		return f.lookWithoutSlot(ctx, *node, electionID, r)
	}
	var (
		wg              sync.WaitGroup
		value, other    string
		copyErr, asking error
	)
	wg.Go(func() {
		// INVARIANT: read from the node itself, wherever the slot may be.
		value, copyErr = textOf(f.send(ctx, node.Addr, false, []any{"GET", copyKey(electionID, slot)}))
	})
	if w, ok := witness(f.top.View(), *node); ok && !witnessed {
		wg.Go(func() {
			s, _ := copySlot(w)
			other, asking = textOf(f.send(ctx, w.Addr, false, []any{"GET", copyKey(electionID, s)}))
		})
	} else {
		other = encodeCopy(r)
	}
	members, record, err := f.home(ctx, electionID, nodeMember(*node), slotMember(slot))
	wg.Wait()
	switch {
	case err != nil:
		return false, err
	case record != Encode(r):
		return false, fmt.Errorf("confirming: %w", guard.ErrConflict)
	case copyErr == nil:
		want := encodeCopy(r)
		return members && value == want && asking == nil && other == want, nil
	}
	return false, f.elsewhere(ctx, *node, copyErr)
}

// lookWithoutSlot is look where the node owns no slot yet, and cannot hold a copy: all
// other copies are looked at in its place.
func (f *ClusterFence) lookWithoutSlot(ctx context.Context, node rediscluster.Node, electionID string, r guard.Record) (bool, error) {
	member, record, err := f.home(ctx, electionID, nodeMember(node))
	switch {
	case err != nil:
		return false, err
	case record != Encode(r):
		return false, fmt.Errorf("confirming: %w", guard.ErrConflict)
	case !member:
		return false, nil
	}
	if err := f.noneAbove(ctx, electionID, r); err != nil {
		return false, f.changed(ctx, electionID, r, err)
	}
	return true, nil
}

// witness is another primary than the node: the next one by address that answered lately,
// or else any.
func witness(v *rediscluster.View, node rediscluster.Node) (w rediscluster.Node, ok bool) {
	rank := func(n rediscluster.Node) (r int) {
		if n.Answered {
			r += 2
		}
		if n.Addr > node.Addr {
			r++
		}
		return r
	}
	for _, n := range v.Nodes() {
		if _, has := copySlot(n); has && n.Primary && n.ID != node.ID && (!ok || rank(n) > rank(w)) {
			w, ok = n, true
		}
	}
	return w, ok
}

// place brings the node up to the newest view.
func (f *ClusterFence) place(ctx context.Context, node *rediscluster.Node) error {
	if f.top.View() == nil {
		if err := f.top.Refresh(ctx); err != nil {
			return err
		}
	}
	now, ok := f.top.View().ByID(node.ID)
	if !ok || !now.Primary {
		if err := f.top.Refresh(ctx); err != nil {
			return err
		}
		now, ok = f.top.View().ByID(node.ID)
	}
	if !ok || !now.Primary {
		return fmt.Errorf("%s: %w", node.Addr, ErrNotPrimary)
	}
	*node = now
	return nil
}

// elsewhere deals with a node's refusal to serve a copy: where it says that the slot is on
// its way or on another node, there is a newer view.
func (f *ClusterFence) elsewhere(ctx context.Context, node rediscluster.Node, err error) error {
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	if moved || ask || redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "CLUSTERDOWN") {
		if err := pause(ctx); err != nil {
			return err
		}
		return f.top.Refresh(ctx)
	}
	return fmt.Errorf("%w: %s: the copy of the fence: %w", ErrNode, node.Addr, explain(err))
}

// enlist makes the node a member and puts the copy on it. The caller has seen that the
// home holds the record, and looks again.
//
// INVARIANT: a copy that is missing is put only if no other copy is above the record, on
// any primary or in any slot that ever held one: a home that lost a raise does not bring
// an older term back.
func (f *ClusterFence) enlist(ctx context.Context, node *rediscluster.Node, electionID string, r guard.Record) error {
	if err := f.top.Refresh(ctx); err != nil {
		return err
	}
	if err := f.place(ctx, node); err != nil {
		return err
	}
	slot, has := copySlot(*node)
	add := []string{nodeMember(*node)}
	if has {
		add = append(add, slotMember(slot))
	}
	if err := f.addMembers(ctx, electionID, add...); err != nil || !has {
		return err
	}
	if err := f.noneAbove(ctx, electionID, r); err != nil {
		return err
	}
	key := copyKey(electionID, slot)
	there, err := f.send(ctx, node.Addr, false, putArgs(key, r)).Text()
	var said redis.Error
	if errors.As(err, &said) {
		return f.elsewhere(ctx, *node, err)
	}
	var above *guard.BoundAboveError
	if err = copyPut(electionID, key, there, r, err); errors.As(err, &above) {
		return fmt.Errorf("%w: number %d of election %q", ErrBehind, above.Number, electionID)
	}
	return err
}

// noneAbove looks at all copies, and fails if one is above the record.
func (f *ClusterFence) noneAbove(ctx context.Context, electionID string, r guard.Record) error {
	m, err := f.members(ctx, electionID)
	if err != nil {
		return err
	}
	return firstOf(several(copySlots(f.top.View(), m), func(slot int) error {
		value, err := f.getCopy(ctx, electionID, slot)
		if err != nil {
			return err
		}
		n, err := copyNumber(value)
		if err == nil && n > r.Highest {
			err = fmt.Errorf("%w: number %d of election %q", ErrBehind, n, electionID)
		}
		return err
	}))
}
