package redisfence

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
)

// maxNodes bounds the nodes that are found below a primary.
const maxNodes = 1000

// Sever implements guard.Fence. Connections that are bound while it runs are of the term
// itself or of a later one: a bind compares the whole record, and that stands raised.
func (f *Fence) Sever(ctx context.Context, t guard.Term) error {
	nodes, err := f.nodes(ctx)
	if err != nil {
		return err
	}
	down := make(map[string]bool)
	if nodes, err = f.watched(ctx, nodes, down); err != nil {
		return err
	}
	for i := 0; i < len(nodes); i++ { // it grows
		more, err := f.sweepNode(ctx, nodes, i, t, down[nodes[i]])
		switch {
		case err == nil:
			nodes = more
		case ctx.Err() == nil && !isReply(err) && f.isDown(ctx, nodes[i]):
			f.o.Log.Warn("a server that the sentinels hold to be down was not swept; it is, before it serves as the primary again",
				"addr", nodes[i], "error", err)
		default:
			return err
		}
	}
	return nil
}

// sweepNode sweeps node i and returns the nodes with those that replicate from it. One that
// is held to be down is not tried for long.
func (f *Fence) sweepNode(ctx context.Context, nodes []string, i int, t guard.Term, down bool) ([]string, error) {
	if down {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, downTimeout)
		defer cancel()
	}
	addr, client := nodes[i], f.client
	if addr != "" {
		client = f.node(addr)
		defer func() { _ = client.Close() }()
	}
	failed := func(doing string, err error) error { return f.failed(addr, doing, err) }
	if err := sweep(ctx, client, t, failed); err != nil {
		return nil, err
	}
	var more []string
	err := patiently(ctx, client, func() (err error) {
		more, err = f.below(ctx, addr, client)
		return err
	})
	if err != nil {
		return nil, f.failed(addr, "asking for its replicas", err)
	}
	return join(nodes, more)
}

// below returns the replicas of a replica: replication may go in chains, and any of them
// may be promoted. Where the nodes are given, they are all.
func (f *Fence) below(ctx context.Context, addr string, client *redis.Client) ([]string, error) {
	if addr == "" || len(f.o.Nodes) > 0 {
		return nil, nil
	}
	info, err := client.Info(ctx, "replication").Result()
	if err != nil {
		return nil, err
	}
	return replicasIn(info), nil
}

// join appends the nodes that are new: no node is visited twice, however they replicate.
func join(nodes, more []string) ([]string, error) {
	for _, addr := range more {
		if !slices.Contains(nodes, addr) {
			nodes = append(nodes, addr)
		}
	}
	if len(nodes) > maxNodes {
		return nil, fmt.Errorf("%w: there are more than %d: list those to sweep in the option nodes", ErrNode, maxNodes)
	}
	return nodes, nil
}

