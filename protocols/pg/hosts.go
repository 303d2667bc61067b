package pg

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
)

// SessionAttrs says which of several servers sessions go to, in libpq's words
// (target_session_attrs).
type SessionAttrs string

// The kinds of servers that sessions may ask for.
const (
	// AnySession is any server that can be reached; the zero value.
	AnySession SessionAttrs = ""
	// ReadWriteSession is one that is no standby and whose sessions are not read-only
	// by default, ReadOnlySession any other.
	ReadWriteSession SessionAttrs = "read-write"
	ReadOnlySession  SessionAttrs = "read-only"
	// PrimarySession is one that is no standby, StandbySession one that is.
	PrimarySession SessionAttrs = "primary"
	StandbySession SessionAttrs = "standby"
	// PreferStandbySession is a standby where one can be reached, else any.
	PreferStandbySession SessionAttrs = "prefer-standby"
)

// A Prober finds out what a server is; *pgfence.Prober is one.
type Prober interface {
	// Probe asks the server at addr (ip:port), of a host that was configured as host;
	// or, where host is empty, at the Unix socket addr.
	Probe(ctx context.Context, host, addr string) (pgfence.Kind, error)
}

// probeTTL is how long the answer of a probe is believed. After a failover new sessions
// find the new primary within it.
const probeTTL = time.Second

// probeTimeout is how long a server may take to answer a probe: one that is cut off must
// not hold up sessions that another can serve.
const probeTimeout = 2 * time.Second

// hosts are the servers behind a Server, and what is known of them. What they are only
// chooses where a session goes: that it writes nothing on the wrong one is the bind's to
// see, which is made on the server that the control connection leads to.
type hosts struct {
	all    []target
	attrs  SessionAttrs
	random bool
	prober Prober

	mu     sync.Mutex
	probes map[string]*probe // by address
}

// A probe is one question, asked once for all sessions that wait for it.
type probe struct {
	done  chan struct{} // closed when it is answered
	until time.Time
	kind  pgfence.Kind
	err   error
}

// newHosts checks what Config says of the servers.
func newHosts(c Config) (*hosts, error) {
	all, err := parseHosts(c.Upstream)
	if err != nil {
		return nil, err
	}
	switch c.TargetSessionAttrs {
	case AnySession:
	case ReadWriteSession, ReadOnlySession, PrimarySession, StandbySession, PreferStandbySession:
		if c.Prober == nil {
			return nil, fmt.Errorf("target session attrs %s: a prober is needed", c.TargetSessionAttrs)
		}
	default:
		return nil, fmt.Errorf("target session attrs %q: unknown", c.TargetSessionAttrs)
	}
	return &hosts{all: all, attrs: c.TargetSessionAttrs, random: c.LoadBalanceHosts, prober: c.Prober, probes: make(map[string]*probe)}, nil
}

