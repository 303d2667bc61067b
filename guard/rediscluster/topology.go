// Package rediscluster knows the nodes of a Redis or Valkey cluster, who of them is a
// primary, and which slots each owns.
//
// It promises that a View is what the nodes themselves said, every one that could be
// reached, and that a Refresh has asked them after it was called. It does not promise that
// they agree, nor that it is still so: who relies on it must be told by the servers where
// it is not.
package rediscluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Defaults of Options.
const (
	DefaultEvery       = time.Second
	DefaultNodeTimeout = time.Second
)

const (
	// maxNodes bounds what is believed of a cluster's size.
	maxNodes = 1000
	// atOnce is how many nodes are asked at the same time.
	atOnce = 32
	// forgetAfter is how long the client of an address that is not listed is kept.
	forgetAfter = 10 * time.Minute
)

// ErrNoNode means that no node answered.
var ErrNoNode = errors.New("no node of the cluster answers")

// Options are those of New. ParseURL makes them.
type Options struct {
	// Seeds are host:port of nodes to begin with. At least one must be reachable at first;
	// later any node that is known will do.
	Seeds []string
	// Redis is the pattern for each node's client: user, password, TLS. Its Addr is of no
	// meaning.
	Redis redis.Options
	// Every is the time between two refreshes; zero means DefaultEvery.
	Every time.Duration
	// NodeTimeout is how long one node may take to answer; zero means DefaultNodeTimeout.
	NodeTimeout time.Duration
	// Log receives failed refreshes; nil means no log.
	Log *slog.Logger
}

// A Topology keeps the newest View of a cluster. It is safe for concurrent use.
type Topology struct {
	o       Options
	pattern redis.Options
	view    atomic.Pointer[View]
	suspect chan struct{}
	turn    chan struct{} // holds a token while nobody asks the nodes

	mu      sync.Mutex
	started uint64 // how many looks have begun
	done    uint64 // the last look that succeeded
	changed chan struct{}
	clients map[string]*redis.Client
	names   map[string]string    // hostnames that nodes announce, by address
	missing map[string]time.Time // when an address with a client was first not in a view
	closed  bool
}

// New makes a topology. It asks nobody anything: call Refresh, or Run.
func New(o Options) *Topology {
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	if o.NodeTimeout == 0 {
		o.NodeTimeout = DefaultNodeTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Seeds = slices.Clone(o.Seeds)
	p := o.Redis
	p.Network, p.DB = "tcp", 0
	p.ClientName, p.DisableIdentity = "", true
	p.ContextTimeoutEnabled = true
	p.MaxRetries, p.DialerRetries = -1, 1 // the caller knows whether to ask again, and whom
	p.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	t := &Topology{o: o, pattern: p, suspect: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		changed: make(chan struct{}), clients: make(map[string]*redis.Client), names: make(map[string]string), missing: make(map[string]time.Time)}
	t.turn <- struct{}{}
	return t
}

// Close closes the clients. Run must have returned.
func (t *Topology) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var errs []error
	for _, c := range t.clients {
		errs = append(errs, c.Close())
	}
	clear(t.clients)
	return errors.Join(errs...)
}

