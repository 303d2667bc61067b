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
		changed: make(chan struct{}), clients: make(map[string]*redis.Client)}
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
		o.TLSConfig.ServerName, _, _ = net.SplitHostPort(addr)
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

// RefreshWith is Refresh that asks nodes at more addresses too, which may be known to
// nobody.
func (t *Topology) RefreshWith(ctx context.Context, more ...string) error {
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
	if old := t.view.Swap(v); !v.same(old) {
		close(t.changed)
		t.changed = make(chan struct{})
	}
	return nil
}

// look is one round of questions.
func (t *Topology) look(ctx context.Context, more []string) (*View, error) {
	addrs := append(slices.Clone(more), t.o.Seeds...)
	if v := t.View(); v != nil {
		for _, n := range v.Nodes() {
			addrs = append(addrs, n.Addr)
		}
	}
	var (
		answers [][]said
		failure error
	)
	asked := map[string]bool{"": true}
	for len(addrs) > 0 {
		var wave []string
		for _, a := range addrs {
			if !asked[a] {
				asked[a] = true
				wave = append(wave, a)
			}
		}
		if len(asked) > 2*maxNodes {
			return nil, fmt.Errorf("there are more than %d nodes", maxNodes)
		}
		addrs = nil
		for _, r := range t.ask(ctx, wave) {
			if r.err != nil {
				failure = r.err
				continue
			}
			answers = append(answers, r.said)
			for _, s := range r.said {
				addrs = append(addrs, s.Addr)
			}
		}
	}
	if len(answers) == 0 {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", ErrNoNode, failure)
	}
	return merge(answers), nil
}

type answer struct {
	said []said
	err  error
}

// ask asks nodes what they know of all.
func (t *Topology) ask(ctx context.Context, addrs []string) []answer {
	answers := make([]answer, len(addrs))
	var wg sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, addr := range addrs {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, t.o.NodeTimeout)
			defer cancel()
			text, err := t.Client(addr).ClusterNodes(ctx).Result()
			if err == nil {
				host, _, _ := net.SplitHostPort(addr)
				answers[i].said, err = parseNodes(text, host)
			}
			if err != nil {
				answers[i].err = fmt.Errorf("%s: %w", addr, err)
			}
		})
	}
	wg.Wait()
	return answers
}
