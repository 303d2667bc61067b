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
	"github.com/fenceproxy/fenceproxy/guard"
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
	failed := func(doing string, err error) error { return f.failed(addr, doing, err) }
	// Not patiently: one that does not answer is asked for again among the sentinels.
	return endAll(ctx, c, whileBusy, failed, func(list string) ([]int64, error) {
		old, err := stale(ctx, c, list)
		if err != nil {
			return nil, failed("reading its fences", err)
		}
		if len(old) > 0 {
			f.o.Log.Info("connections of older terms are left on the new primary", "addr", addr, "connections", len(old))
		}
		return old, nil
	})
}

// stale returns the connections in a list that are bound to older terms than the server's own
// records show. Where there is no record, or one that cannot be read, whoever raises it anew
// sweeps.
func stale(ctx context.Context, c *redis.Client, list string) (ids []int64, err error) {
	records := make(map[string]guard.Record)
	for id, n := range boundIn(list) {
		r, known := records[n.Election]
		if !known {
			key := Key(n.Election)
			value, err := c.Get(ctx, key).Result()
			if r, err = recordIn(key, value, err); err != nil && !errors.Is(err, ErrCorrupt) {
				return nil, err
			}
			records[n.Election] = r
		}
		if n.Number < r.Highest || n.Number == r.Highest && n.Holder != [8]byte(r.Holder[:8]) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
