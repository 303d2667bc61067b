package guard

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/policy"
)

// A Gate binds each partition of a resource that has no fence (a queue, a topic, a shard
// of work) to one consumer: the live holder of the partition's election.
//
// It promises that at no time two bindings of one partition live, through however many
// gates that share an election backend: a binding is also a short lease on that backend,
// which is given back only when the consumer has said that it stopped, or after the last
// moment that it was told to trust. A consumer learns of its loss at once where it can
// hear, and has a time to stop at by itself where it cannot. It does not promise that a
// consumer obeys: what it still does after that moment, nothing refuses. Nor does it
// outlive a backend that forgets its leases.
//
//	               lease acquired,
//	               still current          permit or lease ended, evicted, closed
//	claiming ---------------------> live -------------------------------------> ended
//	    \---- refused, evicted ---------\---- Release ----------------------\      | Release, or its
//	                                     \                                   v     v deadline is over
//	                                      `-------------------------------> free <-'
//
// Of the backend it asks two things for each binding every ValidateEvery: to validate the
// consumer's token, and to renew the gate's lease.
type Gate struct {
	backend election.Backend
	guard   *Guard // without a fence: who leads, one validation a token
	c       GateConfig
	of      policy.Template
	epoch   time.Time // the zero of the gate's monotonic times
	closing chan struct{}
	suffix  string // makes the lease's election
	// exclusive says that it is an Exclusive's, and partition a client's name or empty.
	exclusive bool
	// patience is how long a bind waits for a binding of its own token to end before it is
	// refused.
	patience time.Duration

	mu      sync.Mutex
	bound   map[string]*Binding // by election: claiming, live, or not yet free
	highest map[string]int64    // by election: the highest number found current
	closed  bool
	running sync.WaitGroup
}

// A GateConfig says what a Gate binds, and how.
type GateConfig struct {
	// Name is the gate's name, for humans.
	Name string
	// Election is the template of the partitions' elections, such as
	// orders-{partition}.
	Election string
	// PermitFor is how long a consumer may go on unasked, and the time after which the
	// partition of a dead gate is free; zero means DefaultPermitFor.
	PermitFor time.Duration
	// ValidateEvery is the time between two questions about a binding; zero means
	// DefaultValidateEvery, but at most a third of PermitFor.
	ValidateEvery time.Duration
	// Timeout bounds one question to the election backend; zero means DefaultTimeout.
	Timeout time.Duration
	// Max is how many bindings there may be at once; zero means DefaultGateMax.
	Max int
	// Log receives the begin and the end of bindings; nil means no log. Tokens never
	// reach it.
	Log *slog.Logger
}

// DefaultGateMax is how many bindings a gate has at most unless it is told otherwise.
const DefaultGateMax = 10000

// gateSuffix makes the election of the gate's lease of a partition's election, longestSuffix
// is the longest of such.
const (
	gateSuffix    = ":gate"
	longestSuffix = ":postgres"
)

