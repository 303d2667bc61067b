package election_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
)

// Callbacks are concurrent, get the same term, and one that comes late is called at
// once; one that comes after the end of the leadership is not.
func TestCallbacks(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		var mu sync.Mutex
		terms := map[string]election.Term{}
		note := func(name string, hold time.Duration) func(context.Context) {
			return func(ctx context.Context) {
				term, _ := election.TermFrom(ctx)
				mu.Lock()
				terms[name] = term
				mu.Unlock()
				<-ctx.Done()
				time.Sleep(hold)
			}
		}
		called := func(name string) bool {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			_, ok := terms[name]
			return ok
		}
		c := s.candidate("a")
		c.OnBecomeLeader(note("second", time.Minute))
		r := s.Begun(s.ctx, 1)
		c.OnBecomeLeader(note("early return", 0))
		c.OnBecomeLeader(func(context.Context) {})
		time.Sleep(time.Hour)
		c.OnBecomeLeader(note("late", 0))
		for _, name := range []string{"second", "early return", "late"} {
			if !called(name) {
				t.Fatalf("%s was not called", name)
			}
			if got := terms[name]; got.Number != r.Term.Number || got.Token != r.Term.Token || got.Owner != "a" || got.Election != "e" {
				t.Errorf("%s has the term %+v, want %+v", name, got, r.Term)
			}
		}
		if late, first := terms["late"].TrustedUntil, terms["second"].TrustedUntil; !late.After(first) || !late.After(time.Now()) {
			t.Errorf("an hour later the term is trusted until %v", late)
		}
		c.stop(nil)
		synctest.Wait() // winding down
		c.OnBecomeLeader(note("too late", 0))
		if called("too late") {
			t.Error("called after the end")
		}
		c.end()
		c.OnBecomeLeader(note("much too late", 0))
		if called("much too late") {
			t.Error("called after the end")
		}
	})
}

// trusted until = asked at + TTL - margin, with asked at from before the call.
func TestTrustCountsFromBeforeTheQuestion(t *testing.T) {
	for _, took := range []time.Duration{0, 500 * time.Millisecond, time.Second, 2400 * time.Millisecond} {
		t.Run(took.String(), func(t *testing.T) {
			inFakeTime(t, func(s *stage) {
				c := s.silent("a")
				c.faults.Slow(took / 2) // half before the effect, half after
				asked := time.Now()
				c.OnBecomeLeader(s.Lead)
				r := s.Begun(s.ctx, 1)
				s.at("begin", r.Began, asked.Add(took), 0)
				s.at("trust", r.Term.TrustedUntil, asked.Add(trust), 0)
				for n := 1; n <= 5; n++ {
					time.Sleep(time.Until(asked.Add(time.Duration(n)*heartbeat + took)))
					synctest.Wait()
					term, ok := c.Term()
					if !ok {
						t.Fatal("no term")
					}
					s.at("trust", term.TrustedUntil, asked.Add(time.Duration(n)*heartbeat+trust), 0)
					if st, _ := s.memory.Status(s.ctx, "e"); !term.TrustedUntil.Before(time.Now().Add(st.Remaining)) {
						t.Errorf("trusted until %v, the lease ends in %v", time.Until(term.TrustedUntil), st.Remaining)
					}
				}
				c.faults.Slow(0)
				c.end()
			})
		})
	}
}

// A grant whose answer took longer than it may be trusted is not led with, even where
// the backend does not look at its context.
func TestLateGrantIsNotTrusted(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		f := electiontest.NewFaults(tardy{s.memory})
		ctx, cancel := context.WithCancel(s.ctx)
		e, err := election.NewElector(ctx, f, election.ElectorConfig{Election: "e"})
		if err != nil {
			t.Fatal(err)
		}
		e.OnBecomeLeader(s.Lead)
		time.Sleep(10 * ttl)
		if _, ok := e.Term(); ok || len(s.Reigns()) != 0 {
			t.Errorf("term %v, %d reigns", ok, len(s.Reigns()))
		}
		f.Replace(s.memory)
		s.Begun(s.ctx, 1)
		cancel()
		if err := e.Wait(); err != nil {
			t.Error(err)
		}
		s.vacant()
	})
	inFakeTime(t, func(s *stage) {
		c := s.silent("a", func(c *election.ElectorConfig) { c.CallTimeout = time.Hour }) // becomes TTL - margin
		c.faults.Slow(trust / 2)
		c.OnBecomeLeader(s.Lead)
		time.Sleep(10 * ttl)
		if n := len(s.Reigns()); n != 0 {
			t.Errorf("%d reigns", n)
		}
		c.faults.Slow(trust/2 - time.Millisecond)
		r := s.Begun(s.ctx, 1)
		if left := r.Term.TrustedUntil.Sub(r.Began); left != 2*time.Millisecond {
			t.Errorf("%v left of the trust", left)
		}
		c.faults.Slow(0)
		c.end()
		s.vacant()
	})
}

