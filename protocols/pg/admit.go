package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/protocols"
)

// settle decides, after login and before the client's first message, whether the session
// may write.
func (s *session) settle(ctx context.Context) bool {
	first, more, r := s.presented()
	s.mu.Lock()
	asks := s.core.asks(r)
	s.mu.Unlock()
	if asks {
		r = s.admit(ctx)
	}
	var inject []byte
	if asks && r == nil {
		inject = s.boundAtStart()
	}
	for _, cred := range more {
		// Each by itself: what is refused takes nothing from the others.
		if inject == nil && r == nil {
			break // the first was none
		}
		s.mu.Lock()
		twice := s.core.leads(cred.Election)
		if !twice {
			s.core.election, s.core.token = cred.Election, cred.Token
		}
		s.mu.Unlock()
		if twice {
			continue // as often as it is named, it holds one term of an election
		}
		if another := s.admit(ctx); another == nil {
			inject = s.boundAtStart()
		} else {
			s.core.warn(another)
		}
	}
	if inject != nil {
		if r != nil {
			s.core.warn(r)
		}
		s.mu.Lock()
		s.core.refusal = nil
		s.mu.Unlock()
		_, err := s.upstream.Write(inject)
		return err == nil
	}
	s.mu.Lock()
	if len(more) > 0 {
		s.core.election, s.core.token = first.Election, first.Token
	}
	b := s.core.notBound(r)
	s.changed.Broadcast()
	s.mu.Unlock()
	return s.say(b)
}

// boundAtStart tells the core of the latest bind.
func (s *session) boundAtStart() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.bound(s.lastTerm(), s.allowsPrepared())
}

// presented takes the credential of the start-up packet; with rules, it may be several.
func (s *session) presented() (first guard.Credential, more []guard.Credential, r *guard.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids, tokens := []string{s.start.election}, []string{s.start.token}
	s.start.token = ""
	if s.core.ruled != nil {
		ids, tokens = strings.Split(ids[0], ","), strings.Split(tokens[0], ",")
		if len(ids) != len(tokens) && tokens[0] != "" || len(ids) > maxTerms {
			return first, nil, &guard.Refusal{Reason: guard.InvalidCredential,
				Detail: fmt.Sprintf("fence.election lists %d elections and fence.token %d tokens: they belong together one by one, at most %d", len(ids), len(tokens), maxTerms)}
		}
	}
	for i, id := range ids {
		if id == "" && len(ids) == 1 {
			id = s.core.election
		} else if err := election.CheckID(id); err != nil {
			return first, nil, &guard.Refusal{Reason: guard.InvalidCredential, Detail: err.Error()}
		}
		cred := guard.Credential{Election: id}
		if i > 0 {
			more = append(more, cred)
			continue
		}
		first, s.core.election = cred, id
	}
	if tokens[0] == "" && len(tokens) == 1 {
		return first, nil, nil
	}
	if s.core.replication {
		return first, nil, &guard.Refusal{Reason: guard.NotAllowed, Election: s.core.election, Detail: "a replication connection reads, and is never bound"}
	}
	for i, text := range tokens {
		t, err := election.ParseToken(text)
		if err != nil {
			return first, nil, &guard.Refusal{Reason: guard.InvalidCredential, Election: s.core.election, Detail: err.Error()}
		}
		if i > 0 {
			more[i-1].Token = t
			continue
		}
		first.Token, s.core.token = t, t
	}
	_, r = s.core.credential()
	return first, more, r
}

