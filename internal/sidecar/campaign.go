package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// Config says what a Campaign is for.
type Config struct {
	// Election is the election's id; Owner, TTL, Heartbeat and HoldOff are those of
	// election.ElectorConfig.
	Election, Owner         string
	TTL, Heartbeat, HoldOff time.Duration
	// Log receives terms and failures; nil means no log. Tokens never reach it.
	Log *slog.Logger
}

func (c Config) elector() election.ElectorConfig {
	return election.ElectorConfig{Election: c.Election, Owner: c.Owner, TTL: c.TTL, Heartbeat: c.Heartbeat, HoldOff: c.HoldOff}
}

// Check says what is wrong with c.
func (c Config) Check() error { return c.elector().Check() }

// A Campaign is this process's in one election. It is safe for concurrent use.
type Campaign struct {
	c     Config
	b     election.Backend
	leads []*Lead // all of them are made before Run

	elector atomic.Pointer[election.Elector] // nil before Run
	seen    atomic.Pointer[holder]           // who is in the way, as the backend said last; nil for nobody
}

// A holder is who is in the way of a candidate.
type holder struct {
	owner  string
	number int64 // zero during a hold-off
}

// New returns a campaign that has not begun. b stays open.
func New(b election.Backend, c Config) (*Campaign, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Owner == "" {
		c.Owner = election.DefaultOwner()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Campaign{c: c, b: b}, nil
}

// Election is the campaign's election, Owner its name in it.
func (c *Campaign) Election() string { return c.c.Election }

// Owner is the name of this candidate.
func (c *Campaign) Owner() string { return c.c.Owner }

// Run campaigns until ctx is done and then releases the leadership. Its error says why it gave
// up: no session will be bound any more. Call it once.
//
// End ctx when the sessions have drained: until then the lease is renewed for them.
func (c *Campaign) Run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	cfg := c.c.elector()
	cfg.OnError = c.failed
	e, err := election.NewElector(ctx, watched{c.b, c}, cfg)
	if err != nil {
		return err
	}
	c.elector.Store(e)
	e.OnBecomeLeader(c.lead)
	if err := e.Wait(); err != nil {
		return fmt.Errorf("campaigning for election %q: %w", c.c.Election, err)
	}
	return nil
}

var errReleased = errors.New("the process ends, and releases its leadership")

// lead is the elector's callback.
func (c *Campaign) lead(ctx context.Context) {
	term, _ := election.TermFrom(ctx)
	began := time.Now()
	c.c.Log.Info("this process leads", "election", term.Election, "owner", term.Owner, "number", term.Number)
	var all sync.WaitGroup
	for _, l := range c.leads {
		all.Go(func() { l.hold(ctx, term) })
	}
	all.Wait()
	<-ctx.Done()
	why := context.Cause(ctx)
	if errors.Is(why, context.Canceled) {
		why = errReleased // as nobody but Run's caller cancels
	}
	c.c.Log.Info("this process leads no more", "election", term.Election, "number", term.Number,
		"after", time.Since(began).Round(time.Millisecond), "reason", why)
}

// A Status is what a campaign knows of its election.
type Status struct {
	// Leads says that this process does, and that its trust in the lease lasts. Ready says
	// that its takeover is finished everywhere too: sessions can write.
	Leads, Ready bool
	// Healthy says that the election backend answers.
	Healthy bool
	// Owner is the name of this candidate.
	Owner string
	// Leader and Number are of the term that rules, as far as is known; HeldOff says that
	// nobody may lead for a while.
	Leader  string
	Number  int64
	HeldOff bool
}

// Status says how the campaign stands.
func (c *Campaign) Status() Status {
	s := Status{Owner: c.c.Owner}
	e := c.elector.Load()
	if e == nil {
		return s
	}
	s.Healthy = e.Healthy()
	if t, ok := e.Term(); ok {
		s.Leads, s.Ready, s.Leader, s.Number = true, true, t.Owner, t.Number
		for _, l := range c.leads {
			if _, ok := l.Credential(); !ok {
				s.Ready = false
			}
		}
		return s
	}
	if h := c.seen.Load(); h != nil {
		s.Leader, s.Number, s.HeldOff = h.owner, h.number, h.number == 0
	}
	return s
}

// A watched backend tells its campaign who is in the way.
type watched struct {
	election.Backend
	c *Campaign
}

// Acquire asks the backend.
func (w watched) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	r, err := w.Backend.Acquire(ctx, id, o)
	switch {
	case err != nil:
	case r.Status == election.Busy:
		if h := w.c.seen.Load(); h == nil || h.owner != r.Owner || h.number != r.Number {
			w.c.seen.Store(&holder{r.Owner, r.Number})
			if r.Number != 0 {
				w.c.c.Log.Info("another leads", "election", id, "owner", r.Owner, "number", r.Number)
			}
		}
	default:
		w.c.seen.Store(nil)
	}
	return r, err
}

// Hints passes on the backend's.
func (w watched) Hints(ctx context.Context, id string, hint func()) error {
	return election.Hints(ctx, w.Backend, id, hint)
}

// failed is told of the elector's failures.
func (c *Campaign) failed(err error) {
	var hints *election.HintsError
	switch {
	case errors.Is(err, context.Canceled):
	case errors.As(err, &hints):
		c.c.Log.Info("a release is noticed only at the next poll, for now", "election", c.c.Election, "reason", hints.Err)
	case errors.Is(err, election.ErrLost):
		c.c.Log.Info("leadership lost", "reason", err)
	default:
		c.c.Log.Warn("campaigning: a call failed", "election", c.c.Election, "err", err)
	}
}
