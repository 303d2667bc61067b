package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/policy"
)

// An Exclusive lets one session at a time hold an election, or the sessions of one client:
// of all that present its live token, through however many proxies. It keeps apart by the
// lease of a Gate, and so at no time two hold it; a second is refused. It promises nothing
// about writes that the first fence does not: that is of one token, this of its users.
type Exclusive struct {
	gate   *Gate
	shared bool

	mu    sync.Mutex
	holds map[holder]*hold // those that a client's sessions share
}

// holder names the sessions that share a hold.
type holder struct {
	election string
	digest   election.Digest
	client   string
}

// A hold is a binding that sessions of one client share.
type hold struct {
	e     *Exclusive
	of    holder
	ready chan struct{} // closed when b or err is set
	b     *Binding
	err   error
	users int // guarded by e.mu
}

// NewExclusive returns an Exclusive over b, which it does not close. The sessions of one
// client share where shared is set. Of c, Election is not used, and Name says of what kind the
// resource is, at most eight characters of an election's id: a leader may have a session of
// each kind. Close it.
func NewExclusive(b election.Backend, shared bool, c GateConfig) (*Exclusive, error) {
	suffix := ":" + c.Name
	if err := election.CheckID(c.Name + suffix); err != nil || len(suffix) > len(longestSuffix) {
		return nil, fmt.Errorf("making an exclusive: the kind %q is no part of an election's id, or too long", c.Name)
	}
	g, err := newGate(b, c, policy.Template{})
	if err != nil {
		return nil, err
	}
	g.suffix, g.exclusive = suffix, true
	// A client that comes again at once finds its own session's last moments.
	g.patience = g.c.ValidateEvery
	return &Exclusive{gate: g, shared: shared, holds: make(map[holder]*hold)}, nil
}

// Close ends every hold, and with it the permits that have one.
func (e *Exclusive) Close() { e.gate.Close() }

// Hold returns a permit in the place of p that lives only while the session also holds the
// election, or a *Refusal, which names who does: p is released then. client says which
// client the session is of.
func (e *Exclusive) Hold(ctx context.Context, p *Permit, client string) (*Permit, error) {
	h, err := e.enter(ctx, p, client)
	if err != nil {
		p.Release()
		return nil, err
	}
	return &Permit{k: p.k, is: p.is, hold: h}, nil
}

func (e *Exclusive) enter(ctx context.Context, p *Permit, client string) (*hold, error) {
	if err := checkLeaseOf(p.is.term.Election); err != nil {
		return nil, &Refusal{Reason: InvalidCredential, Election: p.is.term.Election, Detail: err.Error()}
	}
	if !e.shared {
		h := &hold{e: e, users: 1}
		h.b, h.err = e.gate.bind(ctx, "", p.share())
		return h, e.exclusive(h.err)
	}
	at := holder{p.is.term.Election, p.is.term.Digest, client}
	for {
		h, first := e.join(at)
		if first {
			h.b, h.err = e.gate.bind(ctx, client, p.share())
			if h.err != nil {
				e.forget(h)
			}
			close(h.ready)
		}
		select {
		case <-h.ready:
		case <-ctx.Done():
			h.leave()
			return nil, &Refusal{Reason: BackendUnknown, Election: at.election, Held: p.is.term.Number,
				Detail: "gave up waiting for the client's other session to be bound", Err: context.Cause(ctx)}
		}
		switch {
		case h.err == nil && h.b.Live() && h.b.term.Number == p.is.term.Number:
			return h, nil
		case h.err == nil: // it ended meanwhile
			e.forget(h)
			h.leave()
			if !p.Live() {
				return nil, p.Err()
			}
		case first, ctx.Err() != nil, !isCanceled(h.err):
			return nil, e.exclusive(h.err)
		default: // another's context is not ours
		}
	}
}

// exclusive says of a refusal why there is one.
func (e *Exclusive) exclusive(err error) error {
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != Occupied {
		return err
	}
	c := *r
	c.Detail = "the listener is exclusive: one session at a time is bound"
	if e.shared {
		c.Detail = "the listener is exclusive: the sessions of one client at a time are bound"
	}
	return &c
}

// join returns the hold of a client's sessions, and whether the caller has to bind it.
func (e *Exclusive) join(at holder) (h *hold, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h = e.holds[at]
	if h == nil {
		h = &hold{e: e, of: at, ready: make(chan struct{})}
		e.holds[at] = h
		first = true
	}
	h.users++
	return h, first
}

// forget sees to it that nobody joins the hold any more.
func (e *Exclusive) forget(h *hold) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holds[h.of] == h {
		delete(e.holds, h.of)
	}
}

// leave takes a session off the hold; the last one releases it.
func (h *hold) leave() {
	h.e.mu.Lock()
	h.users--
	last := h.users == 0
	if last && h.e.holds[h.of] == h {
		delete(h.e.holds, h.of) // in the same step: join finds it no more
	}
	h.e.mu.Unlock()
	if last && h.b != nil { // who binds it counts, until b is set
		h.b.Release()
	}
}

// isCanceled reports whether an error came from a context's end.
func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
