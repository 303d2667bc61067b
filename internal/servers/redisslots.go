package servers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A RedisCluster is a running cluster, which can be changed while it is used.
type RedisCluster struct {
	Primaries []*Process
	// Replicas are those that AddReplica started.
	Replicas []*Process
	o        RedisOptions
}

// StartRedisClusterWithReplicas starts a cluster of so many primaries, and one replica of
// each if asked to.
func StartRedisClusterWithReplicas(ctx context.Context, o RedisOptions, primaries int, replicas bool) (*RedisCluster, error) {
	nodes, err := StartRedisCluster(ctx, o, primaries)
	if err != nil {
		return nil, err
	}
	c := &RedisCluster{Primaries: nodes, o: o}
	for _, p := range nodes {
		if !replicas {
			break
		}
		if _, err := c.AddReplica(ctx, p); err != nil {
			StopAll(c.All())
			return nil, err
		}
	}
	return c, nil
}

// All are all processes of the cluster.
func (c *RedisCluster) All() []*Process {
	return append(append([]*Process{}, c.Primaries...), c.Replicas...)
}

// AddPrimary starts a primary that owns no slot, and waits until every node knows it.
func (c *RedisCluster) AddPrimary(ctx context.Context) (*Process, error) {
	p, err := c.join(ctx)
	if err != nil {
		return nil, err
	}
	c.Primaries = append(c.Primaries, p)
	if err := c.known(ctx, p, "master -"); err != nil {
		return p, err
	}
	return p, c.abreast(ctx, p)
}

// abreast waits until a node knows the epochs of all others: before, it would lose the first
// slot that it gets to an epoch of which it had not heard.
func (c *RedisCluster) abreast(ctx context.Context, p *Process) error {
	return poll(ctx, func() error {
		knows, err := epochs(ctx, p)
		if err != nil {
			return err
		}
		for _, n := range c.Primaries {
			if ended(n) {
				continue
			}
			own, err := epochs(ctx, n)
			if err != nil {
				return err
			}
			id, err := RedisNodeID(ctx, n)
			if err != nil {
				return err
			}
			if knows[id] != own[id] {
				return fmt.Errorf("%s knows epoch %q of %s, which is at %q", p.Addr, knows[id], n.Addr, own[id])
			}
		}
		return nil
	})
}

// epochs are the configuration epochs of the nodes as one node knows them, by id.
func epochs(ctx context.Context, p *Process) (map[string]string, error) {
	text, err := ask(ctx, p, "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	of := make(map[string]string)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 6 {
			of[f[0]] = f[6]
		}
	}
	return of, nil
}

// join starts a node and tells all others of it: to wait for gossip takes seconds.
func (c *RedisCluster) join(ctx context.Context) (*Process, error) {
	bus, err := FreePort()
	if err != nil {
		return nil, err
	}
	o := c.o
	o.Args = append(clusterArgs(bus), c.o.Args...)
	p, err := StartRedis(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, n := range c.All() {
		if ended(n) {
			continue
		}
		if err := do(ctx, n, "CLUSTER", "MEET", p.Host(), p.Port(), bus); err != nil {
			p.Stop()
			return nil, err
		}
	}
	return p, nil
}

// known waits until every node shows a node so.
func (c *RedisCluster) known(ctx context.Context, p *Process, as string) error {
	me, err := RedisNodeID(ctx, p)
	if err != nil {
		return err
	}
	return poll(ctx, func() error {
		for _, n := range c.All() {
			if ended(n) {
				continue
			}
			text, err := ask(ctx, n, "CLUSTER", "NODES")
			if err != nil {
				return err
			}
			known := false
			for line := range strings.Lines(text) {
				known = known || strings.HasPrefix(line, me) && strings.Contains(line, as)
			}
			if !known {
				return fmt.Errorf("%s does not know the new node", n.Addr)
			}
		}
		return nil
	})
}

// AddReplica starts a replica of a primary, and waits until it has a copy and every node
// knows of it.
func (c *RedisCluster) AddReplica(ctx context.Context, of *Process) (*Process, error) {
	id, err := RedisNodeID(ctx, of)
	if err != nil {
		return nil, err
	}
	p, err := c.join(ctx)
	if err != nil {
		return nil, err
	}
	c.Replicas = append(c.Replicas, p)
	if err := poll(ctx, func() error { return do(ctx, p, "CLUSTER", "REPLICATE", id) }); err != nil {
		return nil, fmt.Errorf("making a replica: %w", err)
	}
	if err := c.known(ctx, p, "slave "+id); err != nil {
		return nil, err
	}
	return p, poll(ctx, func() error {
		info, err := ask(ctx, p, "INFO", "replication")
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New("the replica has no copy yet")
		}
		return err
	})
}

