package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A fakeFence is a fence without connections.
type fakeFence struct {
	mu   sync.Mutex
	rec  map[string]guard.Record
	fail error
	// sever, if not nil, is what Sever waits for.
	sever chan struct{}
}

func (f *fakeFence) Read(_ context.Context, id string) (guard.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rec[id], f.fail
}

func (f *fakeFence) Swap(_ context.Context, id string, old, next guard.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec[id] != old {
		return guard.ErrConflict
	}
	if f.rec == nil {
		f.rec = make(map[string]guard.Record)
	}
	f.rec[id] = next
	return f.fail
}

func (f *fakeFence) Sever(ctx context.Context, _ guard.Term) error {
	f.mu.Lock()
	wait := f.sever
	f.mu.Unlock()
	if wait == nil {
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeFence) fails(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// stage is two processes that campaign for one election, in fake time.
type stage struct {
	t       *testing.T
	backend *memory.Backend
	fence   *fakeFence
	log     *testenv.Buffer
}

// A sidecar is one process.
type sidecar struct {
	*Campaign
	lead *Lead
	end  func()
}

func (s *stage) start(owner string, b election.Backend) *sidecar {
	s.t.Helper()
	c, err := New(b, Config{Election: "billing", Owner: owner, Log: slog.New(slog.NewTextHandler(s.log, nil))})
	if err != nil {
		s.t.Fatal(err)
	}
	g := guard.New(b, s.fence, guard.Config{})
	one := &sidecar{Campaign: c, lead: c.Lead()}
	one.lead.Over(g)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	one.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		g.Close()
	})
	return one
}

func inFakeTime(t *testing.T, f func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, backend: memory.New(), fence: &fakeFence{}, log: new(testenv.Buffer)}
		f(s)
		_ = s.backend.Close()
	})
}

func (s *sidecar) offers() bool {
	_, ok := s.lead.Credential()
	return ok
}

// What a sidecar offers is the live token, while it leads; a follower says who leads. When the
// leader ends in order, the other takes over at once.
func TestTakeover(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		a := s.start("host-a", s.backend)
		defer a.end()
		if r := a.lead.Refusal(); r.Reason != guard.NotElected || r.Election != "billing" {
			t.Errorf("%+v", r)
		}
		synctest.Wait()
		cred, ok := a.lead.Credential()
		if v, err := s.backend.Validate(t.Context(), "billing", cred.Token); !ok || err != nil || v.Standing != election.StandingCurrent {
			t.Fatalf("%v %+v %v", ok, v, err)
		}
		if n := testing.AllocsPerRun(100, func() { a.lead.Credential() }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		b := s.start("host-b", s.backend)
		defer b.end()
		time.Sleep(time.Minute)
		if st := b.Status(); b.offers() || st.Leads || !st.Healthy || st.Leader != "host-a" || st.Number != a.Status().Number {
			t.Errorf("%+v", st)
		}
		if r := b.lead.Refusal(); r.Rules != a.Status().Number || r.Leader != "host-a" || !strings.Contains(r.Message(), "is ruled by number") {
			t.Errorf("%+v", r)
		}
		a.end()
		time.Sleep(100 * time.Millisecond) // the backend's hint comes long before the next poll
		if st := b.Status(); !b.offers() || !st.Ready || st.Leader != "host-b" {
			t.Errorf("%+v", st)
		}
		if a.offers() {
			t.Error("the one that ended offers")
		}
		if log := s.log.String(); strings.Contains(log, cred.Token.Reveal()) || !strings.Contains(log, "this process leads") || !strings.Contains(log, "releases its leadership") || strings.Contains(log, "context canceled") {
			t.Error(log)
		}
	})
}

// unreachable is a backend that can be cut off.
type unreachable struct {
	election.Backend
	mu  sync.Mutex
	cut bool
}

func (u *unreachable) is(cut bool) { u.mu.Lock(); defer u.mu.Unlock(); u.cut = cut }

func (u *unreachable) err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cut {
		return election.ErrUnavailable
	}
	return nil
}

func (u *unreachable) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	if err := u.err(); err != nil {
		return election.AcquireResult{}, err
	}
	return u.Backend.Acquire(ctx, id, o)
}

func (u *unreachable) Renew(ctx context.Context, id string, t election.Token) (election.RenewResult, error) {
	if err := u.err(); err != nil {
		return election.RenewResult{}, err
	}
	return u.Backend.Renew(ctx, id, t)
}

func (u *unreachable) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (election.ResignResult, error) {
	if err := u.err(); err != nil {
		return election.ResignResult{}, err
	}
	return u.Backend.Resign(ctx, id, t, o)
}

func (u *unreachable) Validate(ctx context.Context, id string, t election.Token) (election.ValidateResult, error) {
	if err := u.err(); err != nil {
		return election.ValidateResult{}, err
	}
	return u.Backend.Validate(ctx, id, t)
}

// A leader that is cut off from the backend offers nothing once its permit or its trust has
// ended, and before its lease has.
func TestCutOff(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		u := &unreachable{Backend: s.backend}
		a := s.start("host-a", u)
		synctest.Wait()
		if !a.offers() {
			t.Fatal("it does not lead")
		}
		u.is(true)
		time.Sleep(guard.DefaultPermitFor)
		if st := a.Status(); a.offers() || st.Ready {
			t.Errorf("%+v", st)
		}
		time.Sleep(election.DefaultTTL - guard.DefaultPermitFor)
		if st := a.Status(); st.Leads || st.Healthy {
			t.Errorf("%+v", st)
		}
		if r := a.lead.Refusal(); r.Detail != "the election backend does not answer" {
			t.Errorf("%+v", r)
		}
		u.is(false)
		time.Sleep(20 * time.Second)
		if !a.offers() {
			t.Error("it does not lead again")
		}
		a.end()
	})
}