func (c GateConfig) defaults() GateConfig {
	if c.PermitFor == 0 {
		c.PermitFor = DefaultPermitFor
	}
	if c.ValidateEvery == 0 {
		c.ValidateEvery = min(DefaultValidateEvery, c.PermitFor/3)
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Max == 0 {
		c.Max = DefaultGateMax
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// ParseGateElection reads the template of a gate's elections. It names {partition}, and
// nothing else.
func ParseGateElection(s string) (policy.Template, error) {
	t, err := policy.ParseTemplate(s)
	if err != nil {
		return t, err
	}
	if names := t.Names(); len(names) != 1 || names[0] != "partition" {
		return t, fmt.Errorf("%q must hold {partition}, and no other name", s)
	}
	return t, nil
}

// NewGate returns a gate over b, which it does not close. Close it.
func NewGate(b election.Backend, c GateConfig) (*Gate, error) {
	t, err := ParseGateElection(c.Election)
	if err != nil {
		return nil, fmt.Errorf("making a gate: the elections' template: %w", err)
	}
	return newGate(b, c, t)
}

func newGate(b election.Backend, c GateConfig, t policy.Template) (*Gate, error) {
	c = c.defaults()
	gc := Config{ValidateEvery: c.ValidateEvery, PermitFor: c.PermitFor, Timeout: c.Timeout, Log: c.Log}
	if err := gc.Check(); err != nil {
		return nil, fmt.Errorf("making a gate: %w", err)
	}
	if c.PermitFor < election.MinTTL || c.PermitFor > election.MaxTTL {
		return nil, fmt.Errorf("making a gate: PermitFor is %v, must be %v to %v", c.PermitFor, election.MinTTL, election.MaxTTL)
	}
	if c.Max < 0 {
		return nil, fmt.Errorf("making a gate: Max is %d, must not be negative", c.Max)
	}
	return &Gate{
		backend: b, guard: New(b, nil, gc), c: c, of: t,
		epoch: time.Now(), closing: make(chan struct{}), suffix: gateSuffix,
		bound: make(map[string]*Binding), highest: make(map[string]int64),
	}, nil
}

// Config is the gate's configuration, with its defaults.
func (g *Gate) Config() GateConfig { return g.c }

// margin is how long before its lease's end a binding ends, and how long after its last
// deadline its partition is free: it pays for clocks that run at different speeds.
func (g *Gate) margin() time.Duration { return g.c.PermitFor / 10 }

// Close ends every binding and waits for all that the gate started. A partition whose
// consumer has not yet said that it stopped is free when the gate's lease has run out.
func (g *Gate) Close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.closing)
	}
	all := make([]*Binding, 0, len(g.bound))
	for _, b := range g.bound {
		all = append(all, b)
	}
	g.mu.Unlock()
	for _, b := range all {
		b.end(b.lost("the gate is closing", ErrClosed))
	}
	g.running.Wait()
	g.guard.Close()
}

// Bind binds a partition to the holder of t, the live token of the partition's election.
// It waits, as long as ctx lasts, for an older consumer's binding to be free, through
// whatever gate that came. The error is always a *Refusal. Release the binding.
func (g *Gate) Bind(ctx context.Context, partition string, t election.Token) (*Binding, error) {
	id, err := g.Election(partition)
	if err != nil {
		return nil, err
	}
	p, err := g.guard.Admit(ctx, Credential{Election: id, Token: t})
	if err != nil {
		return nil, err
	}
	return g.bind(ctx, partition, p)
}

// Election is the election of a partition. The error is a *Refusal.
func (g *Gate) Election(partition string) (string, error) {
	refuse := func(err error) error {
		return &Refusal{Reason: InvalidPartition, Detail: err.Error()}
	}
	if err := policy.CheckPartition(partition); err != nil {
		return "", refuse(err)
	}
	id, err := g.of.Expand(func(string) (string, bool) { return partition, true })
	if err == nil {
		err = checkLeaseOf(id)
	}
	if err != nil {
		return "", refuse(err)
	}
	return id, nil
}

// checkLeaseOf reports whether an election's id leaves room for that of the gate's lease.
func checkLeaseOf(id string) error {
	if err := election.CheckID(id); err != nil {
		return err
	}
	if most := election.MaxIDLen - len(longestSuffix); len(id) > most {
		return fmt.Errorf("%w: the length of %q is %d, must be at most %d here", election.ErrInvalidID, id, len(id), most)
	}
	return nil
}

// bind makes a binding of a permit, which is released with it, or when it is refused.
func (g *Gate) bind(ctx context.Context, partition string, p *Permit) (*Binding, error) {
	b := newBinding(g, partition, p)
	if r := g.enter(ctx, b); r != nil {
		p.Release()
		return nil, r
	}
	if r := b.claim(ctx); r != nil {
		b.end(r)
		b.Release() // no consumer was ever told to trust it
		return nil, b.ended()
	}
	g.c.Log.Info(b.what()+" begins", b.where("election", b.term.Election, "number", b.term.Number, "owner", b.term.Owner)...)
	return b, nil
}

