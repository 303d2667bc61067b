// Package redissentinel follows the primary that Redis or Valkey sentinels name.
//
// It promises that a connection it made leads to the server that was the primary by the
// newest word of any sentinel that answered, that this server was prepared before, and that
// the connection is closed once another server is the primary. It does not promise that the
// server still is the primary, or knows that it is not: whoever writes asks the server itself.
package redissentinel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Errors of a Primary, for errors.Is.
var (
	// ErrUnknown: no sentinel has named the primary yet.
	ErrUnknown = errors.New("no sentinel names the primary")
	// ErrUnprepared: the primary is known, and what must be done there first was not.
	ErrUnprepared = errors.New("the new primary is not ready to be used")
)

// Options say whom a Primary asks.
type Options struct {
	// Sentinels are host:port, Master is the name by which they watch the primary.
	Sentinels []string
	Master    string
	// Username and Password are the sentinels' own; both empty means none.
	Username, Password string
	// TLS is for the connections to sentinels; nil means none. Dialer makes them in its
	// place; nil means go-redis's own.
	TLS    *tls.Config
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// Every is the time between two rounds of questions, Timeout how long one may take; zero
	// means half a second and a second.
	Every, Timeout time.Duration
	// Prepare is called for each new primary before anybody is connected to it, and again
	// while it fails; nil does nothing.
	Prepare func(ctx context.Context, addr string) error
	// Log receives what an operator should know; nil means no log.
	Log *slog.Logger
}

// A Primary follows one primary. Its methods may be called concurrently.
type Primary struct {
	o         Options
	sentinels []*redis.SentinelClient
	end       context.CancelFunc
	ended     sync.WaitGroup
	look      chan struct{} // asks for a round at once

	mu      sync.Mutex
	now     reign              // zero before the first
	ready   bool               // now was prepared
	err     error              // why there is no primary, or it is not ready
	changed chan struct{}      // closed and replaced whenever one of the above changes
	conns   map[*Conn]struct{} // open, to now
}

// A reign is the time for which one server is the primary.
type reign struct {
	addr  string
	epoch int64 // the sentinels' configuration epoch, which rises with each failover
}

// New begins to follow. Close ends it.
func New(o Options) *Primary {
	if o.Every <= 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, end := context.WithCancel(context.Background())
	p := &Primary{o: o, end: end, look: make(chan struct{}, 1), err: ErrUnknown,
		changed: make(chan struct{}), conns: make(map[*Conn]struct{})}
	for _, addr := range o.Sentinels {
		p.sentinels = append(p.sentinels, redis.NewSentinelClient(&redis.Options{
			Addr: addr, Username: o.Username, Password: o.Password, TLSConfig: serverName(o.TLS, addr), Dialer: o.Dialer,
			MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, Protocol: 2, PoolSize: 2,
			ContextTimeoutEnabled: true, DialTimeout: o.Timeout,
		}))
	}
	p.ended.Go(func() { p.follow(ctx) })
	return p
}

// serverName is c for one server: the name on its certificate is its own, unless c says
// another.
func serverName(c *tls.Config, addr string) *tls.Config {
	if c == nil || c.ServerName != "" {
		return c
	}
	c = c.Clone()
	c.ServerName, _, _ = net.SplitHostPort(addr)
	return c
}

// Close ends the following, and with it every connection that was made.
func (p *Primary) Close() {
	p.end()
	p.ended.Wait()
	p.mu.Lock()
	p.set(reign{}, false, net.ErrClosed)
	p.mu.Unlock()
	for _, s := range p.sentinels {
		_ = s.Close()
	}
}

// Addr returns the primary's address, waiting for it, and for its preparation, until ctx ends.
func (p *Primary) Addr(ctx context.Context) (string, error) {
	r, err := p.wait(ctx)
	return r.addr, err
}

// Suspect says that the primary does not answer: the sentinels are asked at once.
func (p *Primary) Suspect() {
	select {
	case p.look <- struct{}{}:
	default:
	}
}

// Dial connects to the primary. The connection is closed when another server becomes it.
func (p *Primary) Dial(ctx context.Context) (*Conn, error) {
	for {
		r, err := p.wait(ctx)
		if err != nil {
			return nil, err
		}
		var d net.Dialer
		raw, err := d.DialContext(ctx, "tcp", r.addr)
		if err != nil {
			p.Suspect()
			return nil, fmt.Errorf("connecting to the primary: %w", err)
		}
		// INVARIANT: kept only while the reign that it was made in goes on.
		tcp, ok := raw.(*net.TCPConn)
		if !ok {
			_ = raw.Close()
			return nil, fmt.Errorf("connecting to the primary: a %T is no TCP connection", raw)
		}
		c := &Conn{TCPConn: tcp, Server: r.addr, primary: p}
		if p.keep(r, c) {
			return c, nil
		}
		_ = c.TCPConn.Close()
	}
}

// wait returns the reign under way, once it was prepared.
func (p *Primary) wait(ctx context.Context) (reign, error) {
	for {
		p.mu.Lock()
		now, ready, err, changed := p.now, p.ready, p.err, p.changed
		p.mu.Unlock()
		switch {
		case ready:
			return now, nil
		case errors.Is(err, net.ErrClosed):
			return reign{}, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return reign{}, fmt.Errorf("finding the primary %q: %w: %w", p.o.Master, err, context.Cause(ctx))
		}
	}
}

func (p *Primary) keep(r reign, c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ready || p.now != r {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

// set begins a reign, or another state of it; p.mu is held. Connections of an earlier reign
// are closed.
func (p *Primary) set(r reign, ready bool, err error) {
	if r != p.now {
		for c := range p.conns {
			_ = c.TCPConn.Close()
		}
		clear(p.conns)
	}
	p.now, p.ready, p.err = r, ready, err
	close(p.changed)
	p.changed = make(chan struct{})
}

// follow asks the sentinels, again and again, and prepares each new primary.
func (p *Primary) follow(ctx context.Context) {
	ticks := time.NewTicker(p.o.Every)
	defer ticks.Stop()
	for ctx.Err() == nil {
		p.round(ctx)
		select {
		case <-ticks.C:
		case <-p.look:
		case <-ctx.Done():
		}
	}
}

// round asks once.
func (p *Primary) round(ctx context.Context) {
	told, answers := p.ask(ctx)
	p.mu.Lock()
	now, ready := p.now, p.ready
	p.mu.Unlock()
	if ctx.Err() != nil || told == now && ready || !told.follows(now, answers, len(p.sentinels)) {
		return // the last word stands
	}
	if told != now {
		level := slog.LevelInfo
		if told.addr == now.addr {
			level = slog.LevelDebug // no more than the sentinels' next epoch
		}
		p.o.Log.Log(ctx, level, "the primary is", "master", p.o.Master, "addr", told.addr, "epoch", told.epoch, "before", now.addr)
		p.mu.Lock()
		p.set(told, false, ErrUnprepared)
		p.mu.Unlock()
	}
	var err error
	if p.o.Prepare != nil {
		err = p.o.Prepare(ctx, told.addr)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.o.Log.Warn("the primary is not ready", "addr", told.addr, "error", err)
		p.set(told, false, fmt.Errorf("%w: %w", ErrUnprepared, err))
		return
	}
	p.set(told, true, nil)
}

// A Conn is a connection to the primary.
type Conn struct {
	*net.TCPConn
	// Server is the address that was connected to, as the sentinels say it.
	Server string

	primary *Primary
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.primary.mu.Lock()
	delete(c.primary.conns, c)
	c.primary.mu.Unlock()
	return c.TCPConn.Close()
}
