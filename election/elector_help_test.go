package election_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/election/memory"
)

// The durations of an elector with the default configuration.
const (
	ttl       = election.DefaultTTL
	heartbeat = ttl / 3
	margin    = ttl / 10
	trust     = ttl - margin
	retry     = heartbeat
)

// A stage is what one test plays on, in fake time.
type stage struct {
	t *testing.T
	*electiontest.Witness
	ctx    context.Context //nolint:containedctx // one test's
	memory *memory.Backend
	mu     sync.Mutex
	errs   []error
}

// inFakeTime plays a test in a bubble of fake time. Every goroutine of it must end.
func inFakeTime(t *testing.T, play func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Fake time passes at once when nothing else is left to do: a test that waits
		// in vain ends here.
		ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
		defer cancel()
		play(&stage{t: t, Witness: electiontest.NewWitness(t), ctx: ctx, memory: memory.New()})
	})
}

// A candidate is a running elector with a backend of its own to break.
type candidate struct {
	*election.Elector
	s      *stage
	faults *electiontest.Faults
	stop   context.CancelCauseFunc
}

// candidate starts an elector whose leadership the witness sees. The test ends it.
func (s *stage) candidate(name string, change ...func(*election.ElectorConfig)) candidate {
	s.t.Helper()
	c := s.silent(name, change...)
	c.OnBecomeLeader(s.Lead)
	return c
}

// silent is candidate without a callback.
func (s *stage) silent(name string, change ...func(*election.ElectorConfig)) candidate {
	s.t.Helper()
	return s.on(s.memory, name, change...)
}

// on is silent on a backend of the test's.
func (s *stage) on(b election.Backend, name string, change ...func(*election.ElectorConfig)) candidate {
	s.t.Helper()
	config := election.ElectorConfig{Election: "e", Owner: name, OnError: func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errs = append(s.errs, err)
	}}
	for _, f := range change {
		f(&config)
	}
	ctx, stop := context.WithCancelCause(s.ctx)
	c := candidate{s: s, faults: electiontest.NewFaults(b), stop: stop}
	var err error
	if c.Elector, err = election.NewElector(ctx, c.faults, config); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { stop(nil); _ = c.Wait() })
	return c
}

// errors returns what the electors reported.
func (s *stage) errors() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]error(nil), s.errs...)
}

// end stops the candidate and fails the test unless it ends without an error.
func (c candidate) end() {
	c.s.t.Helper()
	c.stop(nil)
	if err := c.Wait(); err != nil {
		c.s.t.Errorf("Wait: %v", err)
	}
}

// vacant fails the test unless nobody holds the election.
func (s *stage) vacant() {
	s.t.Helper()
	if st, err := s.memory.Status(s.ctx, "e"); err != nil || st.Status != election.Vacant {
		s.t.Errorf("Status: %+v, %v, want vacant", st, err)
	}
}

// rival acquires the election by hand, for a holder that never renews.
func (s *stage) rival() election.AcquireResult {
	s.t.Helper()
	g, err := s.memory.Acquire(s.ctx, "e", election.AcquireOptions{Owner: "rival"})
	if err != nil || g.Status != election.Acquired {
		s.t.Fatalf("Acquire: %+v, %v", g, err)
	}
	return g
}

// at fails the test unless got is between want and want + slack.
func (s *stage) at(what string, got, want time.Time, slack time.Duration) {
	s.t.Helper()
	if d := got.Sub(want); d < 0 || d > slack {
		s.t.Errorf("%s: %v after the time due, may be up to %v", what, d, slack)
	}
}