// admitLater settles a credential that SET fence.… completed, or a sidecar's.
func (s *session) admitLater(ctx context.Context) {
	var r *guard.Refusal
	soon := s.tooSoon()
	if !soon {
		began := time.Now()
		r = s.admit(ctx)
		s.refusedFor(r, time.Since(began))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r != nil || soon {
		s.core.notBound(r)
	} else {
		s.core.bound(s.lastTerm(), s.allowsPrepared())
	}
}

// lastTerm is that of the latest bind.
func (s *session) lastTerm() guard.Term { return s.permits[len(s.permits)-1].Term() }

func (s *session) allowsPrepared() bool {
	return len(s.bindings) > 0 && s.bindings[len(s.bindings)-1].PreparedTransactions
}

// bindTries is how often an admission is repeated when the fence moves meanwhile.
const bindTries = 3

// admit asks for a permit and binds the upstream connection to its term. Only then is
// the permit set, and watched.
func (s *session) admit(ctx context.Context) *guard.Refusal {
	ctx, cancel := context.WithTimeout(ctx, s.admitTimeout())
	defer cancel()
	cred, r := s.core.credential()
	if r != nil {
		return r
	}
	s.mu.Lock()
	standby := s.core.standby
	s.mu.Unlock()
	if standby {
		// Invariant: a session is bound only on the server that keeps the fence. One on a
		// standby would outlive its promotion, out of the sight of a takeover.
		return s.refused(onStandby(cred.Election), cred)
	}
	backend := pgfence.BackendOf(s.core.pid, s.upstream)
	for try := range bindTries {
		var err error
		if backend.Started, err = s.srv.hosts.started(ctx, s.to); err != nil {
			return s.refused(err, cred)
		}
		p, err := s.cfg.Guard.Admit(ctx, cred)
		if err == nil && s.cfg.Exclusive != nil {
			p, err = s.cfg.Exclusive.Hold(ctx, p, protocols.ClientOf(s.client.RemoteAddr()))
		}
		if err != nil {
			return s.refused(err, cred)
		}
		b, err := s.cfg.Binder.Bind(ctx, backend, p.Term(), p.Record())
		if err != nil {
			other := errors.Is(err, pgfence.ErrOther)
			if errors.Is(err, guard.ErrConflict) {
				p.Invalidate()
			}
			p.Release()
			if (other || errors.Is(err, guard.ErrConflict)) && try < bindTries-1 {
				if other { // or the same, started again since it was asked
					s.srv.hosts.forget(s.to.addr)
				}
				continue
			}
			return s.refused(err, cred)
		}
		s.mu.Lock()
		s.bindings = append(s.bindings, b)
		s.mu.Unlock()
		// The permit may have ended while the bind was under way.
		if !p.Live() {
			r := refusalOf(p.Err(), p.Term())
			p.Release()
			return s.refused(r, cred)
		}
		s.mu.Lock()
		if b.Proof != "" {
			s.core.proofs = append(s.core.proofs, b.Proof)
		}
		s.permits = append(s.permits, p)
		s.mu.Unlock()
		s.unwatch = append(s.unwatch, p.AfterFunc(func() { s.lose(p) }))
		s.log.Info("session bound", "election", b.Election, "number", p.Term().Number, "pid", b.PID)
		return nil
	}
	return nil // not reached
}

func onStandby(election string) *guard.Refusal {
	return &guard.Refusal{Reason: guard.Unseverable, Election: election,
		Detail: "the session is on a standby, the fence is on the primary: connect to that (target_session_attrs)"}
}

// refused turns an error of the guard or the binder into a refusal.
func (s *session) refused(err error, c guard.Credential) *guard.Refusal {
	r := new(guard.Refusal)
	if !errors.As(err, &r) {
		r = &guard.Refusal{Reason: guard.FenceUnavailable, Election: c.Election, Err: err}
	}
	id, text := r.ForLog(r.Election == s.cfg.DefaultElection || slices.Contains(s.cfg.Elections, r.Election))
	s.log.Info("credential refused", "election", id, "held", r.Held, "rules", r.Rules, "reason", text)
	return r
}

// whySevered says why the server ended a bound session: a refusal when a takeover
// did it, nil when it was the server's own will.
func (s *session) whySevered(ctx context.Context) *guard.Refusal {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s.mu.Lock()
	permits := s.permits
	s.mu.Unlock()
	if p := ended(permits); p != nil {
		return refusalOf(p.Err(), p.Term())
	}
	for _, p := range permits {
		t := p.Term()
		rec, err := s.cfg.Binder.Read(ctx, t.Election)
		if err == nil && rec.Highest > t.Number {
			r := &guard.Refusal{Reason: guard.Stale, Election: t.Election, Held: t.Number, Rules: rec.Highest}
			s.log.Info("session severed", "election", r.Election, "number", r.Held, "rules", r.Rules)
			return r
		}
		if err != nil {
			select {
			case <-p.Done():
				return refusalOf(p.Err(), t)
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}