// A tardy backend answers Acquire when the trust has ended.
type tardy struct{ election.Backend }

func (b tardy) Acquire(_ context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	r, err := b.Backend.Acquire(context.Background(), id, o)
	time.Sleep(trust)
	return r, err
}

// Never two calls at once, whatever fails.
func TestOneLoopMakesAllCalls(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		c := s.candidate("a")
		for _, x := range []electiontest.Fault{
			electiontest.Silent, electiontest.Sound, electiontest.Hung, electiontest.Deaf, electiontest.Sound, electiontest.Refused, electiontest.Sound,
		} {
			c.faults.Set(x)
			time.Sleep(5 * ttl)
		}
		c.end()
		if n := c.faults.MostAtOnce(); n != 1 {
			t.Errorf("%d calls at once", n)
		}
		if n := c.faults.Calls(election.OpRenew); n < 10 {
			t.Errorf("only %d renewals", n)
		}
	})
}

// Our token has another number: the term changed without our doing. That is a loss, and
// the grant that nobody uses is given back.
func TestAnotherNumberIsALoss(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		c := s.candidate("a")
		r := s.Begun(s.ctx, 1)
		if _, err := s.memory.Resign(s.ctx, "e", r.Term.Token, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		// As a copy of the first request that arrives late would.
		g, err := s.memory.Acquire(s.ctx, "e", election.AcquireOptions{Token: r.Term.Token})
		if err != nil || g.Number == r.Term.Number {
			t.Fatalf("%+v, %v", g, err)
		}
		r = s.Ended(s.ctx, 1)
		s.at("end", r.Told, r.Began.Add(heartbeat), 0)
		if cause := context.Cause(r.Ctx); !errors.Is(cause, election.ErrLost) {
			t.Errorf("cause %v", cause)
		}
		second := s.Begun(s.ctx, 2)
		s.at("next reign", second.Began, r.Ended, 0)
		if second.Term.Token == r.Term.Token {
			t.Error("the same token again")
		}
		c.end()
	})
}

func TestHealthy(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		blocked := electiontest.Silent
		ctx, cancel := context.WithCancel(s.ctx)
		f := electiontest.NewFaults(s.memory)
		f.Set(blocked)
		e, err := election.NewElector(ctx, f, election.ElectorConfig{Election: "e"})
		if err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); e.Healthy() {
			t.Error("healthy before the first contact")
		}
		g := s.rival()
		f.Set(electiontest.Sound)
		time.Sleep(ttl / 2)
		if !e.Healthy() {
			t.Error("a follower is not healthy")
		}
		before := f.Calls(election.OpAcquire)
		f.Set(electiontest.Refused)
		for n := 1; n <= 3; n++ {
			for f.Calls(election.OpAcquire) < before+n {
				time.Sleep(time.Millisecond)
			}
			if synctest.Wait(); e.Healthy() != (n < 3) {
				t.Errorf("healthy is %v after %d failures", e.Healthy(), n)
			}
		}
		f.Set(electiontest.Sound)
		time.Sleep(retry)
		if !e.Healthy() {
			t.Error("not healthy after the outage")
		}
		for range 10 { // failures that are not in a row
			f.Next(election.OpAcquire, electiontest.Refused, electiontest.Refused)
			f.Next(election.OpRenew, electiontest.Refused, electiontest.Refused)
			if _, err := s.memory.Renew(s.ctx, "e", g.Token); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * heartbeat)
			if !e.Healthy() {
				t.Error("not healthy after two failures and a success")
			}
		}
		cancel()
		if err := e.Wait(); err != nil || e.Healthy() {
			t.Errorf("after the end: %v, healthy %v", err, e.Healthy())
		}
	})
}

// A backend that can never answer ends the elector, and Wait says why.
func TestHopelessBackendEndsTheElector(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		c := s.candidate("a")
		s.Begun(s.ctx, 1)
		_ = s.memory.Close()
		if err := c.Wait(); !errors.Is(err, election.ErrClosed) {
			t.Errorf("Wait: %v", err)
		}
		r := s.Ended(s.ctx, 1)
		s.at("end", r.Told, c.faults.LastGood(election.OpAcquire).Add(trust), 0)
		if err := c.Wait(); !errors.Is(err, election.ErrClosed) {
			t.Errorf("Wait again: %v", err)
		}
	})
}

