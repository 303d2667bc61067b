package electiontest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// The durations of the suite's electors: a lease short enough to wait for, and a margin
// wide enough for a busy machine.
const (
	leaseTTL       = 3 * time.Second
	leaseHeartbeat = 600 * time.Millisecond
	leaseMargin    = time.Second
	leaseTrust     = leaseTTL - leaseMargin
	leaseRetry     = 300 * time.Millisecond
	// slack is what a busy machine may take beyond what is due, where being late is
	// not unsafe.
	slack = 10 * time.Second
)

// RunElector plays what can befall a leader, with electors on the harness's store, in
// real time. What each elector does to the microsecond is shown in fake time, in the
// tests of package election. Of the harness it needs Open and Lose, and Server and OpenAt
// where there is a server. It returns when all has ended.
func RunElector(t *testing.T, h Harness) {
	if h.Open == nil || h.Lose == nil || (h.Server == "") != (h.OpenAt == nil) {
		t.Fatal("electiontest: the harness is incomplete")
	}
	t.Run("Elector", suite{h}.runElector)
}

func (s suite) runElector(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(*electors)
	}{
		{"E1_HolderCrashes", (*electors).holderCrashes},
		{"E2_RecordDeleted", (*electors).recordDeleted},
		{"E3_PacketsVanish", (*electors).packetsVanish},
		{"E4_TransientErrors", (*electors).transientErrors},
		{"E5_CallbacksWindDown", (*electors).callbacksWindDown},
		{"E6_ContextEnds", (*electors).contextEnds},
		{"E7_ClocksAnHourOff", (*electors).clocksAnHourOff},
		{"E8_SameOwnerRestarts", (*electors).sameOwnerRestarts},
		{"E11_ReplyLost", (*electors).replyLost},
		{"E12_ConnectionsEnd", (*electors).connectionsEnd},
		{"E14_BackendComesBack", (*electors).backendComesBack},
		{"HandOvers", (*electors).handOvers},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := s.user(t)
			ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
			t.Cleanup(cancel)
			u.ctx = ctx
			c.play(&electors{t: t, suite: s, Witness: NewWitness(t), user: u})
		})
	}
}

// electors are the electors of one test.
type electors struct {
	*Witness
	t *testing.T
	suite
	user user // looks at the store, by a way of its own
}

// An elector campaigns by a way of its own, which the test can break.
type elector struct {
	*election.Elector
	*Faults
	link *Link // nil where there is no server
	stop context.CancelFunc
}

// start starts an elector that ends with the test.
func (s *electors) start(owner string) *elector {
	s.t.Helper()
	e := &elector{}
	b := s.user.b
	if s.Server != "" {
		e.link = NewLink(s.t, s.Server)
		b = s.OpenAt(s.t, e.link.Addr())
		s.t.Cleanup(func() { _ = b.Close() })
	}
	e.Faults = NewFaults(b)
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.WithoutCancel(s.user.ctx))
	var err error
	e.Elector, err = election.NewElector(ctx, e.Faults, election.ElectorConfig{
		Election: s.user.id, Owner: owner,
		TTL: leaseTTL, Heartbeat: leaseHeartbeat, Margin: leaseMargin, Retry: leaseRetry,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { e.stop(); _ = e.Wait() })
	e.OnBecomeLeader(s.Lead)
	return e
}

// end ends an elector that has no reason to fail.
func (s *electors) end(e *elector) {
	s.t.Helper()
	e.stop()
	if err := e.Wait(); err != nil {
		s.t.Errorf("Wait: %v", err)
	}
}

// silence has the network, or the store, say nothing any more.
func (e *elector) silence() {
	if e.link != nil {
		e.link.Stall()
	} else {
		e.Set(Silent)
	}
}

// refuse has every call fail.
func (e *elector) refuse() {
	if e.link != nil {
		e.link.Cut()
	} else {
		e.Set(Refused)
	}
}

// mend ends what was done to the elector.
func (e *elector) mend() {
	e.Set(Sound)
	if e.link != nil {
		e.link.Pass()
	}
}

// lastGood is when the last call was made from which trust may count.
func (e *elector) lastGood() time.Time {
	a, r := e.LastGood(election.OpAcquire), e.LastGood(election.OpRenew)
	if a.After(r) {
		return a
	}
	return r
}

// within fails unless something happened in the time that it may take.
func (s *electors) within(what string, from, to time.Time, d time.Duration) {
	s.t.Helper()
	if took := to.Sub(from); took > d {
		s.t.Errorf("%s took %v, may take %v", what, took, d)
	}
}

