package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
)

// The holder is gone without a word. The follower leads within the lease and one wait,
// with a higher number.
func TestE1TakesOverFromACrashedHolder(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		g, began := s.rival(), time.Now()
		c := s.candidate("a")
		r := s.Begun(s.ctx, 1)
		s.at("takeover", r.Began, began.Add(ttl), retry)
		if r.Term.Number <= g.Number {
			t.Errorf("number %d after %d", r.Term.Number, g.Number)
		}
		if !c.Healthy() {
			t.Error("not healthy")
		}
		c.end()
	})
}

// The record is not ours any more. The next renewal says so and the context ends; the
// elector resigns nothing.
func TestE2RecordTakenEndsTheLeadership(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		c := s.candidate("a")
		r := s.Begun(s.ctx, 1)
		if _, err := s.memory.Resign(s.ctx, "e", r.Term.Token, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		g := s.rival()
		r = s.Ended(s.ctx, 1)
		s.at("end", r.Told, r.Began.Add(heartbeat), 0)
		if cause := context.Cause(r.Ctx); !errors.Is(cause, election.ErrLost) {
			t.Errorf("cause %v", cause)
		}
		if n := c.faults.Calls(election.OpResign); n != 0 {
			t.Errorf("%d resignations of what is another's", n)
		}
		if v, _ := s.memory.Validate(s.ctx, "e", g.Token); v.Standing != election.StandingCurrent {
			t.Errorf("the rival's standing: %+v", v)
		}
		if term, ok := election.TermFrom(r.Ctx); !ok || term.TrustedUntil.After(time.Now()) {
			t.Errorf("lost, the term is trusted until %v", term.TrustedUntil)
		}
		c.end()
	})
}

// The backend says nothing any more. The context ends at the time of the last good
// renewal + TTL - margin, whether or not the call under way honours its context.
func TestE3SilentBackendEndsTheLeadershipOnTime(t *testing.T) {
	for name, fault := range map[string]electiontest.Fault{
		"NoAnswer": electiontest.Silent, "AnswersLost": electiontest.Deaf, "CallBlocked": electiontest.Hung,
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(s *stage) {
				c := s.candidate("a")
				s.Begun(s.ctx, 1)
				time.Sleep(3*heartbeat + time.Second)
				c.faults.Set(fault)
				r := s.Ended(s.ctx, 1)
				last := c.faults.LastGood(election.OpRenew)
				if last != r.Began.Add(3*heartbeat) {
					t.Errorf("the last good renewal was %v after the begin", last.Sub(r.Began))
				}
				s.at("end", r.Told, last.Add(trust), 0)
				if cause := context.Cause(r.Ctx); !errors.Is(cause, election.ErrTrustEnded) {
					t.Errorf("cause %v", cause)
				}
				if _, ok := c.Term(); ok {
					t.Error("still has a term")
				}
				c.faults.Set(electiontest.Sound)
				c.end()
			})
		})
	}
}

// One renewal fails: the leadership goes on. An authoritative answer ends it at once.
func TestE4TransientErrorIsRetriedLossIsNot(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		c := s.candidate("a")
		s.Begun(s.ctx, 1)
		for _, x := range []electiontest.Fault{electiontest.Refused, electiontest.ReplyLost, electiontest.Silent, electiontest.Deaf} {
			c.faults.Next(election.OpRenew, x)
			time.Sleep(10 * heartbeat)
		}
		if r := s.Reigns(); len(r) != 1 || !r[0].Told.IsZero() {
			t.Fatalf("%d reigns, the first told at %v", len(r), r[0].Told)
		}
		if n := len(s.errors()); n != 4 {
			t.Errorf("%d errors reported, want 4", n)
		}
		r := s.Reigns()[0]
		if _, err := s.memory.Resign(s.ctx, "e", r.Term.Token, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		asked := c.faults.LastGood(election.OpRenew)
		c.faults.Next(election.OpRenew, electiontest.Refused) // then the answer
		r = s.Ended(s.ctx, 1)
		s.at("end", r.Told, asked.Add(heartbeat), heartbeat)
		if !r.Told.Before(asked.Add(trust)) {
			t.Error("it took the trust's end to end it")
		}
		c.end()
	})
}

// The elector's context ends: renewals go on for as long as the callbacks take, then
// comes the release, and only then the next leader.
func TestE5RenewsUntilCallbacksReturn(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		cause := errors.New("going home")
		s.Linger = func(ctx context.Context) {
			time.Sleep(10 * ttl)
			if term, _ := election.TermFrom(ctx); !time.Now().Before(term.TrustedUntil) {
				t.Error("the trust ended while the callback was winding down")
			}
			s.Linger = nil
		}
		a := s.candidate("a")
		s.Begun(s.ctx, 1)
		b := s.candidate("b")
		time.Sleep(ttl)
		a.stop(cause)
		r := s.Ended(s.ctx, 1)
		if got := context.Cause(r.Ctx); !errors.Is(got, cause) {
			t.Errorf("cause %v", got)
		}
		if err := a.Wait(); err != nil {
			t.Errorf("Wait: %v", err)
		}
		s.at("takeover", s.Begun(s.ctx, 2).Began, r.Told.Add(10*ttl), retry)
		b.end()
	})
}

