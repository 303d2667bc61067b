package config

import (
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
)

// Limits bound what clients may take of a listener; the fields of pg.Config and
// resp.Config have the meaning of each.
type Limits struct {
	// Pending and PerAddress bound connections; zero means the default.
	Pending, PerAddress int
	// Buffer and Inspect (Postgres only) are bytes; zero means the default.
	Buffer, Inspect int
}

// Timeouts bound what a client and a server may take of time. Zero means the default.
// Login and IdleInTransaction are for Postgres only.
type Timeouts struct {
	Startup, Login, Connect, Admit, Idle, IdleInTransaction time.Duration
}

// upstreams reads the servers behind the listener, and how sessions choose among them.
func (r *reader) upstreams(o *object, l *Listener) {
	f := o.need("upstream", "the host:port of the server behind it")
	if f != nil {
		items := []*field{f}
		if f.isList() {
			if l.Protocol != Postgres && l.Protocol != "" {
				f.mistake("several servers are for postgres only")
			}
			items = f.list()
		} else if f.group(l) {
			items = nil
		}
		for _, item := range items {
			addr := item.addressOrSocket(false, l.Protocol)
			switch {
			case addr == "":
			case addr == l.Listen:
				item.mistake("is the listener's own address")
			case strings.Contains(addr, ","):
				item.mistake("%q: several servers are a list: [a:5432, b:5432]", addr)
			case slices.Contains(l.Upstreams, addr):
				item.mistake("%q is given twice", addr)
			default:
				l.Upstreams = append(l.Upstreams, addr)
			}
		}
		if len(l.Upstreams) > 0 {
			l.Upstream = strings.Join(l.Upstreams, ",")
		}
	}
	if f := o.takeFor("target_session_attrs", l); f != nil {
		if s := f.oneOf("any", string(pg.ReadWriteSession), string(pg.ReadOnlySession), string(pg.PrimarySession),
			string(pg.StandbySession), string(pg.PreferStandbySession)); s != "any" {
			l.TargetSessionAttrs = pg.SessionAttrs(s)
		}
	}
	if f := o.takeFor("load_balance_hosts", l); f != nil {
		l.LoadBalanceHosts = f.oneOf("disable", "random") == "random"
	}
}

// takeFor is take of a key that is for Postgres only.
func (o *object) takeFor(name string, l *Listener) *field {
	f := o.take(name)
	if f != nil && l.Protocol != Postgres && l.Protocol != "" {
		f.mistake("is for postgres only")
	}
	return f
}

// forPostgres reports keys that are for Postgres only, and leaves them.
func (o *object) forPostgres(l *Listener, names ...string) {
	for _, n := range names {
		if f := o.left[n]; f != nil && l.Protocol != Postgres && l.Protocol != "" {
			f.mistake("is for postgres only")
		}
	}
}

// limits reads the keys that bound what clients take, and of the network.
func (r *reader) limits(o *object, l *Listener) {
	if f := o.take("limits"); f != nil {
		in := f.object()
		in.forPostgres(l, "inspect")
		for _, k := range []struct {
			name        string
			to          *int
			least, most int
		}{
			{"pending", &l.Limits.Pending, 1, 1_000_000},
			{"per_address", &l.Limits.PerAddress, 1, 1_000_000},
			{"buffer", &l.Limits.Buffer, 512, 1 << 20},
			{"inspect", &l.Limits.Inspect, 1 << 10, pg.DefaultMaxInspect},
		} {
			if f := in.take(k.name); f != nil {
				*k.to = f.number(k.least, k.most)
			}
		}
		in.close()
	}
	if f := o.take("timeouts"); f != nil {
		in := f.object()
		in.forPostgres(l, "login", "idle_in_transaction")
		for _, k := range []struct {
			name        string
			to          *time.Duration
			least, most time.Duration
		}{
			{"startup", &l.Timeouts.Startup, 10 * time.Millisecond, time.Hour},
			{"login", &l.Timeouts.Login, 10 * time.Millisecond, time.Hour},
			{"connect", &l.Timeouts.Connect, 10 * time.Millisecond, time.Hour},
			{"admit", &l.Timeouts.Admit, 10 * time.Millisecond, time.Hour},
			{"idle", &l.Timeouts.Idle, 0, 10_000 * time.Hour},
			{"idle_in_transaction", &l.Timeouts.IdleInTransaction, 0, 10_000 * time.Hour},
		} {
			if f := in.take(k.name); f != nil {
				*k.to = f.duration(k.least, k.most)
				// By a Unix socket the server does not say which session a connection is of.
				if k.name == "idle" && l.Protocol != Postgres && *k.to > 0 && slices.ContainsFunc(l.Upstreams, isSocket) {
					f.mistake("is for servers that are reached by TCP")
				}
			}
		}
		in.close()
	}
	l.KeepAlive = protocols.DefaultKeepAlive
	if f := o.take("keepalive"); f != nil {
		in := f.object()
		if f := in.take("idle"); f != nil {
			l.KeepAlive.Idle = f.duration(time.Second, 24*time.Hour)
		}
		if f := in.take("interval"); f != nil {
			l.KeepAlive.Interval = f.duration(time.Second, time.Hour)
		}
		if f := in.take("count"); f != nil {
			l.KeepAlive.Count = f.number(1, 100)
		}
		in.close()
	}
	r.proxyProtocol(o, l)
}

// proxyProtocol reads whether load balancers say which client a connection is from.
func (r *reader) proxyProtocol(o *object, l *Listener) {
	f, trusted := o.take("proxy_protocol"), o.take("trusted")
	on := f != nil && f.oneOf("off", "v2") == "v2"
	switch {
	case !on && trusted != nil:
		trusted.mistake("is for proxy_protocol: v2")
	case on && trusted == nil && !isSocket(l.Listen):
		f.mistake("needs trusted: the networks of the load balancers, for instance [10.0.0.0/8]. Whoever else could say this would be believed")
	case on:
		l.ProxyProtocol = &protocols.ProxyProtocol{}
	}
	if trusted == nil {
		return
	}
	for _, item := range trusted.list() {
		networks := item.network()
		if l.ProxyProtocol != nil {
			l.ProxyProtocol.Trusted = append(l.ProxyProtocol.Trusted, networks...)
		}
	}
}

// SplitUpstream is the listener as if the server at addr alone stood behind it.
func (l Listener) SplitUpstream(addr string) *Listener {
	l.Upstream, l.Upstreams = addr, []string{addr}
	return &l
}

// Several reports whether sessions choose among servers.
func (l *Listener) Several() bool {
	return len(l.Upstreams) > 1 || l.TargetSessionAttrs != pg.AnySession
}
