package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/guard/redissentinel"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/internal/sidecar"
	"github.com/fenceproxy/fenceproxy/protocols/loops"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// A proxy is one listener with what stands behind it.
type proxy struct {
	*config.Listener
	log      *slog.Logger
	listener net.Listener
	wire     wire
	fence    fence
	certs    []tlsconf.Reloader // whose files are watched
	lead     *sidecar.Lead      // nil where the listener does not campaign
	// ends undoes what was opened, last first.
	ends []func()
}

// A fence is a guard.Fence that can say what would keep it from working.
type fence interface {
	guard.Fence
	Check(ctx context.Context) []guard.Problem
}

// A wire serves the clients of a listener until ctx is done, and drains.
type wire interface {
	Serve(ctx context.Context, l net.Listener) error
}

// newProxy opens a listener and what it needs. It waits for no server.
func newProxy(ctx context.Context, cfg *config.Config, l *config.Listener, b election.Backend, own *campaigns, gs *gates, carriers *loops.Loops, log *slog.Logger) (_ *proxy, err error) {
	p := &proxy{Listener: l, log: log.With("listener", l.Name)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	// newGuard puts the guard in front of the fence.
	newGuard := func(f fence) *guard.Guard {
		p.fence = f
		gc := cfg.Guard.Config()
		gc.Log = p.log
		g := guard.New(b, f, gc)
		p.ends = append(p.ends, g.Close)
		if p.lead != nil {
			p.lead.Over(g)
		}
		return g
	}
	exclusive, err := p.exclusive(cfg, b)
	if err != nil {
		return nil, err
	}
	if p.lead, err = own.lead(l); err != nil {
		return nil, err
	}
	down, up, err := openTLS(l)
	if err != nil {
		return nil, err
	}
	if down != nil {
		p.certs = append(p.certs, down)
	}
	p.certs = append(p.certs, up)
	switch l.Protocol {
	case config.Postgres:
		f, err := openPostgresFence(ctx, l)
		if err != nil {
			return nil, err
		}
		p.ends = append(p.ends, f.Close)
		var prober pg.Prober // where sessions choose
		if l.Several() {
			asker, err := pgfence.NewProber(l.Control.Reveal())
			if err != nil {
				return nil, &exitError{exitUsage, fmt.Errorf("%v: listener %s: control: %w", l.Pos, l.Name, err)}
			}
			p.ends = append(p.ends, asker.Close)
			prober = asker
		}
		p.wire, err = pg.New(pg.Config{
			Upstream:        l.Upstream,
			TLS:             down,
			UpstreamTLS:     up,
			Guard:           pgAdmitter{l, pg.Admit(newGuard(f))},
			Binder:          f,
			Exclusive:       pgHolder(exclusive),
			RequireBound:    l.BindRequired,
			Verifiers:       verifiers(l, f),
			DefaultElection: l.Election,
			Rules:           l.Rules,
			Lead:            p.leadership(),

			AllowPreparedTransactions: l.PreparedTransactions,
			AllowReplication:          l.Replication,
			TargetSessionAttrs:        l.TargetSessionAttrs,
			Prober:                    prober,
			LoadBalanceHosts:          l.LoadBalanceHosts,
			MaxConns:                  l.MaxConns,
			MaxPending:                l.Limits.Pending,
			MaxPerAddress:             l.Limits.PerAddress,
			Buffer:                    l.Limits.Buffer,
			MaxInspect:                l.Limits.Inspect,
			StartupTimeout:            l.Timeouts.Startup,
			LoginTimeout:              l.Timeouts.Login,
			DialTimeout:               l.Timeouts.Connect,
			AdmitTimeout:              l.Timeouts.Admit,
			IdleTimeout:               l.Timeouts.Idle,
			IdleInTransactionTimeout:  l.Timeouts.IdleInTransaction,
			KeepAlive:                 l.KeepAlive,
			ProxyProtocol:             l.ProxyProtocol,
			Drain:                     cfg.Drain,
			Loops:                     carriers,
			Logger:                    p.log,
		})
		if err != nil {
			return nil, fmt.Errorf("%v: listener %s: %w", l.Pos, l.Name, err)
		}
	case config.Redis, config.Valkey:
		c := respConfig(cfg, l, down, up)
		c.Loops = carriers
		c.Log, c.Own, c.Exclusive, c.Lead = p.log, ownCommands(l, b, gs, p.log), exclusive, p.leadership()
		if l.Group == config.Cluster {
			p.wire, err = p.cluster(ctx, c, up, newGuard)
		} else {
			p.wire, err = p.redis(ctx, c, up, newGuard)
		}
		if err != nil {
			return nil, err
		}
	}
	if p.listener, err = listen(ctx, l); err != nil {
		return nil, err
	}
	p.ends = append(p.ends, func() { _ = p.listener.Close() })
	return p, nil
}

// respConfig is what all listeners for Redis or Valkey have in common.
func respConfig(cfg *config.Config, l *config.Listener, down *tlsconf.Server, up *tlsconf.Client) resp.Config {
	return resp.Config{
		Upstream:       l.Upstream,
		Election:       l.Election,
		Elections:      l.Elections,
		Rules:          l.Rules,
		OpenPublish:    l.OpenPublish,
		RequireBound:   l.BindRequired,
		MaxConns:       l.MaxConns,
		Drain:          cfg.Drain,
		TLS:            down,
		UpstreamTLS:    up,
		ProxyProtocol:  l.ProxyProtocol,
		KeepAlive:      l.KeepAlive,
		MaxPending:     l.Limits.Pending,
		MaxPerAddress:  l.Limits.PerAddress,
		Buffer:         l.Limits.Buffer,
		StartupTimeout: l.Timeouts.Startup,
		DialTimeout:    l.Timeouts.Connect,
		AdmitTimeout:   l.Timeouts.Admit,
		IdleTimeout:    l.Timeouts.Idle,
	}
}

// redis makes the wire in front of one server, or of a primary that sentinels name.
func (p *proxy) redis(ctx context.Context, c resp.Config, up *tlsconf.Client, newGuard func(fence) *guard.Guard) (wire, error) {
	f, err := openRedisFence(ctx, p.Listener, up, p.log)
	if err != nil {
		return nil, err
	}
	p.ends = append(p.ends, func() { _ = f.Close() })
	c.Dial, c.Control, c.FenceDB = dialRedis(p.Listener, f, up), f, f.DB()
	c.Guard = newGuard(f)
	s, err := resp.New(c)
	if err != nil {
		return nil, fmt.Errorf("%v: listener %s: %w", p.Pos, p.Name, err)
	}
	return s, nil
}

// A pgAdmitter admits for the elections that its listener serves.
type pgAdmitter struct {
	l    *config.Listener
	next pg.Admitter
}

func (a pgAdmitter) Admit(ctx context.Context, c guard.Credential) (pg.Permit, error) {
	if !a.l.Serves(c.Election) {
		return nil, wrongElection(c)
	}
	return a.next.Admit(ctx, c)
}

func wrongElection(c guard.Credential) *guard.Refusal {
	return &guard.Refusal{Reason: guard.WrongElection, Election: c.Election}
}

func openPostgresFence(ctx context.Context, l *config.Listener) (*pgfence.Fence, error) {
	f, err := pgfence.Open(ctx, l.Control.Reveal(), pgfence.Options{})
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("%v: listener %s: control: %w", l.Pos, l.Name, err)}
	}
	return f, nil
}