// Nothing is offered before the takeover is finished: the process leads, and is not ready.
func TestTakeoverUnderWay(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		s.fence.sever = make(chan struct{})
		s.fence.fails(errors.New("out of reach"))
		a := s.start("host-a", s.backend)
		defer a.end()
		time.Sleep(time.Second)
		if st := a.Status(); !st.Leads || st.Ready || a.offers() {
			t.Errorf("%+v", st)
		}
		if r := a.lead.Refusal(); r.Reason != guard.FenceUnavailable {
			t.Errorf("%+v", r)
		}
		s.fence.fails(nil)
		time.Sleep(3 * time.Second)
		if a.offers() {
			t.Error("it offers before the sever")
		}
		close(s.fence.sever)
		time.Sleep(10 * time.Second)
		if st := a.Status(); !st.Ready || !a.offers() {
			t.Errorf("%+v", st)
		}
	})
}

func TestUnsupportedHoldOffEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(noHoldOff{}, Config{Election: "billing", HoldOff: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); !errors.Is(err, election.ErrUnsupportedOption) {
			t.Error(err)
		}
	})
}

type noHoldOff struct{ election.Backend }

func (noHoldOff) Resign(context.Context, string, election.Token, election.ResignOptions) (election.ResignResult, error) {
	return election.ResignResult{}, election.ErrUnsupportedOption
}

// A paths takes handlers as the admin listener does.
type paths struct{ *http.ServeMux }

func (p paths) Open(pattern string, h http.Handler) { p.Handle(pattern, h) }

func TestHealth(t *testing.T) {
	inFakeTime(t, func(s *stage) {
		a := s.start("host-a", s.backend)
		synctest.Wait()
		b := s.start("host-b", s.backend)
		synctest.Wait()
		ending, answers := false, true
		at := func(campaigns ...*Campaign) func(method, path string) (int, string) {
			p := paths{http.NewServeMux()}
			Health(p, campaigns, func(context.Context) bool { return answers }, func() bool { return ending })
			return func(method, path string) (int, string) {
				w := httptest.NewRecorder()
				p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
				return w.Code, w.Body.String()
			}
		}
		all := []string{"/leader", "/primary", "/read-write", "/replica", "/read-only", "/health", "/readiness", "/liveness"}
		check := func(who string, ask func(method, path string) (int, string), want ...int) {
			t.Helper()
			for i, path := range all {
				for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
					if code, body := ask(method, path); code != want[i] || (body != "") == (method == "OPTIONS") {
						t.Errorf("%s: %s %s: %d %q, want %d", who, method, path, code, body, want[i])
					}
				}
			}
		}
		check("the leader", at(a.Campaign), 200, 200, 200, 503, 200, 200, 200, 200)
		check("a follower", at(b.Campaign), 503, 503, 503, 200, 200, 200, 200, 200)
		check("of no election", at(), 503, 503, 503, 503, 503, 200, 200, 200)
		answers = false
		check("of no election, without a backend", at(), 503, 503, 503, 503, 503, 503, 503, 200)
		check("a leader, whose elector knows", at(a.Campaign), 200, 200, 200, 503, 200, 200, 200, 200)
		check("of several", at(a.Campaign, b.Campaign), 400, 400, 400, 400, 400, 200, 200, 200)

		ask := at(b.Campaign)
		_, body := ask("GET", "/replica?election=billing")
		var got map[string]any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if got["election"] != "billing" || got["role"] != "replica" || got["owner"] != "host-b" || got["leader"] != "host-a" ||
			got["number"] != float64(a.Status().Number) || got["state"] != "running" {
			t.Error(body)
		}
		if code, body := ask("GET", "/leader?election=other"); code != 404 || !strings.Contains(body, "unknown-election") {
			t.Error(code, body)
		}
		if code, _ := ask("POST", "/leader"); code != 405 {
			t.Error(code)
		}
		ending = true
		check("one that ends", at(a.Campaign), 503, 503, 503, 503, 503, 200, 503, 200)
		ending = false
		s.fence.fails(errors.New("gone"))
		a.end()
		b.end()
		check("one that has ended", at(a.Campaign), 503, 503, 503, 503, 503, 503, 503, 200)
		if bytes.Contains([]byte(s.log.String()), []byte("level=ERROR")) {
			t.Error(s.log)
		}
	})
}

// However many ask, the backend is asked once a second, one question at a time, and each has
// its answer in time.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, silent := 0, false // read and written in turn
		answers := Answers(func(ctx context.Context) error {
			asked++
			if silent {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		all := func(want bool) {
			t.Helper()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if got := answers(t.Context()); got != want {
						t.Errorf("got %v", got)
					}
				})
			}
			wg.Wait()
		}
		all(true)
		silent = true
		all(true)
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		time.Sleep(answersFor)
		began := time.Now()
		all(false)
		if took := time.Since(began); took != answersWithin || asked != 2 {
			t.Errorf("%v, asked %d times", took, asked)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		silent = false
		time.Sleep(answersFor)
		answers(gone) // whoever is gone spoils no answer
		all(true)
	})
}