// The release does not use the context that has ended, and is bounded.
func TestE6ReleaseUsesAFreshBoundedContext(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		c := s.candidate("a")
		s.Begun(s.ctx, 1)
		c.faults.Slow(time.Second) // memory alone would not look at the context twice
		c.end()
		s.vacant()

		d := s.candidate("b")
		s.Begun(s.ctx, 2)
		d.faults.Next(election.OpResign, electiontest.Refused, electiontest.ReplyLost)
		d.end() // not-owner, after the reply was lost, is the end too
		s.vacant()

		f := s.candidate("c")
		s.Begun(s.ctx, 3)
		f.faults.Set(electiontest.Silent)
		asked := time.Now()
		f.stop(nil)
		if err := f.Wait(); !errors.Is(err, election.ErrUnavailable) {
			t.Errorf("Wait: %v", err)
		}
		s.at("giving up", time.Now(), asked, 10*time.Second)
	})
}

// E6, from the very start: nothing is acquired.
func TestE6ContextEndedBeforeTheStart(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		e, err := election.NewElector(ctx, s.memory, election.ElectorConfig{Election: "e"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Wait(); err != nil {
			t.Error(err)
		}
		s.vacant()
	})
}

func TestE8SameOwnerAgainHasANewNumber(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		for n := 1; n <= 5; n++ { // the witness compares the numbers
			c := s.candidate("same")
			s.Begun(s.ctx, n)
			c.end()
		}
	})
}

// The backend lost its data and its clock went back: the elector's floor keeps the
// number rising.
func TestE9NumbersRiseAboveThoseSeen(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		c := s.candidate("a", func(c *election.ElectorConfig) { c.MinFencing = 1 << 60 })
		r := s.Begun(s.ctx, 1)
		c.faults.Replace(&forgetful{s.memory})
		if second := s.Begun(s.ctx, 2); second.Term.Number != r.Term.Number+1 {
			t.Errorf("number %d after %d", second.Term.Number, r.Term.Number)
		}
		c.end()
	})
}

// A forgetful backend is one that lost its data: it grants the floor.
type forgetful struct{ election.Backend }

func (f *forgetful) Renew(context.Context, string, election.Token) (election.RenewResult, error) {
	return election.RenewResult{Status: election.Lost}, nil
}

func (f *forgetful) Acquire(_ context.Context, _ string, o election.AcquireOptions) (election.AcquireResult, error) {
	return election.AcquireResult{
		Status: election.Acquired, Token: o.Token, Number: max(1, o.MinFencing), Owner: o.Owner, Remaining: o.TTL,
	}, nil
}

// The answer to Acquire is lost: the next attempt finds its own grant, and the trust
// counts from that attempt.
func TestE11LostReplyFindsItsOwnGrant(t *testing.T) {
	for name, fault := range map[string]electiontest.Fault{"ReplyLost": electiontest.ReplyLost, "Deaf": electiontest.Deaf} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(s *stage) {
				asked := time.Now()
				ctx, cancel := context.WithCancel(s.ctx)
				f := electiontest.NewFaults(s.memory)
				f.Next(election.OpAcquire, fault)
				e, err := election.NewElector(ctx, f, election.ElectorConfig{Election: "e"})
				if err != nil {
					t.Fatal(err)
				}
				e.OnBecomeLeader(s.Lead)
				r := s.Begun(s.ctx, 1)
				if r.Term.Number != asked.UnixMilli() {
					t.Errorf("number %d, the grant had %d", r.Term.Number, asked.UnixMilli())
				}
				s.at("own grant", r.Began, asked, retry)
				s.at("trust", r.Term.TrustedUntil, f.LastGood(election.OpAcquire).Add(trust), 0)
				cancel()
				if err := e.Wait(); err != nil {
					t.Error(err)
				}
				s.vacant()
			})
		})
	}
}

// The answer to Acquire is lost and the elector ends: the grant that it never heard of
// is given back.
func TestE11UnheardGrantIsGivenBack(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		ctx, cancel := context.WithCancel(s.ctx)
		f := electiontest.NewFaults(s.memory)
		f.Set(electiontest.Deaf, election.OpAcquire)
		e, err := election.NewElector(ctx, f, election.ElectorConfig{Election: "e"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the call has taken effect
		if st, _ := s.memory.Status(s.ctx, "e"); st.Status != election.Held {
			t.Fatalf("Status %+v", st)
		}
		cancel()
		if err := e.Wait(); err != nil {
			t.Error(err)
		}
		s.vacant()
	})
}

// The backend goes away for long and comes back: the elector campaigns by itself, and
// leads with a new number.
func TestE14CampaignsAgainByItself(t *testing.T) {
	for name, fault := range map[string]electiontest.Fault{
		"Refused": electiontest.Refused, "Silent": electiontest.Silent, "Deaf": electiontest.Deaf, "Hung": electiontest.Hung,
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(s *stage) {
				c := s.candidate("a")
				s.Begun(s.ctx, 1)
				time.Sleep(time.Second)
				c.faults.Set(fault)
				time.Sleep(time.Hour)
				if c.Healthy() && fault != electiontest.Hung {
					t.Error("healthy in an outage")
				}
				back := time.Now()
				c.faults.Set(electiontest.Sound)
				// After an outage the record may carry the old token until its lease ends.
				s.at("next reign", s.Begun(s.ctx, 2).Began, back, ttl+retry)
				if !c.Healthy() {
					t.Error("not healthy after the outage")
				}
				c.end()
				s.vacant()
			})
		})
	}
}

// Authoritative loss, and the election is free again.
func TestE14LeadsAgainAfterALoss(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		c := s.candidate("a")
		for n := 1; n <= 5; n++ {
			r := s.Begun(s.ctx, n)
			if _, err := s.memory.Resign(s.ctx, "e", r.Term.Token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
			r = s.Ended(s.ctx, n)
			s.at("next reign", s.Begun(s.ctx, n+1).Began, r.Ended, 0)
		}
		c.end()
	})
}
