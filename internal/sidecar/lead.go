package sidecar

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/protocols"
)

// An Admitter turns credentials into permits; *guard.Guard is one.
type Admitter interface {
	Admit(ctx context.Context, c guard.Credential) (*guard.Permit, error)
}

// A Lead is what one listener has of a campaign.
type Lead struct {
	c     *Campaign
	guard Admitter

	held    atomic.Pointer[held]          // nil while there is nothing to offer
	refused atomic.Pointer[guard.Refusal] // why there is not although the process leads
}

var _ protocols.Leadership = (*Lead)(nil)

type held struct {
	credential guard.Credential
	permit     *guard.Permit
}

// Lead makes what a listener needs; Over says which guard is the listener's. Both come before
// Run.
func (c *Campaign) Lead() *Lead {
	l := &Lead{c: c}
	c.leads = append(c.leads, l)
	return l
}

// Over sets the listener's guard.
func (l *Lead) Over(g Admitter) { l.guard = g }

// Election is the campaign's.
func (l *Lead) Election() string { return l.c.c.Election }

// Credential returns the campaign's own, while a permit for it lives.
//
// Sessions ask for permits of their own with it, and get them at once: the takeover is over.
func (l *Lead) Credential() (guard.Credential, bool) {
	h := l.held.Load()
	if h == nil || !h.permit.Live() {
		return guard.Credential{}, false
	}
	return h.credential, true
}

const (
	// retryFirst and retryMost are how long after a refusal the guard is asked again.
	retryFirst = 250 * time.Millisecond
	retryMost  = 5 * time.Second
)

// hold keeps a permit for the term until ctx, which the elector ends, is done. So the takeover is
// made when the process begins to lead, and not when its first client comes.
func (l *Lead) hold(ctx context.Context, term election.Term) {
	defer l.refused.Store(nil)
	cred := guard.Credential{Election: term.Election, Token: term.Token}
	for pause := retryFirst; ; {
		p, err := l.guard.Admit(ctx, cred)
		if err == nil {
			pause = retryFirst
			l.held.Store(&held{cred, p})
			l.refused.Store(nil)
			select {
			case <-p.Done():
				err = p.Err()
			case <-ctx.Done():
			}
			// INVARIANT: nothing is offered any more once the elector's trust has ended. (What
			// a session took just before, the guard and the fence still refuse if it is stale.)
			l.held.Store(nil)
			p.Release()
		}
		if ctx.Err() != nil {
			return
		}
		r := refusal(err, term)
		l.refused.Store(r)
		l.c.c.Log.Warn("this process leads, and cannot write yet", "election", term.Election, "number", term.Number, "reason", r.Error())
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, retryMost)
	}
}

// Refusal says why there is no credential.
func (l *Lead) Refusal() *guard.Refusal {
	s := l.c.Status()
	r := &guard.Refusal{Reason: guard.NotElected, Election: l.c.c.Election}
	switch {
	case s.Leads:
		if r := l.refused.Load(); r != nil {
			return r
		}
		r.Detail = "this proxy has just begun to lead, and its takeover is under way"
	case s.Number != 0:
		r.Rules, r.Leader = s.Number, s.Leader
	case s.HeldOff:
		r.Detail = "its last holder has given it up, and holds it off for a while"
	case !s.Healthy:
		r.Detail = "the election backend does not answer"
	default:
		r.Detail = "nobody is known to lead it"
	}
	return r
}

func refusal(err error, term election.Term) *guard.Refusal {
	if r, ok := asRefusal(err); ok {
		return r
	}
	return &guard.Refusal{Reason: guard.BackendUnknown, Election: term.Election, Held: term.Number, Err: err}
}

func asRefusal(err error) (*guard.Refusal, bool) {
	var r *guard.Refusal
	ok := errors.As(err, &r)
	return r, ok
}

// sleep waits for d and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
