package electiontest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// RunServerFaults plays what can befall the server itself, with two electors on it: it
// falls silent, ends connections, is killed and started again, and loses its data. What the
// server cannot do (a nil field) is named in the log, and the caller says why.
func RunServerFaults(t *testing.T, h Harness, s Server) {
	if h.Open == nil || h.OpenAt == nil || h.Server == "" {
		t.Fatal("electiontest: the harness is incomplete")
	}
	// One after the other: they share the server.
	for _, c := range []struct {
		name string
		can  bool
		play func(*electors, Server)
	}{
		{"E3_ServerStopped", s.Freeze != nil, (*electors).serverStopped},
		{"E12_ServerEndsConnections", s.EndConnections != nil, (*electors).serverEndsConnections},
		{"E14_ServerKilledAndRestarted", s.Restart != nil, (*electors).serverRestarted},
		{"E9_DataWiped", s.Wipe != nil, (*electors).dataWiped},
	} {
		if !c.can {
			t.Logf("%s does not apply", c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
			t.Cleanup(cancel)
			set := suite{h}
			u := user{t, ctx, set.open(t), fresh()}
			c.play(&electors{t: t, suite: set, Witness: NewWitness(t), user: u}, s)
		})
	}
}

// The server is stopped, with its connections open: the leader's context ends by its
// trust, with a call under way, and somebody leads again once the server goes on (E14).
func (s *electors) serverStopped(server Server) {
	a := s.start("a")
	s.Begun(s.user.ctx, 1)
	b := s.start("b")
	until(s.t, s.user.ctx, "both know the server", func() bool { return a.Calls(election.OpRenew) > 1 && b.Healthy() })
	thaw := server.Freeze(s.t)
	r := s.Told(s.user.ctx, 1)
	last := a.lastGood()
	if d := r.Told.Sub(last); d < leaseTrust || d >= leaseTTL {
		s.t.Errorf("the context ended %v after the last good renewal, the trust is %v and the lease %v", d, leaseTrust, leaseTTL)
	}
	if cause := context.Cause(r.Ctx); !errors.Is(cause, election.ErrTrustEnded) {
		s.t.Errorf("cause %v", cause)
	}
	thaw()
	s.Begun(s.user.ctx, 2) // the witness compares the numbers
	s.end(a)
	s.end(b)
}

// The server ends what it has from the electors: neither two lead nor none, for longer
// than the electors need to connect again.
func (s *electors) serverEndsConnections(server Server) {
	a := s.start("a")
	s.Begun(s.user.ctx, 1)
	b := s.start("b")
	for range 3 {
		server.EndConnections(s.t)
		n := a.lastGood()
		until(s.t, s.user.ctx, "somebody leads, and hears from the server", func() bool {
			if _, leads := b.Term(); leads {
				return b.lastGood().After(n)
			}
			_, leads := a.Term()
			return leads && a.LastGood(election.OpRenew).After(n)
		})
	}
	s.end(b)
	s.end(a)
}

// The server is killed and started again on its data: the term goes on if its trust
// outlived that, else another follows; never two.
func (s *electors) serverRestarted(server Server) {
	a := s.start("a")
	r := s.Begun(s.user.ctx, 1)
	b := s.start("b")
	server.Restart(s.t)
	back := time.Now()
	until(s.t, s.user.ctx, "somebody leads", func() bool {
		for _, e := range []*elector{a, b} {
			if term, ok := e.Term(); ok && e.lastGood().After(back) {
				return term.Number >= r.Term.Number
			}
		}
		return false
	})
	s.within("leading again", back, time.Now(), leaseTTL+leaseRetry+2*slack)
	s.end(a)
	s.end(b)
}

// The server's data is gone: the leader is told, or its trust ends; and the next number,
// also that of somebody who has seen none, is higher than all before.
func (s *electors) dataWiped(server Server) {
	a := s.start("a")
	r := s.Begun(s.user.ctx, 1)
	server.Wipe(s.t)
	s.Told(s.user.ctx, 1)
	s.end(a)
	b := s.OpenAt(s.t, s.Server) // knows nothing
	s.t.Cleanup(func() { _ = b.Close() })
	fresh := s.user.with(b)
	st, err := election.StatusResult{}, error(nil)
	until(s.t, s.user.ctx, "being served", func() bool {
		st, err = b.Status(s.user.ctx, s.user.id)
		return err == nil
	})
	if st.Status == election.Held {
		s.t.Fatalf("held after the end: %+v", st)
	}
	g := fresh.win(election.AcquireOptions{Owner: "fresh"})
	if last := s.Reigns(); g.Number <= last[len(last)-1].Term.Number || g.Number <= r.Term.Number {
		s.t.Errorf("number %d after %d", g.Number, r.Term.Number)
	}
	fresh.standing(r.Term.Token, election.StandingStale, g.Number)
}
