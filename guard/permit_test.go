package guard_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// INVARIANT: trust is measured from before the question.
func TestPermitEndsPermitForAfterTheLastGoodQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		b.slow = 800 * time.Millisecond
		p := admit(t, g, tok)
		defer p.Release()
		var last time.Time // before the question last answered
		b.set(func() {
			b.before = func(int) { b.set(func() { last = time.Now() }) }
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !p.Live() {
			t.Fatal("not kept fresh")
		}
		b.set(func() { b.before = nil; b.hang = true })
		synctest.Wait()
		var until time.Time
		b.set(func() { until = last.Add(guard.DefaultPermitFor) })
		<-p.Done()
		if over := time.Since(until); over > 0 {
			t.Errorf("ended %v after its time", over)
		}
		r := refused(t, p.Err(), guard.BackendUnknown)
		if r.Held != 7 || p.Live() {
			t.Errorf("%+v", r)
		}
	})
}

// A paused process has no timers; Live must not need one.
func TestLiveNeedsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		p := admit(t, g, tok)
		stuck := make(chan struct{})
		b.set(func() { b.stuck = stuck }) // the keeper stands still from its next question on
		time.Sleep(guard.DefaultPermitFor - 1)
		if !p.Live() || p.Err() != nil {
			t.Error("not live before its end")
		}
		time.Sleep(1)
		if p.Live() {
			t.Error("live at its end")
		}
		refused(t, p.Err(), guard.BackendUnknown)
		close(stuck)
		p.Release()
	})
}

// An answer that comes after the end does not bring the permit back.
func TestLateAnswerDoesNotReviveAPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		p := admit(t, g, tok)
		stuck := make(chan struct{})
		b.set(func() { b.stuck = stuck })
		time.Sleep(guard.DefaultPermitFor + 500*time.Millisecond) // asked after 1 s: would hold until 6 s
		close(stuck)
		synctest.Wait()
		select {
		case <-p.Done():
		default:
			t.Error("the permit goes on")
		}
		if p.Live() {
			t.Error("live again")
		}
		p.Release()
	})
}

func TestPermitNeverOutlastsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		end := time.Now().Add(1500 * time.Millisecond)
		b.expiry = end
		p := admit(t, g, tok)
		b.set(func() { b.hang = true })
		<-p.Done()
		if time.Now().After(end) {
			t.Errorf("ended %v after the lease", time.Since(end))
		}
		p.Release()
	})
}

// A lease much shorter than ValidateEvery, duly renewed, keeps its permit.
func TestShortLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		b.expiry = time.Now().Add(300 * time.Millisecond)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					b.set(func() { b.expiry = time.Now().Add(300 * time.Millisecond) })
				}
			}
		}()
		p := admit(t, g, tok)
		time.Sleep(20 * time.Second)
		if !p.Live() {
			t.Errorf("ended: %v", p.Err())
		}
		close(stop)
		<-p.Done()
		refused(t, p.Err(), guard.LeaseVacant)
		p.Release()
	})
}

func TestPermitEndsAtOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(b *fakeBackend)
		want guard.Reason
	}{
		{"stale", func(b *fakeBackend) { b.token, b.number = election.NewToken(), 8 }, guard.Stale},
		{"vacant", func(b *fakeBackend) { b.token = election.Token{} }, guard.LeaseVacant},
		{"granted again under another number", func(b *fakeBackend) { b.number = 8 }, guard.Stale},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, b, _, tok := setUp(t, guard.Config{})
				p := admit(t, g, tok)
				b.set(func() { c.do(b) })
				start := time.Now()
				<-p.Done()
				if took := time.Since(start); took > guard.DefaultValidateEvery {
					t.Errorf("took %v", took)
				}
				r := refused(t, p.Err(), c.want)
				if p.Live() || r.Held != 7 || c.want == guard.Stale && r.Rules != 8 {
					t.Errorf("%+v", r)
				}
				p.Release()
				synctest.Wait()
				if g.Keepers() != 0 {
					t.Error("a keeper is left behind")
				}
			})
		})
	}
}