// redisOptions are those of the control connections to a Redis or Valkey. With
// upstream_tls, TLS to the server is the same on all connections.
func redisOptions(l *config.Listener, up *tlsconf.Client, log *slog.Logger) redisfence.Options {
	o := redisfence.Options{Nodes: l.Nodes, Log: log}
	if up.Mode() != tlsconf.Disable {
		o.TLS = up.Config
	}
	return o
}

func openRedisFence(ctx context.Context, l *config.Listener, up *tlsconf.Client, log *slog.Logger) (*redisfence.Fence, error) {
	open := redisfence.Open
	if l.Group == config.Sentinel {
		open = redisfence.OpenSentinel
	}
	f, err := open(ctx, l.Control.Reveal(), redisOptions(l, up, log))
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("%v: listener %s: control: %w", l.Pos, l.Name, err)}
	}
	return f, nil
}

// dialRedis connects sessions to the primary that the fence follows; nil where it follows
// none.
func dialRedis(l *config.Listener, f *redisfence.Fence, up *tlsconf.Client) func(ctx context.Context) (net.Conn, error) {
	primary := f.Primary()
	if primary == nil {
		return nil
	}
	return func(ctx context.Context) (net.Conn, error) {
		c, err := primary.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return resp.Dialer{TLS: up, KeepAlive: l.KeepAlive}.Begin(ctx, c, c.Server)
	}
}

// close undoes what newProxy did.
func (p *proxy) close() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
	p.ends = nil
}

// warn logs what would keep the fence from working, so that nobody learns it from
// the first refused write. It is no reason not to start: what is missing may come.
func (p *proxy) warn(ctx context.Context) {
	for _, c := range p.certs {
		if leaf := c.Leaf(); leaf != nil {
			if what := validity(leaf, time.Now()); what != "" {
				p.log.Log(ctx, level(what != aboutToExpire), "check: a certificate", "file", c.String(), "is", what, "until", leaf.NotAfter)
			}
		}
	}
	for _, addr := range p.Upstreams {
		one := p.SplitUpstream(addr)
		if _, err := askUpstream(ctx, one, startTimeout); err != nil && ctx.Err() == nil {
			p.log.Error("check: the upstream does not answer as it should", "upstream", addr, "err", err, "fix", upstreamFix(one, err))
		}
	}
	if one, known := sameRun(ctx, p.Listener, startTimeout); known && !one {
		p.log.Error("check: "+errDifferent.Error(), "control", p.Control, "upstream", p.Upstream, "fix", differentFix)
	}
	if p.sentinels(ctx) {
		return
	}
	asking, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := askControl(asking, p.Listener, p.fence); err != nil {
		if ctx.Err() == nil {
			p.log.Error("check: the control connection does not work", "control", p.Control, "err", err, "fix", controlFix(p.Listener, err))
		}
		return
	}
	for _, problem := range append(p.fence.Check(ctx), scramProblems(ctx, p.Listener, p.fence, startTimeout)...) {
		if ctx.Err() != nil {
			return
		}
		fix, rules := controlAdvice(p.Listener, problem)
		if rules {
			fix = aclCommand(p.Listener)
		}
		p.log.Log(ctx, level(problem.Fatal), "check: "+problem.What, "fix", fix)
	}
}

// level is that of what would fail, and of what would not.
func level(fatal bool) slog.Level {
	if fatal {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// sentinels logs why the sentinels name no primary. It reports whether there was anything.
func (p *proxy) sentinels(ctx context.Context) bool {
	f, ok := p.fence.(*redisfence.Fence)
	if !ok || f.Primary() == nil {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := f.Primary().Addr(asking); !errors.Is(err, redissentinel.ErrUnknown) {
		return false
	}
	troubles := f.Primary().Troubles(ctx)
	for _, t := range troubles {
		p.log.Error("check: "+t.Error(), "fix", sentinelFix(p.Listener))
	}
	return len(troubles) > 0
}
