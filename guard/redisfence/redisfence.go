// Package redisfence keeps the fence inside a Redis (7 or later) or Valkey server: a
// key for each election, and the names of the connections that are bound to a term.
//
// It promises that once Sever has returned, no connection that was bound to an older
// term exists on any node that it swept: the primary, all replicas below it, or the nodes
// of Options.Nodes. It does not promise anything of a node that it was not told of (a
// replica that was cut off from its primary and is promoted later: name it in
// Nodes), of writes that an asynchronous failover loses or brings back, or of clients
// that reach the server without a proxy. Redis Cluster is refused.
package redisfence

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redissentinel"
)

// Errors of a Fence, for errors.Is.
var (
	// ErrURL: the control URL cannot be understood. The error never holds its text.
	ErrURL = errors.New("not a URL of the form redis://user:password@host:port/database (percent-encode special characters)")
	// ErrReplica: the control connection leads to a replica.
	ErrReplica = errors.New("the control connection leads to a replica, the fence is on the primary")
	// ErrCluster: the server is a node of a Redis Cluster.
	ErrCluster = errors.New("the server is part of a cluster, and the control connection not that to a cluster (redis+cluster://)")
	// ErrRights: the control user may not run a command that fencing relies on.
	ErrRights = errors.New("the control user lacks rights")
	// ErrNode: a node could not be swept.
	ErrNode = errors.New("a node cannot be swept")
)

// Options tune a Fence. The zero value is a working default.
type Options struct {
	// Nodes are host:port of every node whose connections a takeover sweeps beside the
	// control connection's own; empty means the replicas that the primary lists, and
	// theirs, at the addresses that they announced. A node that cannot be swept fails the takeover.
	Nodes []string
	// TLS makes the configuration of a connection by TLS (rediss://) to a host, a name or
	// an address. Nil means go-redis's own: the system's authorities, and the host's name.
	TLS func(host string) *tls.Config
	// Log receives what an operator should know; nil means no log.
	Log *slog.Logger
}

// A Fence is the fence of one Redis or Valkey. It implements guard.Fence.
type Fence struct {
	client *redis.Client
	base   redis.Options // as given, for the other nodes
	o      Options

	sentinel *redissentinel.Primary // nil where the control connection goes to one address
}

var _ guard.Fence = (*Fence)(nil)

// Open makes a control client for a URL that ParseURL reads; it does not wait for the
// server.
func Open(_ context.Context, url string, o Options) (*Fence, error) {
	r, err := ParseURL(url, o)
	if err != nil {
		return nil, err
	}
	return New(r, o), nil
}

// New makes a control client for go-redis options.
func New(r *redis.Options, o Options) *Fence {
	f := newFence(r, o)
	c := f.base // NewClient fills in the one that it is given
	f.client = redis.NewClient(&c)
	return f
}

// newFence is a Fence that lacks its client.
func newFence(r *redis.Options, o Options) *Fence {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := *r
	c.ClientName = "" // the names are ours; a control connection has none
	c.DisableIdentity = true
	c.ContextTimeoutEnabled = true
	c.MaxRetries = -1 // an answer that was lost is the guard's to deal with
	if c.MaintNotificationsConfig == nil {
		// go-redis asks each connection for them first; no server that this is for has them.
		c.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	return &Fence{base: c, o: o}
}

// Close closes the control connections.
func (f *Fence) Close() error {
	err := f.client.Close()
	if f.sentinel != nil {
		f.sentinel.Close()
	}
	return err
}

// Do runs a command on a control connection.
func (f *Fence) Do(ctx context.Context, args ...any) *redis.Cmd { return f.client.Do(ctx, args...) }

// DB is the database that holds the fence; a bind must look there.
func (f *Fence) DB() int { return f.client.Options().DB }

// Read implements guard.Fence. It reads from the primary only.
func (f *Fence) Read(ctx context.Context, electionID string) (guard.Record, error) {
	key := Key(electionID)
	var role, value string
	err := whileBusy(ctx, f.client, func() (err error) {
		p := f.client.Pipeline()
		roles, get := p.Do(ctx, "ROLE"), p.Get(ctx, key)
		_, _ = p.Exec(ctx) // each command has its own error
		if role, err = roleOf(roles); err == nil {
			value, err = get.Result()
		}
		return err
	})
	if role != "" && role != "master" {
		return guard.Record{}, ErrReplica
	}
	return recordIn(key, value, err)
}

// recordIn is the record in the answer to a GET of a fence's key.
func recordIn(key, value string, err error) (guard.Record, error) {
	switch {
	case errors.Is(err, redis.Nil):
		return guard.Record{}, nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return guard.Record{}, fmt.Errorf("reading %s: %w (not a string)", key, ErrCorrupt)
	case err != nil:
		return guard.Record{}, fmt.Errorf("reading %s: %w", key, explain(err))
	}
	r, err := Decode(value)
	if err != nil {
		return guard.Record{}, fmt.Errorf("reading %s: %w", key, err)
	}
	return r, nil
}

// swap compares and sets the fence in one step, also where memory is exhausted. SET
// without a TTL also removes one that somebody put on the key.
const swap = `#!lua flags=allow-oom
local v = redis.call('GET', KEYS[1])
if v == false then
  if ARGV[1] ~= '' then return 0 end
elseif ARGV[1] == '' or v ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
`

// Swap implements guard.Fence.
func (f *Fence) Swap(ctx context.Context, electionID string, old, new guard.Record) error {
	key, was := Key(electionID), ""
	if old != (guard.Record{}) {
		was = Encode(old)
	}
	var swapped int64
	err := whileBusy(ctx, f.client, func() error {
		// A replica that may be written to would take the record and lose it again.
		role, err := roleOf(f.client.Do(ctx, "ROLE"))
		if err == nil && role != "master" {
			return ErrReplica
		}
		if err == nil {
			swapped, err = f.client.Eval(ctx, swap, []string{key}, was, Encode(new)).Int64()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", key, explain(err))
	}
	if swapped != 1 {
		return guard.ErrConflict
	}
	return nil
}

// roleOf is the role that ROLE reported.
func roleOf(c *redis.Cmd) (string, error) {
	reply, err := c.Slice()
	if err != nil {
		return "", err
	}
	if len(reply) > 0 {
		if s, ok := reply[0].(string); ok {
			return s, nil
		}
	}
	return "", errors.New("ROLE's reply is of another form")
}

// explain gives a refused command its name for errors.Is.
func explain(err error) error {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return fmt.Errorf("%w: %w", ErrRights, err)
	}
	return err
}
