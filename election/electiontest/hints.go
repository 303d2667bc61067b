package electiontest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// farPoll is a wait between two polls that no test lasts for: who takes over before has had
// a hint.
const farPoll = time.Hour

// hints plays hints: what a backend promises about them, and what they make of a takeover.
func (s suite) hints(t *testing.T) {
	if !s.Hints {
		if err := election.Hints(within(t), s.open(t), fresh(), func() { t.Error("a hint") }); !errors.Is(err, election.ErrNoHints) {
			t.Errorf("%v, want %v", err, election.ErrNoHints)
		}
		return
	}
	for name, play := range map[string]func(suite, *testing.T){
		"Release":   suite.hintsOfRelease,
		"End":       suite.hintsEnd,
		"Arguments": suite.hintsArguments,
		"Close":     suite.hintsClose,
		"Takeover":  suite.hintedTakeover,
		"Recover":   suite.hintsRecover,
		"Dead":      suite.deadHints,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(s, t)
		})
	}
}

// A listener listens on a backend in the background.
type listener struct {
	stop  context.CancelFunc
	heard chan struct{}
	ended chan struct{} // closed when they have ended
	err   error         // with what; set before
}

func listenTo(ctx context.Context, b election.Backend, id string) *listener {
	l := &listener{heard: make(chan struct{}, 1), ended: make(chan struct{})}
	ctx, l.stop = context.WithCancel(ctx)
	go func() {
		defer close(l.ended)
		l.err = election.Hints(ctx, b, id, func() {
			select {
			case l.heard <- struct{}{}:
			default:
			}
		})
	}()
	return l
}

// await waits for a hint.
func (l *listener) await(t testing.TB, ctx context.Context, what string) {
	t.Helper()
	select {
	case <-l.heard:
	case <-l.ended:
		t.Fatalf("%s: the hints ended: %v", what, l.err)
	case <-ctx.Done():
		t.Fatalf("%s: no hint", what)
	}
}

// end stops the listener and waits for it.
func (l *listener) end() error {
	l.stop()
	<-l.ended
	return l.err
}

// There is a hint at the begin and one of each release, whoever listens and by which way.
func (s suite) hintsOfRelease(t *testing.T) {
	a, b := s.pair(t)
	u := user{t, within(t), a, fresh()}
	first := u.win(election.AcquireOptions{Owner: "a"})
	var ls []*listener
	for _, h := range []election.Backend{b, b, a} {
		l := listenTo(u.ctx, h, u.id)
		defer l.stop()
		l.await(t, u.ctx, "begin")
		ls = append(ls, l)
	}
	u.resign(first.Token, election.ResignOptions{}, election.Released)
	for _, l := range ls {
		l.await(t, u.ctx, "release")
	}
	second := u.win(election.AcquireOptions{Owner: "b"})
	u.resign(second.Token, election.ResignOptions{}, election.Released)
	for _, l := range ls {
		l.await(t, u.ctx, "second release")
		if err := l.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}
}

