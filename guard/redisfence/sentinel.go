package redisfence

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	electionredis "github.com/fenceproxy/fenceproxy/election/redis"
	"github.com/fenceproxy/fenceproxy/guard/redissentinel"
)

// prepareTimeout bounds the preparing of a new primary.
const prepareTimeout = 10 * time.Second

// OpenSentinel is Open for a redis+sentinel:// URL: the fence is on the primary that the
// sentinels name. Close ends the following of it.
func OpenSentinel(_ context.Context, url string, o Options) (*Fence, error) {
	g, _, err := electionredis.ParseGroup(url)
	switch {
	case err != nil:
		return nil, fmt.Errorf("control connection: %w", err)
	case g.Sentinel == nil:
		return nil, fmt.Errorf("control connection: %w", ErrURL)
	}
	return NewSentinel(g.Sentinel, o), nil
}

// NewSentinel makes a control client for the primary that sentinels name.
func NewSentinel(s *redis.FailoverOptions, o Options) *Fence {
	f := newFence(&redis.Options{
		Addr: "the primary", Username: s.Username, Password: s.Password, DB: s.DB, TLSConfig: s.TLSConfig,
		DialTimeout: s.DialTimeout, ReadTimeout: s.ReadTimeout, WriteTimeout: s.WriteTimeout, PoolSize: s.PoolSize,
	}, o)
	if s.TLSConfig != nil && f.o.TLS != nil {
		f.base.Dialer = DialTLS(f.o.TLS, s.DialTimeout)
	}
	f.sentinel = redissentinel.New(redissentinel.Options{
		Sentinels: s.SentinelAddrs, Master: s.MasterName, Username: s.SentinelUsername, Password: s.SentinelPassword,
		TLS: s.TLSConfig, Dialer: f.base.Dialer, Prepare: f.prepare, Log: f.o.Log,
	})
	c := f.base
	c.Dialer = f.dialPrimary
	f.client = redis.NewClient(&c)
	return f
}

// Primary follows the primary for the fence, and for sessions; nil where the fence was not
// opened by OpenSentinel or NewSentinel.
func (f *Fence) Primary() *redissentinel.Primary { return f.sentinel }

func (f *Fence) dialPrimary(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := f.sentinel.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if f.base.TLSConfig == nil {
		return c, nil
	}
	host, _, err := net.SplitHostPort(c.Server)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	t := f.base.TLSConfig.Clone()
	if f.o.TLS != nil {
		t = f.o.TLS(host)
	}
	t.ServerName = cmp.Or(t.ServerName, host)
	secure := tls.Client(c, t)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return secure, nil
}

// watched appends the servers that the sentinels know and the primary may not list: those
// that are down, or were cut off from it. It notes in down which are held to be down.
func (f *Fence) watched(ctx context.Context, nodes []string, down map[string]bool) ([]string, error) {
	if f.sentinel == nil || len(f.o.Nodes) > 0 {
		return nodes, nil
	}
	known, err := f.sentinel.Replicas(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNode, err)
	}
	for _, n := range known {
		down[n.Addr] = n.Down
		if nodes, err = join(nodes, []string{n.Addr}); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// isDown reports whether the sentinels hold a server to be down by now.
func (f *Fence) isDown(ctx context.Context, addr string) bool {
	down := make(map[string]bool)
	_, err := f.watched(ctx, nil, down)
	return err == nil && down[addr]
}

// prepare ends the connections on a new primary that are bound to an older term than its own
// record of the fence shows.
//
// INVARIANT: no session is connected to a primary by this proxy before. A takeover does not
// wait for servers that are down; one of them that was the primary may still have the
// connections of then, and be promoted again. What was bound in its present reign
// is compared with the record like everything else, and stays.
func (f *Fence) prepare(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	c := f.nodeIn(addr, f.base.DB)
	defer func() { _ = c.Close() }()
	role, err := roleOf(c.Do(ctx, "ROLE"))
	if err != nil || role != "master" {
		if err == nil {
			return fmt.Errorf("%s: %w", addr, ErrReplica)
		}
		return fmt.Errorf("%s: %w; %w", addr, ErrReplica, err)
	}
	for {
		var list string
		if err := whileBusy(ctx, c, func() (err error) {
			list, err = c.ClientList(ctx).Result()
			return err
		}); err != nil {
			return f.failed(addr, "listing its connections", err)
		}
		old, err := f.stale(ctx, c, list)
		if err != nil {
			return f.failed(addr, "reading its fences", err)
		}
		if len(old) == 0 {
			return nil
		}
		f.o.Log.Info("connections of older terms are left on the new primary", "addr", addr, "connections", len(old))
		if err := whileBusy(ctx, c, func() error { return killAll(ctx, c, old) }); err != nil {
			return f.failed(addr, fmt.Sprintf("ending %d connections", len(old)), err)
		}
		if err := pause(ctx); err != nil {
			return f.failed(addr, "waiting for connections to end", err)
		}
	}
}

// stale returns the connections in a list that are bound to older terms than the server's own
// records show. Where there is no record, whoever raises it anew sweeps.
func (f *Fence) stale(ctx context.Context, c *redis.Client, list string) (ids []int64, err error) {
	of := make(map[string][]int64)
	names := make(map[int64]Name)
	for id, n := range boundIn(list) {
		of[n.Election] = append(of[n.Election], id)
		names[id] = n
	}
	for election, bound := range of {
		value, err := c.Get(ctx, Key(election)).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := Decode(value)
		if err != nil {
			continue // so is this
		}
		for _, id := range bound {
			n := names[id]
			if n.Number < r.Highest || n.Number == r.Highest && n.Holder != [8]byte(r.Holder[:8]) {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}
