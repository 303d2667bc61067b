package electiontest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A Server is what the tests can do to the server of a harness, which is theirs alone.
// A nil field means that it cannot be done; the backend's documentation says why.
type Server struct {
	// Freeze has the server say nothing any more, without ending a connection, until
	// thaw is called.
	Freeze func(t testing.TB) (thaw func())
	// Restart ends the server with SIGKILL and starts it again, at the same address and
	// on its data.
	Restart func(t testing.TB)
	// Wipe has the server lose its data; it runs when Wipe returns.
	Wipe func(t testing.TB)
	// EndConnections has the server end its clients' connections, or their sessions
	// where it has such.
	EndConnections func(t testing.TB)
}

// The leases of a race.
const (
	raceShort = 150 * time.Millisecond
	raceLong  = 300 * time.Millisecond
)

// RunTakeovers has two candidates that call the backend themselves and one elector take
// over from each other on the harness's store, while connections are cut and fall
// silent, answers are lost, the server is frozen and ends connections, holders sleep
// beyond their lease, and the record is deleted. Safety: no two ever lead at the same time,
// and each number is higher than all before. It takes twenty takeovers, or with
// FENCEPROXY_LONG=1 a thousand.
func RunTakeovers(t *testing.T, h Harness, s Server) {
	takeovers := 20
	if os.Getenv("FENCEPROXY_LONG") != "" {
		takeovers = 1000
	}
	// A takeover takes a second or so; a busy machine takes more.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(takeovers)*5*time.Second)
	defer cancel()
	if at, ok := t.Deadline(); ok {
		ctx, cancel = context.WithDeadline(ctx, at.Add(-30*time.Second))
		defer cancel()
	}
	r := &race{t: t, suite: suite{h}, server: s, id: fresh(), wanted: takeovers, faults: map[string]int{}}
	if h.Server == "" {
		r.store = r.open(t) // the store lives in the handle
	}
	began := time.Now()
	r.run(ctx)
	if n := r.count(); n < takeovers {
		t.Errorf("%d takeovers in %v, wanted %d", n, time.Since(began), takeovers)
	}
	if v := r.violations(); len(v) > 0 {
		t.Errorf("%d times wrong:\n%s", len(v), strings.Join(v[:min(len(v), 20)], "\n"))
	}
	t.Logf("%d takeovers, %d terms in %v; faults: %v", r.count(), len(r.stints), time.Since(began).Round(time.Millisecond), r.faults)
}

type race struct {
	t testing.TB
	suite
	ledger
	server Server
	store  election.Backend
	id     string
	wanted int

	faultsMu sync.Mutex // also held while the server is meddled with
	faults   map[string]int
}

func (r *race) over(ctx context.Context) bool { return ctx.Err() != nil || r.count() >= r.wanted }

func (r *race) fault(name string) {
	r.faultsMu.Lock()
	defer r.faultsMu.Unlock()
	r.faults[name]++
}

func (r *race) run(ctx context.Context) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	var meddler sync.WaitGroup
	meddler.Go(func() { r.meddle(ctx, done) })
	for i := range 2 {
		wg.Go(func() { r.candidate(ctx, fmt.Sprint("candidate", i)) })
	}
	wg.Go(func() { r.elector(ctx, "elector") })
	wg.Wait()
	close(done)
	meddler.Wait()
}

// A way is how a candidate reaches the backend.
type way struct {
	election.Backend
	link *Link   // nil where there is no server
	f    *Faults // what the link is for the others
}

// way opens one for the length of the test. Backends that have to be closed early are.
func (r *race) way() *way {
	if r.store != nil {
		f := NewFaults(r.store)
		return &way{Backend: f, f: f}
	}
	link := NewLink(r.t, r.Server)
	f := NewFaults(r.OpenAt(r.t, link.Addr()))
	return &way{Backend: f, link: link, f: f}
}

// Hints passes on the backend's.
func (w *way) Hints(ctx context.Context, id string, hint func()) error {
	return election.Hints(ctx, w.Backend, id, hint)
}

// close closes what way opened.
func (w *way) close() {
	if w.link != nil {
		w.link.Cut()
		_ = w.f.Close()
	}
}

// trouble has the way fail in one manner, and returns what mends it.
func (w *way) trouble(r *race) (mend func()) {
	if w.link == nil {
		x := []Fault{Refused, ReplyLost, Silent, Deaf}[rand.IntN(4)]
		r.fault([]string{"", "refused", "reply lost", "silent", "deaf"}[x])
		w.f.Set(x)
		return func() { w.f.Set(Sound) }
	}
	switch rand.IntN(4) {
	case 0:
		r.fault("cut")
		w.link.Cut()
	case 1:
		r.fault("silent")
		w.link.Stall()
	case 2:
		r.fault("answers lost")
		w.link.Deafen()
	default:
		r.fault("connections broken")
		w.link.Break()
	}
	return w.link.Pass
}

// pause waits, but not beyond the race.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func upTo(d time.Duration) time.Duration { return rand.N(d) + time.Millisecond }

