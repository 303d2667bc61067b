package redisfence

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// Members are what an election's set of members holds.
type members struct {
	nodes []rediscluster.Node // ID and Addr
	slots []int
	text  []string // as in the set
}

// members reads the set. What is in it after a raise holds every node on which the raise
// did not stop a bind.
func (f *ClusterFence) members(ctx context.Context, electionID string) (m members, err error) {
	key := membersKey(electionID)
	if m.text, err = f.do(ctx, key, retry, "SMEMBERS", key).StringSlice(); err != nil {
		return m, fmt.Errorf("reading %s: %w", key, explain(err))
	}
	for _, s := range m.text {
		kind, rest, _ := strings.Cut(s, ":")
		id, addr, _ := strings.Cut(rest, "@")
		slot, err := strconv.Atoi(rest)
		switch {
		case kind == "node" && id != "" && addr != "":
			m.nodes = append(m.nodes, rediscluster.Node{ID: id, Addr: addr})
		case kind == "slot" && err == nil && slot >= 0 && slot < rediscluster.Slots:
			m.slots = append(m.slots, slot)
		default:
			return m, fmt.Errorf("reading %s: %w", key, ErrCorrupt)
		}
	}
	return m, nil
}

// addMembers adds to the set, also where memory is exhausted.
const addMembers = `#!lua flags=allow-oom
for _, m in ipairs(ARGV) do redis.call('SADD', KEYS[1], m) end
return 'OK'
`

func (f *ClusterFence) addMembers(ctx context.Context, electionID string, ms ...string) error {
	key := membersKey(electionID)
	args := []any{"EVAL", addMembers, 1, key}
	for _, m := range ms {
		args = append(args, m)
	}
	if err := f.do(ctx, key, retry, args...).Err(); err != nil {
		return fmt.Errorf("writing %s: %w", key, explain(err))
	}
	return nil
}

// dropMembers removes members while the record still stands raised, as is fit for the one
// who severs: before it is marked nobody is bound on what it removes.
const dropMembers = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for i = 2, #ARGV do redis.call('SREM', KEYS[2], ARGV[i]) end
return 1
`

// dropMembers removes what is needed no more; what cannot be removed is looked at the next
// time too.
func (f *ClusterFence) dropMembers(ctx context.Context, electionID string, raised guard.Record, ms []string) {
	if len(ms) == 0 || raised.State != guard.Raised {
		return
	}
	key := Key(electionID)
	args := []any{"EVAL", dropMembers, 2, key, membersKey(electionID), Encode(raised)}
	for _, m := range ms {
		args = append(args, m)
	}
	_ = f.do(ctx, key, once, args...).Err()
}

// home asks, in this order, whether the set has members, and for the record: in one flight
// where the slot stays where it is.
func (f *ClusterFence) home(ctx context.Context, electionID string, ms ...string) (all bool, value string, err error) {
	set, key := membersKey(electionID), Key(electionID)
	ask := []any{"SMISMEMBER", set}
	for _, m := range ms {
		ask = append(ask, m)
	}
	if n, err := f.owner(ctx, rediscluster.Slot([]byte(key))); err == nil {
		bounded, cancel := context.WithTimeout(ctx, nodeTimeout)
		defer cancel()
		p := f.top.Client(n.Addr).Pipeline()
		has, get := p.Do(bounded, ask...), p.Do(bounded, "GET", key)
		_, _ = p.Exec(bounded) // each command has its own error
		there, err1 := has.Int64Slice()
		value, err2 := textOf(get)
		if err1 == nil && err2 == nil {
			return !slices.Contains(there, 0), value, nil
		}
	}
	// INVARIANT: the record is read after the membership was seen, not before.
	there, err := f.do(ctx, set, retry, ask...).Int64Slice()
	if err != nil {
		return false, "", fmt.Errorf("reading %s: %w", set, explain(err))
	}
	value, err = textOf(f.do(ctx, key, retry, "GET", key))
	if err != nil {
		return false, "", fmt.Errorf("reading %s: %w", key, explain(err))
	}
	return !slices.Contains(there, 0), value, nil
}