func (s *electors) holderCrashes() {
	began := time.Now()
	g := s.user.win(election.AcquireOptions{Owner: "crashes", TTL: leaseTTL}) // and is never heard of again
	e := s.start("a")
	r := s.Begun(s.user.ctx, 1)
	s.within("takeover", began, r.Began, leaseTTL+leaseRetry+slack)
	if d := r.Began.Sub(began); d < leaseTTL-grain {
		s.t.Errorf("taken over after %v", d)
	}
	if r.Term.Number <= g.Number {
		s.t.Errorf("number %d after %d", r.Term.Number, g.Number)
	}
	s.user.standing(r.Term.Token, election.StandingCurrent, r.Term.Number)
	s.end(e)
}

// The record is deleted under the leader: the next renewal says so, writes nothing, and
// the context ends. Then the elector leads again, with a higher number (E9, E14).
func (s *electors) recordDeleted() {
	e := s.start("a")
	s.Begun(s.user.ctx, 1)
	s.Lose(s.t, s.user.b, s.user.id)
	deleted := time.Now()
	r := s.Told(s.user.ctx, 1)
	s.within("the loss", deleted, r.Told, leaseHeartbeat+slack)
	if cause := context.Cause(r.Ctx); !errors.Is(cause, election.ErrLost) {
		s.t.Errorf("cause %v", cause)
	}
	second := s.Begun(s.user.ctx, 2) // the witness compares the numbers
	s.user.standing(r.Term.Token, election.StandingStale, second.Term.Number)
	s.end(e)
}

// The network says nothing any more: the context ends when the trust of the last good
// renewal does, and so before another leads.
func (s *electors) packetsVanish() {
	a := s.start("a")
	s.Begun(s.user.ctx, 1)
	b := s.start("b")
	until(s.t, s.user.ctx, "a renewal", func() bool { return a.Calls(election.OpRenew) > 1 })
	a.silence()
	r := s.Told(s.user.ctx, 1)
	last := a.lastGood()
	if d := r.Told.Sub(last); d < leaseTrust || d >= leaseTTL {
		s.t.Errorf("the context ended %v after the last good renewal, the trust is %v and the lease %v", d, leaseTrust, leaseTTL)
	}
	if cause := context.Cause(r.Ctx); !errors.Is(cause, election.ErrTrustEnded) {
		s.t.Errorf("cause %v", cause)
	}
	second := s.Begun(s.user.ctx, 2)
	if second.Term.Owner != "b" {
		s.t.Errorf("%s leads", second.Term.Owner)
	}
	s.within("takeover", last, second.Began, leaseTTL+leaseRetry+slack)
	// What was under way arrives late, and takes nothing from the new leader.
	a.mend()
	until(s.t, s.user.ctx, "the old leader's next campaign", a.Healthy)
	s.user.standing(second.Term.Token, election.StandingCurrent, second.Term.Number)
	s.end(a)
	s.end(b)
}

// Single renewals that fail change nothing.
func (s *electors) transientErrors() {
	e := s.start("a")
	r := s.Begun(s.user.ctx, 1)
	for _, x := range []Fault{Refused, ReplyLost, Refused} {
		n := e.Calls(election.OpRenew)
		e.Next(election.OpRenew, x)
		until(s.t, s.user.ctx, "the renewals after it", func() bool { return e.Calls(election.OpRenew) > n+2 })
	}
	s.user.standing(r.Term.Token, election.StandingCurrent, r.Term.Number)
	if rs := s.Reigns(); len(rs) != 1 || !rs[0].Told.IsZero() {
		s.t.Errorf("%d reigns, the first told at %v", len(rs), rs[0].Told)
	}
	s.end(e)
}

// A leader that is told to stop keeps the lease until its callback has returned.
func (s *electors) callbacksWindDown() {
	release := make(chan struct{})
	var once sync.Once
	s.Linger = func(context.Context) { once.Do(func() { <-release }) }
	a := s.start("a")
	r := s.Begun(s.user.ctx, 1)
	b := s.start("b")
	a.stop()
	s.Told(s.user.ctx, 1)
	n := a.Calls(election.OpRenew)
	until(s.t, s.user.ctx, "renewals for longer than a lease", func() bool {
		return a.Calls(election.OpRenew) > n+int(leaseTTL/leaseHeartbeat)+1
	})
	s.user.standing(r.Term.Token, election.StandingCurrent, r.Term.Number)
	close(release)
	if err := a.Wait(); err != nil {
		s.t.Errorf("Wait: %v", err)
	}
	ended := s.Ended(s.user.ctx, 1).Ended
	second := s.Begun(s.user.ctx, 2)
	if second.Began.Before(ended) {
		s.t.Errorf("the next leader began %v before", ended.Sub(second.Began))
	}
	s.within("takeover", ended, second.Began, leaseRetry+slack)
	s.end(b)
}