// Electors come, go and lose the backend at random: the witness sees no two at once, and
// rising numbers.
func TestNeverTwoLeaders(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		s.Linger = func(context.Context) { time.Sleep(margin / 2) }
		var cs []candidate
		for i := range 5 {
			cs = append(cs, s.candidate(fmt.Sprint("c", i)))
		}
		for n := range 300 {
			i := n % len(cs)
			if r := s.Reigns(); n%3 == 0 && len(r) > 0 {
				for j, c := range cs {
					if term, ok := c.Term(); ok && term.Number == r[len(r)-1].Term.Number {
						i = j
					}
				}
			}
			switch n % 4 {
			case 0:
				cs[i].end()
				cs[i] = s.candidate(fmt.Sprintf("c%d-%d", i, n))
			case 3:
				for _, c := range cs {
					c.faults.Set(electiontest.Sound)
				}
			default:
				cs[i].faults.Set(electiontest.Fault(n % 6)) // any of them
			}
			time.Sleep(time.Duration(n%7) * ttl / 5)
		}
		for _, c := range cs {
			c.faults.Set(electiontest.Sound)
			c.end()
		}
		s.vacant()
		if n := len(s.Reigns()); n < 50 {
			t.Errorf("only %d reigns", n)
		}
	})
}

// Whatever an elector prints or reports, no token is in it.
func TestElectorKeepsTheToken(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		var out bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&out, nil))
		c := s.candidate("a")
		c.OnBecomeLeader(func(ctx context.Context) {
			term, _ := election.TermFrom(ctx)
			fmt.Fprintf(&out, "%v %+v %#v %v\n", term, term, term, &election.OverstayError{Term: term})
			log.Info("leading", "term", term)
			<-ctx.Done()
			panic(fmt.Sprint("in ", ctx))
		})
		r := s.Begun(s.ctx, 1)
		time.Sleep(time.Second)
		c.faults.Set(electiontest.Silent)
		s.Ended(s.ctx, 1)
		time.Sleep(ttl)
		c.faults.Set(electiontest.Sound)
		fmt.Fprintf(&out, "%+v %#v %+v\n", c, c.Elector, s.errors())
		c.end()
		if !strings.Contains(out.String(), "leading") || len(s.errors()) == 0 {
			t.Fatalf("printed %q", out.String())
		}
		if strings.Contains(out.String(), r.Term.Token.Reveal()) {
			t.Errorf("the token is in %q", out.String())
		}
	})
}

func TestTermFromAnyContext(t *testing.T) {
	if term, ok := election.TermFrom(t.Context()); ok {
		t.Errorf("a term from nowhere: %+v", term)
	}
	inFakeTime(t, func(s *stage) {
		c := s.candidate("a")
		r := s.Begun(s.ctx, 1)
		ctx, cancel := context.WithTimeout(context.WithValue(r.Ctx, struct{ k int }{}, 1), time.Hour)
		defer cancel()
		if term, ok := election.TermFrom(ctx); !ok || term.Number != r.Term.Number {
			t.Errorf("%+v, %v", term, ok)
		}
		c.end()
		if ctx.Err() != context.Canceled {
			t.Errorf("a derived context after the end: %v", ctx.Err())
		}
	})
}

func TestElectorConfigIsChecked(t *testing.T) {
	ok := func(c election.ElectorConfig) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e, err := election.NewElector(ctx, nil, c) // asked nothing: the context has ended
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			return
		}
		_ = e.Wait()
	}
	s := time.Second
	ok(election.ElectorConfig{Election: "e"})
	ok(election.ElectorConfig{Election: "e", TTL: election.MinTTL})
	ok(election.ElectorConfig{Election: "e", TTL: election.MaxTTL})
	ok(election.ElectorConfig{Election: "e", TTL: 20 * s, Heartbeat: 9 * s})
	ok(election.ElectorConfig{Election: "e", TTL: 20 * s, Margin: 10 * s, Heartbeat: 5 * s})
	for _, c := range []struct {
		want   error
		config election.ElectorConfig
	}{
		{election.ErrInvalidID, election.ElectorConfig{}},
		{election.ErrInvalidOwner, election.ElectorConfig{Election: "e", Owner: "a b"}},
		{election.ErrInvalidFencing, election.ElectorConfig{Election: "e", MinFencing: -1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", TTL: election.MinTTL - 1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", TTL: election.MaxTTL + s}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", TTL: 20 * s, Heartbeat: 9*s + 1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", TTL: 20 * s, Margin: 10*s + 1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", TTL: 20 * s, Margin: 10 * s, Heartbeat: 6 * s}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", TTL: 20 * s, Margin: 10 * s}}, // the heartbeat is 6.7 s
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", Heartbeat: -1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", Margin: -1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", Retry: -1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", CallTimeout: -1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", ReleaseTimeout: -1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", WindDown: -1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", HoldOff: -1}},
		{election.ErrInvalidTTL, election.ElectorConfig{Election: "e", HoldOff: election.MaxTTL + 1}},
	} {
		if e, err := election.NewElector(t.Context(), nil, c.config); !errors.Is(err, c.want) || e != nil {
			t.Errorf("%+v: %v, want %v", c.config, err, c.want)
		}
	}
}
