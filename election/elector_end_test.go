package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
)

// A panic is contained and told; the others wind down, the leadership is released, and
// other candidates come first.
func TestPanicReleasesTheLeadership(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		boom := errors.New("boom")
		s.Linger = func(context.Context) { time.Sleep(2 * ttl) }
		a := s.candidate("a")
		a.OnBecomeLeader(func(context.Context) {
			time.Sleep(time.Second)
			panic(boom)
		})
		s.Begun(s.ctx, 1)
		b := s.candidate("b")
		r := s.Told(s.ctx, 1)
		s.at("told", r.Told, r.Began.Add(time.Second), 0)
		var p *election.PanicError
		if cause := context.Cause(r.Ctx); !errors.As(cause, &p) || !errors.Is(cause, boom) {
			t.Errorf("cause %v", cause)
		} else if !strings.Contains(p.Callback, "TestPanicReleases") || !strings.Contains(string(p.Stack), "elector_end_test.go") {
			t.Errorf("%s: %s", p.Callback, p.Stack)
		}
		second := s.Begun(s.ctx, 2)
		if second.Term.Owner != "b" {
			t.Errorf("%s leads", second.Term.Owner)
		}
		s.at("takeover", second.Began, r.Told.Add(2*ttl), retry)
		if !errors.Is(errors.Join(s.errors()...), boom) {
			t.Errorf("reported: %v", s.errors())
		}
		if !a.Healthy() {
			t.Error("not healthy: the backend is")
		}
		b.end()
		s.Begun(s.ctx, 3) // a campaigns again
		a.end()
		s.vacant()
	})
}

// A callback that ends its goroutine has returned.
func TestGoexitIsAReturn(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		c := s.silent("a")
		c.OnBecomeLeader(func(ctx context.Context) {
			<-ctx.Done()
			runtime.Goexit()
		})
		time.Sleep(ttl)
		c.end()
		s.vacant()
		if len(s.errors()) > 0 {
			t.Errorf("reported: %v", s.errors())
		}
	})
}

// A callback runs on although its lease has ended: that is told once, with its name; the
// elector is not healthy and does not campaign until the callback returns.
func TestOverstay(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		release := make(chan struct{})
		var told []*election.OverstayError
		var at time.Time
		c := s.silent("a", func(c *election.ElectorConfig) {
			c.Overstay = func(err *election.OverstayError) { told, at = append(told, err), time.Now() }
		})
		c.OnBecomeLeader(func(context.Context) { <-release })
		c.OnBecomeLeader(func(ctx context.Context) { <-ctx.Done() })
		time.Sleep(time.Second)
		c.faults.Set(electiontest.Silent)
		last := c.faults.LastGood(election.OpAcquire)
		time.Sleep(10 * ttl)
		synctest.Wait()
		c.faults.Set(electiontest.Sound)
		if len(told) != 1 || len(told[0].Callbacks) != 1 || !strings.Contains(told[0].Callbacks[0], "TestOverstay") {
			t.Fatalf("told %v", told)
		}
		s.at("told", at, last.Add(ttl), 0) // when the lease may have ended, and not before
		time.Sleep(10 * ttl)
		if c.Healthy() {
			t.Error("healthy")
		}
		if _, ok := c.Term(); ok {
			t.Error("has a term")
		}
		s.vacant() // it does not campaign
		close(release)
		time.Sleep(retry)
		if !c.Healthy() {
			t.Error("not healthy after the callback's return")
		}
		if term, ok := c.Term(); !ok || term.Number <= told[0].Term.Number {
			t.Errorf("term %+v, %v, after number %d", term, ok, told[0].Term.Number)
		}
		c.end()
	})
}

// The same at the end of the elector: Wait does not block forever, and nothing is
// released under the callback.
func TestOverstayAtTheEnd(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		release := make(chan struct{})
		defer close(release)
		c := s.silent("a")
		c.OnBecomeLeader(func(context.Context) { <-release })
		time.Sleep(time.Second)
		c.faults.Set(electiontest.Refused, election.OpRenew)
		c.stop(nil)
		var over *election.OverstayError
		if err := c.Wait(); !errors.As(err, &over) || len(over.Callbacks) != 1 {
			t.Errorf("Wait: %v", err)
		}
		s.at("the end", time.Now(), c.faults.LastGood(election.OpAcquire).Add(ttl), 0)
		if n := c.faults.Calls(election.OpResign); n != 0 {
			t.Errorf("%d resignations while a callback runs", n)
		}
		if !errors.As(errors.Join(s.errors()...), &over) {
			t.Errorf("reported: %v", s.errors())
		}
	})
}

// WindDown bounds how long a stopped leader is kept alive for its callbacks.
func TestWindDown(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		s.Linger = func(context.Context) { time.Sleep(time.Hour) }
		c := s.candidate("a", func(c *election.ElectorConfig) { c.WindDown = time.Minute })
		r := s.Begun(s.ctx, 1)
		stopped := time.Now()
		c.stop(nil)
		var over *election.OverstayError
		if err := c.Wait(); !errors.As(err, &over) {
			t.Errorf("Wait: %v", err)
		}
		s.at("the end", time.Now(), stopped.Add(time.Minute-heartbeat+ttl), heartbeat)
		s.at("the lease's end", time.Now(), c.faults.LastGood(election.OpRenew).Add(ttl), 0)
		s.vacant()
		if term, _ := election.TermFrom(r.Ctx); term.TrustedUntil.After(time.Now()) {
			t.Errorf("still trusted until %v", term.TrustedUntil)
		}
		s.Ended(s.ctx, 1)
	})
}

func TestHoldOff(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		a := s.candidate("a", func(c *election.ElectorConfig) { c.HoldOff = time.Minute })
		s.Begun(s.ctx, 1)
		a.end()
		b := s.candidate("b")
		r := s.Ended(s.ctx, 1)
		s.at("takeover", s.Begun(s.ctx, 2).Began, r.Ended.Add(time.Minute), retry)
		b.end()
	})
}

// A backend that cannot hold off ends the elector before it has led.
func TestHoldOffUnsupported(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		f := electiontest.NewFaults(plain{s.memory})
		f.Next(election.OpResign, electiontest.Refused, electiontest.Silent)
		e, err := election.NewElector(s.ctx, f, election.ElectorConfig{Election: "e", HoldOff: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		e.OnBecomeLeader(s.Lead)
		if err := e.Wait(); !errors.Is(err, election.ErrUnsupportedOption) {
			t.Errorf("Wait: %v", err)
		}
		if n := f.Calls(election.OpAcquire); n != 0 || len(s.Reigns()) != 0 {
			t.Errorf("%d attempts, %d reigns", n, len(s.Reigns()))
		}
	})
}

// A plain backend has no hold-off.
type plain struct{ election.Backend }

func (p plain) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (election.ResignResult, error) {
	if o.HoldOff > 0 {
		return election.ResignResult{}, fmt.Errorf("resigning: %w", election.ErrUnsupportedOption)
	}
	return p.Backend.Resign(ctx, id, t, o)
}