// MoveSlot moves a slot from one node to another while data flows, with the commands that
// redis-cli --cluster reshard gives.
func (c *RedisCluster) MoveSlot(ctx context.Context, slot int, from, to *Process) error {
	fromID, err := RedisNodeID(ctx, from)
	if err != nil {
		return err
	}
	toID, err := RedisNodeID(ctx, to)
	if err != nil {
		return err
	}
	if err := do(ctx, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID); err != nil {
		return err
	}
	if err := do(ctx, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID); err != nil {
		return err
	}
	if err := MoveKeys(ctx, slot, from, to); err != nil {
		return err
	}
	return c.AssignSlot(ctx, slot, from, to)
}

// MoveKeys moves the keys of a slot that is on its way.
func MoveKeys(ctx context.Context, slot int, from, to *Process) error {
	for {
		n := redis.NewClient(&redis.Options{Addr: from.Addr, DisableIdentity: true})
		keys, err := n.ClusterGetKeysInSlot(ctx, slot, 10).Result()
		if err == nil && len(keys) > 0 {
			args := []any{"MIGRATE", to.Host(), to.Port(), "", 0, 5000, "REPLACE", "KEYS"}
			for _, k := range keys {
				args = append(args, k)
			}
			err = n.Do(ctx, args...).Err()
		}
		_ = n.Close()
		if err != nil || len(keys) == 0 {
			return err
		}
	}
}

// AssignSlot ends a slot's way: the target first, then its source, then the others. It
// returns when all know of the epoch that this made: a target of the next slot that does
// not could lose it again.
func (c *RedisCluster) AssignSlot(ctx context.Context, slot int, from, to *Process) error {
	id, err := RedisNodeID(ctx, to)
	if err != nil {
		return err
	}
	told := map[*Process]bool{}
	for _, n := range append([]*Process{to, from}, c.All()...) {
		if told[n] || ended(n) {
			continue
		}
		told[n] = true
		role, err := ask(ctx, n, "INFO", "replication")
		if err == nil && strings.Contains(role, "role:master") {
			err = do(ctx, n, "CLUSTER", "SETSLOT", slot, "NODE", id)
		}
		if err != nil {
			return err
		}
	}
	return poll(ctx, func() error {
		epochs := make(map[string]bool)
		for n := range told {
			info, err := ask(ctx, n, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			_, epoch, _ := strings.Cut(info, "cluster_current_epoch:")
			epoch, _, _ = strings.Cut(epoch, "\r")
			epochs[epoch] = true
		}
		if len(epochs) > 1 {
			return errors.New("the nodes' epochs differ")
		}
		return nil
	})
}

// Failover makes a replica take its primary's place: with the primary's help, or as if it
// were gone and with what the replica has.
func (c *RedisCluster) Failover(ctx context.Context, replica *Process, takeover bool) error {
	args := []any{"CLUSTER", "FAILOVER"}
	if takeover {
		args = append(args, "TAKEOVER")
	}
	var asked time.Time
	return poll(ctx, func() error {
		info, err := ask(ctx, replica, "INFO", "replication")
		if err != nil || strings.Contains(info, "role:master") {
			return err
		}
		// The others may deny it, as when they voted a moment ago: ask again.
		if time.Since(asked) > time.Second {
			asked = time.Now()
			if err := do(ctx, replica, args...); err != nil {
				return err
			}
		}
		return errors.New("the replica is no primary yet")
	})
}

func ended(p *Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// RedisNodeID is the id of a node of a cluster.
func RedisNodeID(ctx context.Context, p *Process) (string, error) {
	return ask(ctx, p, "CLUSTER", "MYID")
}

func ask(ctx context.Context, p *Process, args ...any) (string, error) {
	c := redis.NewClient(&redis.Options{Addr: p.Addr, DisableIdentity: true, Protocol: 2})
	defer func() { _ = c.Close() }()
	s, err := c.Do(ctx, args...).Text()
	if err != nil {
		return "", fmt.Errorf("%s: %v: %w", p.Addr, args, err)
	}
	return s, nil
}

func do(ctx context.Context, p *Process, args ...any) error {
	_, err := ask(ctx, p, args...)
	return err
}
