package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
)

// The bounds of what hints make of a candidate.
const (
	hintGap    = 50 * time.Millisecond
	hintSpread = 20 * time.Millisecond
)

// A teller is a backend whose hints are a test's own. It keeps count of who listens.
type teller struct {
	election.Backend
	tell func(ctx context.Context, hint func()) error

	mu          sync.Mutex
	began, runs int
	most        int
}

// Hints implements election.Hinter.
func (b *teller) Hints(ctx context.Context, _ string, hint func()) error {
	b.mu.Lock()
	b.began++
	b.runs++
	b.most = max(b.most, b.runs)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.runs--
		b.mu.Unlock()
	}()
	return b.tell(ctx, hint)
}

// counts returns how often hints began, how many go on, and how many went on at once.
func (b *teller) counts() (began, runs, most int) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.began, b.runs, b.most
}

// told starts a candidate on a backend whose hints are by tell.
func (s *stage) told(name string, tell func(ctx context.Context, hint func()) error) (candidate, *teller) {
	b := &teller{Backend: s.memory, tell: tell}
	c := s.on(b, name)
	c.OnBecomeLeader(s.Lead)
	return c, b
}

// tell passes on the store's hints.
func (s *stage) tell(ctx context.Context, hint func()) error { return s.memory.Hints(ctx, "e", hint) }

// silence is hints of which none come.
func silence(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return ctx.Err()
}

// A candidate takes over soon after a release, long before its poll is due, and listens only
// while it waits.
func TestHintsOfReleaseShortenTheWait(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		a := s.candidate("a")
		s.Begun(s.ctx, 1)
		b, h := s.told("b", s.tell)
		for n := 2; n <= 5; n++ {
			time.Sleep(ttl + 3*time.Second)
			if _, runs, _ := h.counts(); runs != 1 {
				t.Errorf("%d listen for the candidate", runs)
			}
			a.end()
			r := s.Ended(s.ctx, n-1)
			next := s.Begun(s.ctx, n)
			s.at("takeover", next.Began, r.Ended, hintGap+hintSpread)
			if _, runs, _ := h.counts(); runs != 0 || next.Term.Owner != "b" {
				t.Errorf("%d listen for the leader %s", runs, next.Term.Owner)
			}
			time.Sleep(ttl)
			if began, _, most := h.counts(); began != 1 || most != 1 {
				t.Errorf("hints began %d times, %d at once", began, most)
			}
			a = b
			b, h = s.told("b", s.tell)
		}
		b.end()
		a.end()
		if _, runs, _ := h.counts(); runs != 0 {
			t.Errorf("%d still listen", runs)
		}
	})
}

// What was released before the hints began is found by asking once more.
func TestReleaseBeforeTheHintsBegan(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		g := s.rival()
		c, _ := s.told("a", func(ctx context.Context, hint func()) error {
			time.Sleep(time.Second) // it takes that long to connect
			hint()
			return silence(ctx, hint)
		})
		began := time.Now()
		time.Sleep(time.Second / 2)
		if _, err := s.memory.Resign(s.ctx, "e", g.Token, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		s.at("takeover", s.Begun(s.ctx, 1).Began, began.Add(time.Second), hintSpread)
		c.end()
	})
}

// A hint grants nothing, and however many come, a candidate asks no more often than it may.
func TestHintFlood(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		g := s.rival()
		c, _ := s.told("a", func(ctx context.Context, hint func()) error {
			for ctx.Err() == nil {
				for range 10 {
					hint()
				}
				time.Sleep(200 * time.Microsecond)
			}
			return ctx.Err()
		})
		const length = 10 * time.Second
		time.Sleep(length)
		if n := c.faults.Calls(election.OpAcquire); n > int(length/hintGap)+1 || n < int(length/(hintGap+hintSpread)) {
			t.Errorf("%d questions in %v", n, length)
		}
		if n := len(s.Reigns()); n != 0 {
			t.Errorf("%d reigns", n)
		}
		if v, err := s.memory.Validate(s.ctx, "e", g.Token); err != nil || v.Standing != election.StandingCurrent {
			t.Errorf("Validate: %+v, %v", v, err)
		}
		// Where the backend fails, a hint does not have it asked more often either.
		c.faults.Set(electiontest.Refused)
		n := c.faults.Calls(election.OpAcquire)
		time.Sleep(length)
		if n := c.faults.Calls(election.OpAcquire) - n; n > 10 {
			t.Errorf("%d questions in %v to a backend that fails", n, length)
		}
		c.faults.Set(electiontest.Sound)
		s.Begun(s.ctx, 1) // by the clock: the rival never renews
		c.end()
	})
}

// A herd of candidates hears of a release at once, and does not ask at once.
func TestHintsSpreadAHerd(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		g := s.rival()
		released := make(chan struct{})
		const herd = 200
		var mu sync.Mutex
		asked := map[time.Time]int{}
		var cs []candidate
		for range herd {
			b := noting{s.memory, func() {
				select {
				case <-released:
					mu.Lock()
					defer mu.Unlock()
					asked[time.Now()]++
				default:
				}
			}}
			cs = append(cs, s.on(&teller{Backend: b, tell: s.tell}, "c"))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		close(released)
		if _, err := s.memory.Resign(s.ctx, "e", g.Token, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(hintGap + hintSpread)
		synctest.Wait()
		mu.Lock()
		if len(asked) < herd/2 {
			t.Errorf("%d candidates asked at %d times", herd, len(asked))
		}
		mu.Unlock()
		for _, c := range cs {
			c.stop(nil)
		}
		for _, c := range cs {
			c.end()
		}
	})
}

