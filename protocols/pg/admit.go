package pg

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
)

// settle decides, after login and before the client's first message, whether the session
// may write.
func (s *session) settle(ctx context.Context) bool {
	r := s.presented()
	s.mu.Lock()
	asks := s.core.asks(r)
	s.mu.Unlock()
	if asks {
		r = s.admit(ctx)
		if r == nil {
			s.mu.Lock()
			inject := s.core.bound(s.permit.Term(), s.allowsPrepared())
			s.mu.Unlock()
			_, err := s.upstream.Write(inject)
			return err == nil
		}
	}
	s.mu.Lock()
	b := s.core.notBound(r)
	s.changed.Broadcast()
	s.mu.Unlock()
	return s.say(b)
}

// presented takes the credential of the start-up packet.
func (s *session) presented() *guard.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := s.start.election; id != "" {
		if err := election.CheckID(id); err != nil {
			return &guard.Refusal{Reason: guard.InvalidCredential, Detail: err.Error()}
		}
		s.core.election = id
	}
	if s.start.token == "" {
		return nil
	}
	if s.core.replication {
		s.start.token = ""
		return &guard.Refusal{Reason: guard.NotAllowed, Election: s.core.election, Detail: "a replication connection reads, and is never bound"}
	}
	t, err := election.ParseToken(s.start.token)
	s.start.token = ""
	if err != nil {
		return &guard.Refusal{Reason: guard.InvalidCredential, Election: s.core.election, Detail: err.Error()}
	}
	s.core.token = t
	_, r := s.core.credential()
	return r
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
		s.core.bound(s.permit.Term(), s.allowsPrepared())
	}
}

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
		s.permit = p
		s.mu.Unlock()
		s.wg.Go(func() {
			select {
			case <-p.Done():
				s.lose(p)
			case <-s.done:
			}
		})
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
	p := s.permit
	t := p.Term()
	if !p.Live() {
		return refusalOf(p.Err(), t)
	}
	rec, err := s.cfg.Binder.Read(ctx, t.Election)
	switch {
	case err == nil && rec.Highest > t.Number:
		r := &guard.Refusal{Reason: guard.Stale, Election: t.Election, Held: t.Number, Rules: rec.Highest}
		s.log.Info("session severed", "election", r.Election, "number", r.Held, "rules", r.Rules)
		return r
	case err == nil:
		return nil
	}
	select {
	case <-p.Done():
		return refusalOf(p.Err(), t)
	case <-ctx.Done():
		return nil
	}
}