// Hints end with their context, and can begin anew, on the same handle.
func (s suite) hintsEnd(t *testing.T) {
	u := s.user(t)
	g := u.win(election.AcquireOptions{})
	kept := listenTo(u.ctx, u.b, u.id)
	kept.await(t, u.ctx, "begin")
	for range 5 {
		l := listenTo(u.ctx, u.b, u.id)
		l.await(t, u.ctx, "begin")
		if err := l.end(); !errors.Is(err, context.Canceled) || errors.Is(err, election.ErrNoHints) || election.Permanent(err) {
			t.Errorf("ended with %v", err)
		}
	}
	u.resign(g.Token, election.ResignOptions{}, election.Released)
	kept.await(t, u.ctx, "release")
	_ = kept.end()
	ended, cancel := context.WithCancel(u.ctx)
	cancel()
	if err := election.Hints(ended, u.b, u.id, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func (s suite) hintsArguments(t *testing.T) {
	b := s.open(t)
	for _, id := range []string{"", "a b", "*", "ü"} {
		if err := election.Hints(within(t), b, id, func() { t.Error("a hint") }); !errors.Is(err, election.ErrInvalidID) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// Close ends the hints that there are, and later ones at once.
func (s suite) hintsClose(t *testing.T) {
	ctx, b, id := within(t), s.Open(t), fresh()
	l := listenTo(ctx, b, id)
	l.await(t, ctx, "begin")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	defer l.stop()
	if <-l.ended; !errors.Is(l.err, election.ErrClosed) {
		t.Errorf("ended with %v", l.err)
	}
	if err := election.Hints(ctx, b, id, func() {}); !errors.Is(err, election.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// candidate starts an elector on b.
func (u user) candidate(t testing.TB, w *Witness, owner string, b election.Backend, retry time.Duration) *elector {
	t.Helper()
	e := &elector{Faults: NewFaults(b)}
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.WithoutCancel(u.ctx))
	var err error
	e.Elector, err = election.NewElector(ctx, e.Faults, election.ElectorConfig{
		Election: u.id, Owner: owner, TTL: 4 * farPoll, Heartbeat: leaseHeartbeat, Retry: retry, // the heartbeat bounds the pauses after errors
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.stop(); _ = e.Wait() })
	e.OnBecomeLeader(w.Lead)
	return e
}

// A leader resigns, and others whose next poll is far away take over, one after the other.
func (s suite) hintedTakeover(t *testing.T) {
	a, b := s.pair(t)
	u, w := user{t, within(t), a, fresh()}, NewWitness(t)
	es := map[string]*elector{"a": u.candidate(t, w, "a", a, farPoll)}
	r := w.Begun(u.ctx, 1)
	es["b"], es["c"] = u.candidate(t, w, "b", b, farPoll), u.candidate(t, w, "c", b, farPoll)
	for _, name := range []string{"b", "c"} { // they have asked, and again when the hints began
		until(t, u.ctx, "hints", func() bool { return es[name].Calls(election.OpAcquire) >= 2 })
	}
	for n := 1; n <= 2; n++ {
		leader := es[r.Term.Owner]
		leader.stop()
		if err := leader.Wait(); err != nil {
			t.Fatal(err)
		}
		r = w.Begun(u.ctx, n+1)
	}
	if n := es[r.Term.Owner].Calls(election.OpAcquire); n > 20 {
		t.Errorf("the last one asked %d times", n)
	}
}

// Connections end, and the hints come back by themselves.
func (s suite) hintsRecover(t *testing.T) {
	if s.Server == "" {
		return // there are none
	}
	u, w := s.user(t), NewWitness(t)
	a := u.candidate(t, w, "a", u.b, farPoll)
	w.Begun(u.ctx, 1)
	link := NewLink(t, s.Server)
	far := s.OpenAt(t, link.Addr())
	t.Cleanup(func() { _ = far.Close() })
	b := u.candidate(t, w, "b", far, farPoll)
	until(t, u.ctx, "hints", func() bool { return b.Calls(election.OpAcquire) >= 2 })
	link.Break()
	// A session that goes on elsewhere misses nothing, and so has nothing to say.
	a.stop()
	w.Begun(u.ctx, 2)
}

// Hints that hang hold up nothing: the clock has the candidate ask, and it ends at once.
func (s suite) deadHints(t *testing.T) {
	u, w := s.user(t), NewWitness(t)
	way := mute{u.b, u.b}
	if s.Server != "" {
		link := NewLink(t, s.Server)
		way.hints = s.OpenAt(t, link.Addr())
		t.Cleanup(func() { _ = way.hints.Close() })
		link.Stall()
	} else {
		way.hints = nil
	}
	a := u.candidate(t, w, "a", u.b, farPoll)
	w.Begun(u.ctx, 1)
	b := u.candidate(t, w, "b", way, leaseRetry)
	until(t, u.ctx, "polls", func() bool { return b.Calls(election.OpAcquire) >= 3 })
	a.stop()
	w.Begun(u.ctx, 2)
	b.stop()
	if err := b.Wait(); err != nil {
		t.Error(err)
	}
}

// A mute backend has its hints from elsewhere; from nowhere, they hang.
type mute struct {
	election.Backend
	hints election.Backend
}

// Hints implements election.Hinter.
func (m mute) Hints(ctx context.Context, id string, hint func()) error {
	if m.hints == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return election.Hints(ctx, m.hints, id, hint)
}