// candidate acquires, renews for a while, and ends its term in one of several ways. It
// trusts its lease until asked + TTL less the grain, and no longer.
func (r *race) candidate(ctx context.Context, who string) {
	w := r.way()
	defer func() { w.close() }()
	var token election.Token // of an attempt that was not answered
	for !r.over(ctx) {
		ttl := []time.Duration{raceShort, raceLong}[rand.IntN(2)]
		call, end := context.WithTimeout(ctx, ttl)
		if token.IsZero() || rand.IntN(3) == 0 {
			token = election.NewToken()
		}
		asked := time.Now()
		g, err := w.Acquire(call, r.id, election.AcquireOptions{Owner: who, TTL: ttl, Token: token})
		end()
		if err != nil {
			if ctx.Err() == nil && !isOutage(err) {
				r.t.Errorf("Acquire: %v", err)
			}
			pause(ctx, upTo(20*time.Millisecond))
			continue
		}
		token = election.Token{}
		if g.Status != election.Acquired {
			pause(ctx, upTo(20*time.Millisecond))
			continue
		}
		s := stint{who: who, number: g.Number, asked: asked, from: time.Now(), end: asked.Add(ttl - grain)}
		mend := func() {}
		if rand.IntN(2) == 0 { // somewhere in its term
			mend = w.trouble(r)
		}
		s = r.reign(ctx, w, s, g.Token, ttl)
		mend()
		r.note(s)
		pause(ctx, upTo(40*time.Millisecond)) // let others have it
		if rand.IntN(10) == 0 {               // dies, and another comes in its place
			r.fault("candidate replaced")
			w.close()
			w = r.way()
		}
	}
}

// reign renews a grant for a while and returns the stint that it made.
func (r *race) reign(ctx context.Context, w *way, s stint, token election.Token, ttl time.Duration) stint {
	for range rand.IntN(5) {
		pause(ctx, ttl/5)
		if rand.IntN(20) == 0 { // the holder is paused beyond its lease
			r.fault("holder paused")
			pause(ctx, ttl+upTo(ttl))
		}
		call, end := context.WithTimeout(ctx, ttl/3)
		asked := time.Now()
		a, err := w.Renew(call, r.id, token)
		end()
		switch {
		case err != nil: // trusted until the end of the last lease
			if ctx.Err() == nil && !isOutage(err) {
				r.t.Errorf("Renew: %v", err)
			}
		case a.Status == election.Lost:
			s.end = earlier(s.end, time.Now())
			return s
		case a.Number != s.number:
			r.t.Errorf("renewed with number %d, acquired with %d", a.Number, s.number)
			return s
		default:
			if r.deleted(s.from, asked) {
				r.t.Errorf("%s renewed its term %d, which was deleted", s.who, s.number)
			}
			if s.end.Before(time.Now()) { // its own trust was over
				r.note(s)
				s.from = time.Now()
			}
			s.end = asked.Add(ttl - grain)
		}
	}
	switch rand.IntN(3) {
	case 0: // it is never heard of again
		r.fault("holder gone")
	case 1: // it stays away until its lease is over
		pause(ctx, time.Until(s.end)+upTo(ttl/2))
	default:
		s.end = earlier(s.end, time.Now())
		call, end := context.WithTimeout(ctx, ttl)
		_, _ = w.Resign(call, r.id, token, election.ResignOptions{})
		end()
	}
	return s
}

// elector campaigns with an elector that is now and then told to stop, and replaced.
func (r *race) elector(ctx context.Context, who string) {
	for !r.over(ctx) {
		w := r.way()
		living, stop := context.WithCancel(ctx)
		e, err := election.NewElector(living, w, election.ElectorConfig{
			Election: r.id, Owner: who, TTL: raceLong, Margin: raceLong / 8, Retry: 20 * time.Millisecond, ReleaseTimeout: time.Second,
		})
		if err != nil {
			r.t.Errorf("NewElector: %v", err)
			stop()
			return
		}
		e.OnBecomeLeader(func(lead context.Context) {
			term, _ := election.TermFrom(lead)
			s := stint{who: who, number: term.Number, asked: w.f.LastGood(election.OpAcquire), from: time.Now()}
			mend := func() {}
			if rand.IntN(2) == 0 {
				mend = w.trouble(r)
			}
			pause(lead, upTo(raceLong))
			if rand.IntN(2) == 0 {
				mend()
			}
			stop()
			<-lead.Done()
			mend()
			term, _ = election.TermFrom(lead)
			s.end = earlier(term.TrustedUntil, time.Now())
			r.note(s)
		})
		for tick := 10 * time.Millisecond; !r.over(ctx) && living.Err() == nil; {
			pause(living, tick)
		}
		stop()
		_ = e.Wait() // a release that failed is left to the lease
		w.close()
		pause(ctx, upTo(40*time.Millisecond))
	}
}

// meddle does things to the server until done.
func (r *race) meddle(ctx context.Context, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-time.After(upTo(time.Second)):
		}
		switch n := rand.IntN(10); {
		case n < 5 && r.server.Freeze != nil:
			r.fault("server frozen")
			thaw := r.server.Freeze(r.t)
			pause(ctx, upTo(raceShort))
			thaw()
		case n < 8 && r.server.EndConnections != nil:
			r.fault("server ended connections")
			r.server.EndConnections(r.t)
		case n == 8:
			r.deleteRecord()
		}
	}
}

// deleteRecord has the store forget the election.
func (r *race) deleteRecord() {
	b := r.store
	if b == nil {
		b = r.Open(r.t)
		defer b.Close()
	}
	r.fault("record deleted")
	before := time.Now()
	r.Lose(r.t, b, r.id)
	r.delete(deletion{before, time.Now()})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// isOutage reports whether an error is of the kind that the race provokes.
func isOutage(err error) bool { return errors.Is(err, election.ErrUnavailable) }