// The record is vacant after the end, though the context had ended by then.
func (s *electors) contextEnds() {
	e := s.start("a")
	r := s.Begun(s.user.ctx, 1)
	s.end(e)
	s.user.standing(r.Term.Token, election.StandingVacant, 0)
	if st := s.user.status(); st.Status != election.Vacant {
		s.t.Errorf("Status %+v", st)
	}
}

func (s *electors) sameOwnerRestarts() {
	for n := 1; n <= 3; n++ { // the witness compares the numbers
		e := s.start("same")
		s.Begun(s.user.ctx, n)
		s.end(e)
	}
}

// The answer to Acquire is lost: the elector finds its own grant.
func (s *electors) replyLost() {
	began := time.Now()
	e := s.start("a")
	first := s.Begun(s.user.ctx, 1)
	s.end(e)
	if s.Server == "" {
		return // the tests of package election have it, in fake time
	}
	b := s.OpenAt(s.t, s.Server)
	s.t.Cleanup(func() { _ = b.Close() })
	f := NewFaults(b)
	f.Next(election.OpAcquire, ReplyLost)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.user.ctx))
	defer cancel()
	second, err := election.NewElector(ctx, f, election.ElectorConfig{Election: s.user.id, Owner: "b", TTL: long, Retry: leaseRetry})
	if err != nil {
		s.t.Fatal(err)
	}
	second.OnBecomeLeader(s.Lead)
	r := s.Begun(s.user.ctx, 2) // long before the lease of the first grant ends
	s.within("both", began, r.Began, timeout)
	s.user.standing(r.Term.Token, election.StandingCurrent, r.Term.Number)
	if n := f.Calls(election.OpAcquire); n != 2 || r.Term.Number <= first.Term.Number {
		s.t.Errorf("%d attempts; number %d after %d", n, r.Term.Number, first.Term.Number)
	}
	cancel()
	if err := second.Wait(); err != nil {
		s.t.Errorf("Wait: %v", err)
	}
}

// Connections end all the time: no state of one carries leadership, so that there are
// neither two leaders nor none.
func (s *electors) connectionsEnd() {
	e := s.start("a")
	r := s.Begun(s.user.ctx, 1)
	b := s.start("b")
	for range 5 {
		if e.link != nil {
			e.link.Break()
			b.link.Break()
		}
		n := e.LastGood(election.OpRenew)
		until(s.t, s.user.ctx, "a good renewal", func() bool { return e.LastGood(election.OpRenew).After(n) })
		s.user.standing(r.Term.Token, election.StandingCurrent, r.Term.Number)
	}
	if n := len(s.Reigns()); n != 1 {
		s.t.Errorf("%d reigns", n)
	}
	s.end(b)
	s.end(e)
}

// The backend is out of reach for longer than the lease, and comes back.
func (s *electors) backendComesBack() {
	e := s.start("a")
	s.Begun(s.user.ctx, 1)
	e.refuse()
	s.Ended(s.user.ctx, 1)
	until(s.t, s.user.ctx, "ill health", func() bool { return !e.Healthy() })
	e.mend()
	back := time.Now()
	r := s.Begun(s.user.ctx, 2)
	s.within("the next reign", back, r.Began, leaseTTL+leaseRetry+slack)
	until(s.t, s.user.ctx, "health", e.Healthy)
	s.end(e)
}

// Leaders come and go: stopped, or cut off in either way. Never two at once, and rising
// numbers.
func (s *electors) handOvers() {
	rounds := 4
	if os.Getenv("FENCEPROXY_LONG") != "" {
		rounds = 20
	}
	s.Linger = func(context.Context) { time.Sleep(leaseMargin / 10) }
	es := map[string]*elector{}
	for i := range 3 {
		owner := fmt.Sprint("c", i)
		es[owner] = s.start(owner)
	}
	for n := 1; n <= rounds; n++ {
		r := s.Begun(s.user.ctx, n)
		leader := es[r.Term.Owner]
		switch rand.IntN(3) {
		case 0:
			s.end(leader)
			owner := fmt.Sprintf("%.2s-%d", r.Term.Owner, n)
			es[owner] = s.start(owner)
		case 1:
			leader.silence()
			s.Ended(s.user.ctx, n)
			leader.mend()
		case 2:
			leader.refuse()
			s.Ended(s.user.ctx, n)
			leader.mend()
		}
	}
	s.Begun(s.user.ctx, rounds+1)
	for _, e := range es {
		s.end(e)
	}
}