// enter gives b its election's place in this gate, when whoever has it is gone. The lease
// is what keeps gates apart; here an older consumer is told at once, and a second one is
// refused without a question.
func (g *Gate) enter(ctx context.Context, b *Binding) *Refusal {
	var late <-chan time.Time
	if g.patience > 0 {
		t := time.NewTimer(g.patience)
		defer t.Stop()
		late = t.C
	}
	for {
		cur, r := g.place(ctx, b)
		if cur == nil {
			return r
		}
		if cur.ended() == nil {
			switch {
			case cur.term.Number < b.term.Number:
				r := cur.refuse(Stale, "a newer term was bound", nil)
				r.Rules, r.Leader = b.term.Number, b.term.Owner
				cur.end(r)
			case cur.term.Digest != b.term.Digest:
				return b.conflict(ctx, cur)
			case late == nil:
				return b.occupied(cur.term.Number, cur.term.Owner)
			}
		}
		select {
		case <-cur.free:
		case <-late:
			late = nil
		case <-b.permit.Done():
			return b.permit.k.ended()
		case <-g.closing:
			return b.lost("the gate is closing", ErrClosed)
		case <-ctx.Done():
			return b.occupiedStill(cur.term.Number, cur.term.Owner, context.Cause(ctx))
		}
	}
}

// conflict is the refusal when one number has two tokens.
func (b *Binding) conflict(ctx context.Context, cur *Binding) *Refusal {
	if r := b.permit.k.again(ctx); r != nil {
		return r
	}
	r := b.refuse(FenceConflict, "", nil)
	r.Rules, r.Leader = cur.term.Number, cur.term.Owner
	return r
}

// place puts b in its place, or returns who has it, or why it gets none.
func (g *Gate) place(ctx context.Context, b *Binding) (*Binding, *Refusal) {
	id := b.term.Election
	g.mu.Lock()
	highest, cur := g.highest[id], g.bound[id]
	r := (*Refusal)(nil)
	switch {
	case g.closed:
		r = b.lost("the gate is closing", ErrClosed)
	case highest > b.term.Number:
	case cur != nil:
		g.see(id, b.term.Number)
	case len(g.bound) >= g.c.Max:
		r = b.refuse(TooMany, "", nil)
	default:
		g.see(id, b.term.Number)
		g.bound[id] = b
		g.running.Go(b.keep) // under the lock: Close waits for it
	}
	g.mu.Unlock()
	// INVARIANT: a number lower than one that was found current is never bound.
	if r == nil && highest > b.term.Number {
		return nil, b.permit.k.above(ctx, highest, "")
	}
	if r != nil {
		return nil, r
	}
	return cur, nil
}

// see notes a number that was found current. What is forgotten so that memory stays
// bounded is only looked at once more: that a token is current decides.
func (g *Gate) see(id string, n int64) {
	if _, known := g.highest[id]; !known && len(g.highest) >= 2*g.c.Max+64 {
		for old := range g.highest {
			if g.bound[old] == nil {
				delete(g.highest, old)
				break
			}
		}
	}
	g.highest[id] = max(g.highest[id], n)
}

// leave gives b's place up.
func (g *Gate) leave(b *Binding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bound[b.term.Election] == b {
		delete(g.bound, b.term.Election)
	}
}

// A Bound is a binding as List tells of it.
type Bound struct {
	Partition, Election, Owner string
	Number                     int64
	// Since is when it was bound; zero while it is being bound.
	Since time.Time
	// TrustedUntil is when it ends unless it is kept.
	TrustedUntil time.Time
	// Ended means that it has ended and that its consumer has not yet said that it stopped.
	Ended bool
}

// List returns the gate's bindings, in no order.
func (g *Gate) List() []Bound {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Bound, 0, len(g.bound))
	for _, b := range g.bound {
		out = append(out, b.bound())
	}
	return out
}