func TestTheSameTokenUnderANewNumberIsANewTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, f, tok := setUp(t, guard.Config{})
		p := admit(t, g, tok)
		b.set(func() { b.number = 8 })
		<-p.Done()
		q := admit(t, g, tok)
		if q.Term().Number != 8 || f.record().Highest != 8 || q.Record().State != guard.Severed {
			t.Errorf("%+v, fence %+v", q.Term(), f.record())
		}
		p.Release()
		q.Release()
	})
}

func TestErrorsAreRetriedUntilThePermitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		p := admit(t, g, tok)
		b.set(func() { b.err = errDown })
		time.Sleep(4 * time.Second)
		// While it is live, others of the same token share it.
		q := admit(t, g, tok)
		if _, err := g.Admit(t.Context(), cred(election.NewToken())); err == nil {
			t.Error("another token was admitted")
		}
		b.set(func() { b.err = nil })
		time.Sleep(20 * time.Second)
		if !p.Live() || !q.Live() {
			t.Errorf("ended: %v", p.Err())
		}
		b.set(func() { b.err = errDown })
		<-p.Done()
		if r := refused(t, p.Err(), guard.BackendUnknown); !errors.Is(r, errDown) {
			t.Errorf("%v", r)
		}
		_, err := g.Admit(t.Context(), cred(tok))
		refused(t, err, guard.BackendUnknown)
		p.Release()
		q.Release()
	})
}

// Sessions that come and go share one permit for a while; then nothing is asked.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, f, tok := setUp(t, guard.Config{})
		for range 50 {
			admit(t, g, tok).Release()
			time.Sleep(100 * time.Millisecond)
		}
		if n := b.questions(); n > 14 {
			t.Errorf("%d questions in 5 s", n)
		}
		time.Sleep(2 * guard.DefaultValidateEvery)
		synctest.Wait()
		n := b.questions()
		time.Sleep(time.Minute)
		if b.questions() != n || g.Keepers() != 0 {
			t.Errorf("still asking (%d more), %d keepers", b.questions()-n, g.Keepers())
		}
		// The fence stands, so that coming back costs a look at it only.
		f.set(func() { f.steps = nil })
		admit(t, g, tok).Release()
		if len(f.taken()) != 1 {
			t.Errorf("steps %v", f.taken())
		}
	})
}

func TestLiveDoesNotAllocate(t *testing.T) {
	g, _, _, tok := setUp(t, guard.Config{})
	p := admit(t, g, tok)
	defer p.Release()
	if n := testing.AllocsPerRun(1000, func() {
		if !p.Live() {
			t.Fatal("not live")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLive(b *testing.B) {
	tok := election.NewToken()
	g := guard.New(&fakeBackend{token: tok, number: 7}, &fakeFence{}, guard.Config{})
	defer g.Close()
	p, err := g.Admit(b.Context(), cred(tok))
	if err != nil {
		b.Fatal(err)
	}
	defer p.Release()
	for b.Loop() {
		if !p.Live() {
			b.Fatal("not live")
		}
	}
}

func TestConfigCheck(t *testing.T) {
	for _, c := range []struct {
		c  guard.Config
		ok bool
	}{
		{guard.Config{}, true},
		{guard.Config{Timeout: -1}, false},
		{guard.Config{ValidateEvery: 3 * time.Second}, false},
		{guard.Config{ValidateEvery: 3 * time.Second, PermitFor: 6 * time.Second}, true},
	} {
		if err := c.c.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.c, err)
		}
	}
}

// A token that was given as the election's name is not logged.
func TestForLog(t *testing.T) {
	const token = "kQd7c2Tn4Rz1sWb8"
	backend := fmt.Errorf("validating %q: no answer", token)
	for _, r := range []*guard.Refusal{
		{Reason: guard.LeaseVacant, Election: token}, {Reason: guard.BackendUnknown, Election: token, Err: backend},
	} {
		id, text := r.ForLog(false)
		if strings.Contains(id+text, token) || !strings.Contains(text, "(unknown)") {
			t.Errorf("%q, %q", id, text)
		}
		if id, text = r.ForLog(true); id != token || text != r.Error() {
			t.Errorf("of the configuration: %q, %q", id, text)
		}
	}
	stale := &guard.Refusal{Reason: guard.Stale, Election: "orders", Rules: 7}
	if id, text := stale.ForLog(false); id != "orders" || text != stale.Error() {
		t.Errorf("%q, %q", id, text)
	}
}