// candidates are the addresses to be tried, in order, each asked for only when the one
// before did not do; errors say why one is passed over.
func (h *hosts) candidates(ctx context.Context) iter.Seq2[target, error] {
	return func(yield func(target, error) bool) {
		order := slices.Clone(h.all)
		if h.random {
			shuffle(order)
		}
		var others []target // prefer-standby's second choice
		for _, host := range order {
			addrs, err := resolve(ctx, host)
			if err != nil {
				if !yield(host, err) {
					return
				}
				continue
			}
			if h.random {
				shuffle(addrs)
			}
			for _, a := range addrs {
				err := h.suits(ctx, a)
				if err != nil && h.attrs == PreferStandbySession {
					others = append(others, a)
					continue
				}
				if !yield(a, err) {
					return
				}
			}
		}
		for _, a := range others {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// suits reports nil when a server is of the kind that is asked for.
func (h *hosts) suits(ctx context.Context, t target) error {
	if h.prober == nil {
		return nil
	}
	kind, err := h.kind(ctx, t)
	if refused := new(pgconn.PgError); h.attrs == AnySession && errors.As(err, &refused) && refused.Code != notYet {
		return nil // it answers; whether it takes the client is between the two
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.addr, err)
	}
	if why := h.attrs.Unsuited(kind); why != "" {
		return fmt.Errorf("%s: %s", t.addr, why)
	}
	return nil
}

// Unsuited says why a server of the kind does not do, or nothing where it does.
func (a SessionAttrs) Unsuited(kind pgfence.Kind) string {
	readOnly := kind.Standby || kind.ReadOnly
	switch {
	case a == ReadWriteSession && readOnly:
		return "sessions are read-only there"
	case a == ReadOnlySession && !readOnly:
		return "sessions are not read-only there"
	case a == PrimarySession && kind.Standby:
		return "it is a standby"
	case (a == StandbySession || a == PreferStandbySession) && !kind.Standby:
		return "it is no standby"
	}
	return ""
}

func shuffle(ts []target) {
	//nolint:gosec // to spread load, not to hide
	rand.Shuffle(len(ts), func(i, j int) { ts[i], ts[j] = ts[j], ts[i] })
}

// notYet is what a server says that starts or recovers: cannot_connect_now.
const notYet = "57P03"

// kind asks what a server is, or answers what it said a moment ago.
func (h *hosts) kind(ctx context.Context, t target) (pgfence.Kind, error) {
	h.mu.Lock()
	p := h.probes[t.addr]
	if p != nil && (!p.answered() || time.Now().Before(p.until)) {
		h.mu.Unlock()
		select {
		case <-p.done:
			return p.kind, p.err
		case <-ctx.Done():
			return pgfence.Kind{}, ctx.Err()
		}
	}
	if len(h.probes) >= maxProbes {
		clear(h.probes) // addresses of a name that moves
	}
	p = &probe{done: make(chan struct{})}
	h.probes[t.addr] = p
	h.mu.Unlock()

	// Whoever asks answers for all who wait; its own end is no answer about the server.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	start := time.Now()
	p.kind, p.err = probeAt(asking, h.prober, t)
	// Where an answer took long, the next is not asked for at once.
	p.until = time.Now().Add(max(probeTTL, time.Since(start)))
	close(p.done)
	return p.kind, p.err
}

func probeAt(ctx context.Context, p Prober, t target) (pgfence.Kind, error) {
	addr := t.addr
	if path, ok := SocketPath(addr); ok {
		addr = path
	}
	return p.Probe(ctx, t.host, addr)
}

// Kind asks what the server is that an address leads to, written as in Config.Upstream; of a
// name with several addresses, at the first.
func Kind(ctx context.Context, p Prober, upstream string, timeout time.Duration) (pgfence.Kind, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	all, err := parseHosts(upstream)
	if err != nil {
		return pgfence.Kind{}, err
	}
	addrs, err := resolve(ctx, all[0])
	if err != nil {
		return pgfence.Kind{}, err
	}
	return probeAt(ctx, p, addrs[0])
}

// maxProbes bounds how many addresses are remembered.
const maxProbes = 256

func (p *probe) answered() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// started tells the server of a session from others, where sessions choose among
// several; else it is empty.
func (h *hosts) started(ctx context.Context, t target) (string, error) {
	if h.prober == nil {
		return "", nil
	}
	kind, err := h.kind(ctx, t)
	return kind.Started, err
}

// unreachable is what a client is told when no server will do.
func (h *hosts) unreachable() *startupError {
	if h.attrs == AnySession {
		return &startupError{"08006", "the proxy cannot connect to the server"}
	}
	return &startupError{"08006", fmt.Sprintf("the proxy cannot connect to a server that is %s", h.attrs)}
}

// forget makes the next session ask again what the server at addr is.
func (h *hosts) forget(addr string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.probes[addr]; p != nil && p.answered() {
		delete(h.probes, addr)
	}
}