// nodes returns the addresses of the other nodes to be swept after the control
// connection's own, which is "".
func (f *Fence) nodes(ctx context.Context) ([]string, error) {
	var (
		reply      []any
		role, info string
	)
	err := whileBusy(ctx, f.client, func() (err error) {
		p := f.client.Pipeline()
		roles, said := p.Do(ctx, "ROLE"), p.Info(ctx, "cluster", "replication")
		_, _ = p.Exec(ctx) // each command has its own error
		if role, err = roleOf(roles); err == nil {
			reply, _ = roles.Slice()
			info, err = said.Result()
		}
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking for the replicas: %w", explain(err))
	case strings.Contains(info, "cluster_enabled:1"):
		return nil, ErrCluster
	case role != "master":
		return nil, ErrReplica
	}
	if len(f.o.Nodes) > 0 {
		return append([]string{""}, f.o.Nodes...), nil
	}
	nodes := []string{""}
	if len(reply) < 3 {
		return nil, errors.New("asking for the replicas: ROLE's reply is too short")
	}
	replicas, ok := reply[2].([]any)
	if !ok {
		return nil, errors.New("asking for the replicas: ROLE's reply is of another form")
	}
	for _, r := range replicas {
		parts, _ := r.([]any)
		if len(parts) < 2 {
			return nil, errors.New("asking for the replicas: ROLE's reply is of another form")
		}
		nodes = append(nodes, net.JoinHostPort(fmt.Sprint(parts[0]), fmt.Sprint(parts[1])))
	}
	return join(nodes, replicasIn(info))
}

// replicasIn returns the addresses of the replicas in INFO, which, unlike ROLE, also shows
// those that still get their first copy: a former primary has its old connections then.
func replicasIn(info string) (nodes []string) {
	for name, value := range ParseInfo(info) {
		if n, ok := strings.CutPrefix(name, "slave"); !ok || strings.Trim(n, "0123456789") != "" {
			continue
		}
		of := make(map[string]string)
		for field := range strings.SplitSeq(value, ",") {
			k, v, _ := strings.Cut(field, "=")
			of[k] = v
		}
		// Without a port it is a client that copies the data, and no server.
		if of["ip"] != "" && of["port"] != "" && of["port"] != "0" {
			nodes = append(nodes, net.JoinHostPort(of["ip"], of["port"]))
		}
	}
	return nodes
}

// sweep ends every connection of an older term on one node. Errors go through failed, with
// what was being done.
func sweep(ctx context.Context, client *redis.Client, t guard.Term, failed func(doing string, err error) error) error {
	return endAll(ctx, client, patiently, failed, func(list string) ([]int64, error) {
		old, above := older(list, t)
		if above > 0 {
			return nil, &guard.BoundAboveError{Election: t.Election, Number: above}
		}
		return old, nil
	})
}

// endAll ends the connections that pick picks from a node's list, and looks again until there
// is none left. try makes each of its calls.
func endAll(ctx context.Context, client *redis.Client, try func(context.Context, *redis.Client, func() error) error,
	failed func(doing string, err error) error, pick func(list string) ([]int64, error)) error {
	for {
		var list string
		if err := try(ctx, client, func() (err error) {
			list, err = client.ClientList(ctx).Result()
			return err
		}); err != nil {
			return failed("listing its connections", err)
		}
		ids, err := pick(list)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := try(ctx, client, func() error { return killAll(ctx, client, ids) }); err != nil {
			return failed(fmt.Sprintf("ending %d connections", len(ids)), err)
		}
		// INVARIANT: the node itself says that they are gone: look again.
		if err := pause(ctx); err != nil {
			return failed(fmt.Sprintf("waiting for %d connections to end", len(ids)), err)
		}
	}
}

// killAll ends connections.
func killAll(ctx context.Context, client *redis.Client, ids []int64) error {
	p := client.Pipeline()
	for _, id := range ids {
		p.ClientKillByFilter(ctx, "ID", strconv.FormatInt(id, 10))
	}
	cmds, err := p.Exec(ctx)
	for _, c := range cmds {
		if c.Err() != nil {
			return c.Err()
		}
	}
	return err
}

// node makes a client of another node, which takes the same user and password.
func (f *Fence) node(addr string) *redis.Client { return f.nodeIn(addr, 0) }

// nodeIn is node with a database.
func (f *Fence) nodeIn(addr string, db int) *redis.Client {
	o := f.base
	o.Addr, o.Network, o.DB = addr, "tcp", db
	o.PoolSize, o.MinIdleConns = 1, 0
	if host, _, _ := net.SplitHostPort(f.base.Addr); o.TLSConfig != nil && o.TLSConfig.ServerName == host {
		// The name on the certificate is the node's own.
		o.TLSConfig = o.TLSConfig.Clone()
		o.TLSConfig.ServerName, _, _ = net.SplitHostPort(addr)
	}
	return redis.NewClient(&o)
}

// older returns the ids of the connections in a CLIENT LIST that are bound to the
// election by an older term than t, and the highest number bound above t's, or zero.
func older(list string, t guard.Term) (ids []int64, above int64) {
	for id, n := range boundIn(list) {
		switch {
		case n.Election != t.Election || n.Of(t):
		case n.Number > t.Number:
			above = max(above, n.Number)
		default:
			if len(ids) == 0 || ids[len(ids)-1] != id {
				ids = append(ids, id)
			}
		}
	}
	return ids, above
}

// boundIn yields the bound connections in a CLIENT LIST, once for each of their terms.
func boundIn(list string) iter.Seq2[int64, Name] {
	return func(yield func(int64, Name) bool) {
		for line := range strings.Lines(list) {
			var id int64
			var name string
			for field := range strings.FieldsSeq(line) {
				if v, ok := strings.CutPrefix(field, "id="); ok {
					id, _ = strconv.ParseInt(v, 10, 64)
				} else if v, ok := strings.CutPrefix(field, "name="); ok {
					name = v
					break
				}
			}
			for n := range ParseConnName(name) {
				if !yield(id, n) {
					return
				}
			}
		}
	}
}

func (f *Fence) failed(addr, doing string, err error) error {
	if addr == "" {
		return fmt.Errorf("%w: the primary: %s: %w", ErrNode, doing, explain(err))
	}
	return fmt.Errorf("%w: %s (%s): %s: %w", ErrNode, addr, f.listed(addr), doing, explain(err))
}

// listed says who lists a node, and what to do where it should not be.
func (f *Fence) listed(addr string) string {
	if slices.Contains(f.o.Nodes, addr) {
		return "the option nodes lists it: take it out if it is gone for good"
	}
	return "the primary, or a replica of it, lists it as a replica: end it there, or list the nodes to sweep in the option nodes"
}