// A noting backend tells of each Acquire.
type noting struct {
	election.Backend
	note func()
}

func (b noting) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	b.note()
	return b.Backend.Acquire(ctx, id, o)
}

var errDeaf = errors.New("nothing is heard")

// Hints that fail, at once or when they have begun, are tried again less and less often,
// told of once, and cost the candidate neither its health nor its polls.
func TestHintsThatFail(t *testing.T) {
	for name, tell := range map[string]func(context.Context, func()) error{
		"AtOnce":     func(context.Context, func()) error { return errDeaf },
		"AfterBegin": func(_ context.Context, hint func()) error { hint(); return errDeaf },
		"WithoutWord": func(_ context.Context, hint func()) error {
			hint()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(s *stage) {
				g := s.rival()
				c, h := s.told("a", tell)
				const length = 10 * time.Minute
				for range int(length / heartbeat) {
					time.Sleep(heartbeat)
					if _, err := s.memory.Renew(s.ctx, "e", g.Token); err != nil {
						t.Fatal(err)
					}
				}
				if began, _, most := h.counts(); began < 5 || began > 30 || most != 1 {
					t.Errorf("tried %d times in %v, %d at once", began, length, most)
				}
				if !c.Healthy() {
					t.Error("not healthy")
				}
				if n := c.faults.Calls(election.OpAcquire); n < int(length/retry) || n > int(length/retry)*3/2+30 {
					t.Errorf("%d polls in %v", n, length)
				}
				told := 0
				var hints *election.HintsError
				for _, err := range s.errors() {
					if !errors.As(err, &hints) || !errors.Is(err, errDeaf) || hints.Election != "e" {
						t.Errorf("told of %v", err)
					}
					told++
				}
				if want := map[bool]int{true: 0, false: 1}[name == "WithoutWord"]; told != want {
					t.Errorf("told %d times", told)
				}
				s.Begun(s.ctx, 1) // by the clock
				c.end()
			})
		})
	}
}

// Hints that work again are as good as ever; a backend that has none is not asked again.
func TestHintsComeBackOrNever(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		a := s.candidate("a")
		s.Begun(s.ctx, 1)
		fails := 3
		b, _ := s.told("b", func(ctx context.Context, hint func()) error {
			if fails--; fails >= 0 {
				return errDeaf
			}
			return s.tell(ctx, hint)
		})
		time.Sleep(time.Minute)
		a.end()
		s.at("takeover", s.Begun(s.ctx, 2).Began, s.Ended(s.ctx, 1).Ended, hintGap+hintSpread)
		c, h := s.told("c", func(context.Context, func()) error { return election.ErrNoHints })
		time.Sleep(10 * time.Minute)
		if began, runs, _ := h.counts(); began != 1 || runs != 0 {
			t.Errorf("a backend without hints was asked %d times, %d go on", began, runs)
		}
		b.end()
		s.at("takeover", s.Begun(s.ctx, 3).Began, s.Ended(s.ctx, 2).Ended, retry)
		c.end()
		for _, err := range s.errors() {
			if errors.Is(err, election.ErrNoHints) {
				t.Errorf("told of %v", err)
			}
		}
	})
}

// A subscription that ends slowly holds up no leader, and no second one begins beside it.
func TestSlowEndOfHints(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		g := s.rival()
		const slow = 10 * ttl
		c, h := s.told("a", func(ctx context.Context, hint func()) error {
			err := silence(ctx, hint)
			time.Sleep(slow)
			return err
		})
		time.Sleep(ttl / 2)
		if _, err := s.memory.Resign(s.ctx, "e", g.Token, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		r := s.Begun(s.ctx, 1)
		s.at("takeover", r.Began, released, retry)
		if _, err := s.memory.Resign(s.ctx, "e", r.Term.Token, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		s.rival()
		s.Ended(s.ctx, 1)
		second := s.Begun(s.ctx, 2)
		if began, _, most := h.counts(); began != 1 || most != 1 {
			t.Errorf("hints began %d times, %d at once", began, most)
		}
		s.at("second reign", second.Began, r.Began, 3*ttl)
		c.end() // waits for what still ends
		if _, runs, most := h.counts(); runs != 0 || most != 1 {
			t.Errorf("%d still listen; %d did at once", runs, most)
		}
	})
}

// A wrapped backend's hints are its own; one that has none says so.
func TestHintsOfWrapped(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		ctx, cancel := context.WithCancel(s.ctx)
		b := election.Observe(s.memory, "memory", func(election.Observation) {})
		err := election.Hints(ctx, b, "e", cancel) // the first hint is at the begin
		if !errors.Is(err, context.Canceled) {
			t.Errorf("observed: %v", err)
		}
		bare := struct{ election.Backend }{s.memory}
		for _, b := range []election.Backend{bare, election.Observe(bare, "memory", func(election.Observation) {})} {
			if err := election.Hints(s.ctx, b, "e", cancel); !errors.Is(err, election.ErrNoHints) {
				t.Errorf("without hints: %v", err)
			}
		}
	})
}