// Run refreshes the view at once, whenever it is asked to by Suspect, and every so often,
// until ctx is done; it returns ctx's error.
func (t *Topology) Run(ctx context.Context) error {
	tick := time.NewTicker(t.o.Every)
	defer tick.Stop()
	down := false
	for {
		err := t.Refresh(ctx)
		if failed := err != nil && ctx.Err() == nil; failed != down {
			if down = failed; down {
				t.o.Log.Warn("the cluster's topology cannot be refreshed", "error", err)
			} else {
				t.o.Log.Info("the cluster answers again")
			}
		}
		select {
		case <-tick.C:
		case <-t.suspect:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// View is the newest view, nil before the first.
func (t *Topology) View() *View { return t.view.Load() }

// Seeds are the nodes to begin with.
func (t *Topology) Seeds() []string { return slices.Clone(t.o.Seeds) }

// Suspect asks Run for a refresh, since something did not look as the view says. It never
// blocks.
func (t *Topology) Suspect() {
	select {
	case t.suspect <- struct{}{}:
	default:
	}
}

// Changed is closed when there is a view that says something else than the one before.
// Take it before View, and take it anew each time.
func (t *Topology) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Client is the control client of one node, which Close closes. It never asks twice.
func (t *Topology) Client(addr string) *redis.Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.clients[addr]; c != nil {
		return c
	}
	o := t.pattern
	o.Addr = addr
	if host, _, _ := net.SplitHostPort(t.o.Redis.Addr); o.TLSConfig != nil && (o.TLSConfig.ServerName == "" || o.TLSConfig.ServerName == host) {
		// The name on the certificate is the node's own.
		o.TLSConfig = o.TLSConfig.Clone()
		if o.TLSConfig.ServerName = t.names[addr]; o.TLSConfig.ServerName == "" {
			o.TLSConfig.ServerName, _, _ = net.SplitHostPort(addr)
		}
	}
	c := redis.NewClient(&o)
	if t.closed {
		_ = c.Close() // so that its calls fail
		return c
	}
	t.clients[addr] = c
	return c
}

// Refresh asks every node that is known, the seeds, and every node that any of these
// knows, and returns when there is a view that was asked for after Refresh was called.
// Calls at the same time share one round of questions.
func (t *Topology) Refresh(ctx context.Context) error { return t.RefreshWith(ctx) }

// RefreshWith is Refresh that asks more nodes too, of which only ID and Addr count: nobody
// else may list them.
func (t *Topology) RefreshWith(ctx context.Context, more ...Node) error {
	t.mu.Lock()
	before := t.started
	t.mu.Unlock()
	select {
	case <-t.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { t.turn <- struct{}{} }()
	t.mu.Lock()
	if t.done > before && len(more) == 0 {
		t.mu.Unlock()
		return nil // one that began after we came
	}
	t.started++
	mine := t.started
	t.mu.Unlock()
	v, err := t.look(ctx, more)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = mine
	t.forget(v, time.Now())
	if old := t.view.Swap(v); !v.same(old) {
		close(t.changed)
		t.changed = make(chan struct{})
	}
	return nil
}

// forget closes the clients of addresses that nobody has listed for a long time: nodes come
// back at other ones again and again. t.mu is held.
func (t *Topology) forget(v *View, now time.Time) {
	for addr, c := range t.clients {
		if _, listed := v.ByAddr(addr); listed || slices.Contains(t.o.Seeds, addr) {
			delete(t.missing, addr)
			continue
		}
		since, known := t.missing[addr]
		switch {
		case !known:
			t.missing[addr] = now
		case now.Sub(since) > forgetAfter:
			_ = c.Close()
			delete(t.clients, addr)
			delete(t.names, addr)
			delete(t.missing, addr)
		}
	}
}

// look is one round of questions.
//
// INVARIANT: what answers is believed only if it is the node that it was taken for: an
// address may have come to belong to another cluster. Of the seeds no id is known; they
// are asked where no other node is known that answers.
func (t *Topology) look(ctx context.Context, more []Node) (*View, error) {
	nodes := more
	if v := t.View(); v != nil {
		nodes = append(slices.Clone(v.Nodes()), more...)
	}
	r := &round{t: t, asked: make(map[who]bool), failures: make(map[string]error)}
	err := r.all(ctx, nodes)
	if err == nil && len(r.answers) == 0 {
		var seeds []Node
		for _, s := range t.o.Seeds {
			seeds = append(seeds, Node{Addr: s})
		}
		err = r.all(ctx, seeds)
	}
	if err == nil && len(r.answers) == 0 {
		if err = context.Cause(ctx); err == nil {
			err = fmt.Errorf("%w: %w", ErrNoNode, r.failure)
		}
	}
	if err != nil {
		return nil, err
	}
	v := merge(r.answers)
	v.failures = r.failures
	return v, nil
}

// A round asks each node once.
type round struct {
	t       *Topology
	asked   map[who]bool
	answers [][]said
	failure error // a server's own word, if there was one
	// failures are all of them, by address.
	failures map[string]error
}

// all asks nodes, and those that they know.
func (r *round) all(ctx context.Context, nodes []Node) error {
	for len(nodes) > 0 {
		var wave []who
		for _, n := range nodes {
			w := who{n.ID, n.Addr}
			if w.addr != "" && !r.asked[w] && !r.asked[who{"", w.addr}] {
				r.asked[w] = true
				wave = append(wave, w)
			}
		}
		if len(r.asked) > 2*maxNodes {
			return fmt.Errorf("%w: there are more than %d", ErrNoNode, maxNodes)
		}
		nodes = nil
		for i, a := range r.t.ask(ctx, wave) {
			if a.err != nil {
				r.failures[wave[i].addr] = a.err
				var reply redis.Error
				if err := fmt.Errorf("%s: %w", wave[i].addr, a.err); r.failure == nil || errors.As(a.err, &reply) {
					r.failure = err
				}
				continue
			}
			r.answers = append(r.answers, a.said)
			for _, s := range a.said {
				nodes = append(nodes, s.Node)
			}
			r.t.name(a.said)
		}
	}
	return nil
}

// name notes the hostnames that nodes announce.
func (t *Topology) name(nodes []said) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range nodes {
		if n.Addr != "" && n.Hostname != "" {
			t.names[n.Addr] = n.Hostname
		}
	}
}

// who is a node to be asked; of one without an id any answer will do.
type who struct{ id, addr string }

var errAnother = errors.New("it is another node than it was")

type answer struct {
	said []said
	err  error
}

// ask asks nodes what they know of all.
func (t *Topology) ask(ctx context.Context, nodes []who) []answer {
	answers := make([]answer, len(nodes))
	var wg sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, n := range nodes {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, t.o.NodeTimeout)
			defer cancel()
			text, err := t.Client(n.addr).ClusterNodes(ctx).Result()
			if err == nil {
				host, _, _ := net.SplitHostPort(n.addr)
				answers[i].said, err = parseNodes(text, host)
			}
			if err == nil && n.id != "" && !slices.ContainsFunc(answers[i].said, func(s said) bool { return s.myself && s.ID == n.id }) {
				err = errAnother
			}
			answers[i].err = err
		})
	}
	wg.Wait()
	return answers
}
