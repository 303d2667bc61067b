package redisfence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
)

const (
	// pollEvery is the pause between two looks at a node that still has connections to
	// end, or that is busy.
	pollEvery = 5 * time.Millisecond
	// nodeTimeout is how long a node that does not answer is tried again.
	nodeTimeout = 3 * time.Second
)

// Sever implements guard.Fence. Connections that are bound while it runs are of the term
// itself or of a later one: a bind compares the whole record, and that stands raised.
func (f *Fence) Sever(ctx context.Context, t guard.Term) error {
	nodes, err := f.nodes(ctx)
	if err != nil {
		return err
	}
	for _, addr := range nodes {
		if err := f.sweep(ctx, addr, t); err != nil {
			return err
		}
	}
	return nil
}

// nodes returns the addresses of the other nodes to be swept after the control
// connection's own, which is "".
func (f *Fence) nodes(ctx context.Context) ([]string, error) {
	var (
		reply      []any
		role, info string
	)
	err := whileBusy(ctx, func() (err error) {
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
	nodes = append(nodes, syncing(info)...)
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// syncing returns the addresses of the replicas in INFO, which, unlike ROLE, also shows
// those that still get their first copy: a former primary has its old connections then.
func syncing(info string) (nodes []string) {
	for name, value := range parseInfo(info) {
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

// sweep ends every connection of an older term on one node, and looks again until there
// is none left.
func (f *Fence) sweep(ctx context.Context, addr string, t guard.Term) error {
	client := f.client
	if addr != "" {
		client = f.node(addr)
		defer func() { _ = client.Close() }()
	}
	for {
		var list string
		if err := patiently(ctx, func() (err error) {
			list, err = client.ClientList(ctx).Result()
			return err
		}); err != nil {
			return f.failed(addr, "listing its connections", err)
		}
		old, above := older(list, t)
		if above > 0 {
			return &guard.BoundAboveError{Election: t.Election, Number: above}
		}
		if len(old) == 0 {
			return nil
		}
		if err := patiently(ctx, func() error {
			p := client.Pipeline()
			for _, id := range old {
				p.ClientKillByFilter(ctx, "ID", strconv.FormatInt(id, 10))
			}
			cmds, err := p.Exec(ctx)
			for _, c := range cmds {
				if c.Err() != nil {
					return c.Err()
				}
			}
			return err
		}); err != nil {
			return f.failed(addr, fmt.Sprintf("ending %d connections", len(old)), err)
		}
		// INVARIANT: the node itself says that they are gone: look again.
		if err := pause(ctx); err != nil {
			return f.failed(addr, fmt.Sprintf("waiting for %d connections to end", len(old)), err)
		}
	}
}

// node makes a client of another node, which takes the same user and password.
func (f *Fence) node(addr string) *redis.Client {
	o := f.base
	o.Addr, o.Network, o.DB = addr, "tcp", 0
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
		n, ok := ParseConnName(name)
		switch {
		case !ok || n.Election != t.Election || n.Of(t):
		case n.Number > t.Number:
			above = max(above, n.Number)
		default:
			ids = append(ids, id)
		}
	}
	return ids, above
}

func (f *Fence) failed(addr, doing string, err error) error {
	if addr == "" {
		return fmt.Errorf("%w: the primary: %s: %w", ErrNode, doing, explain(err))
	}
	fix := "the primary lists it as a replica: end it there, or list the nodes to sweep in the option nodes"
	if slices.Contains(f.o.Nodes, addr) {
		fix = "the option nodes lists it: take it out if it is gone for good"
	}
	return fmt.Errorf("%w: %s (%s): %s: %w", ErrNode, addr, fix, doing, explain(err))
}

// patiently calls do again while the node is busy, and for a while where it does not
// answer.
func patiently(ctx context.Context, do func() error) error {
	start := time.Now()
	for {
		err := whileBusy(ctx, do)
		var said redis.Error
		if err == nil || errors.As(err, &said) || ctx.Err() != nil || time.Since(start) > nodeTimeout {
			return err
		}
		if pause(ctx) != nil {
			return err
		}
	}
}

// whileBusy calls do again while the server answers that a script runs or that it is
// loading, until ctx ends.
func whileBusy(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !redis.HasErrorPrefix(err, "BUSY") && !redis.HasErrorPrefix(err, "LOADING") {
			return err
		}
		if pause(ctx) != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
