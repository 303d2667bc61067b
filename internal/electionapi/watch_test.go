package electionapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A counted backend counts how often it is asked for a status, and may fail.
type counted struct {
	election.Backend
	asked atomic.Int64
	down  atomic.Bool
}

func (c *counted) Status(ctx context.Context, id string) (election.StatusResult, error) {
	c.asked.Add(1)
	if c.down.Load() {
		return election.StatusResult{}, errors.New("down")
	}
	return c.Backend.Status(ctx, id)
}

// get is the value of a field of an answer.
func (a answer) get(name string) any {
	for _, f := range a {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

func grab(t *testing.T, b election.Backend, ttl time.Duration) election.AcquireResult {
	t.Helper()
	r, err := b.Acquire(context.Background(), "a", election.AcquireOptions{TTL: ttl})
	if err != nil || r.Status != election.Acquired {
		t.Fatal(r, err)
	}
	return r
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Backend: memory.New()}
		s := New(b, Config{})
		ctx := context.Background()
		zero := int64(0)

		// Nothing changes.
		began := time.Now()
		a, p := s.watch(ctx, "a", nil, 3*time.Second)
		if p != nil || a.get("changed") != false || a.get("outcome") != "vacant" || time.Since(began) != 3*time.Second {
			t.Fatal(a, p, time.Since(began))
		}
		// Somebody leads.
		leads := make(chan election.AcquireResult, 1)
		time.AfterFunc(2*time.Second, func() { leads <- grab(t, b, 10*time.Second) })
		began = time.Now()
		a, p = s.watch(ctx, "a", &zero, time.Minute)
		first := <-leads
		if p != nil || a.get("changed") != true || a.get("number") != first.Number || time.Since(began) > 2*time.Second+DefaultWatchEvery {
			t.Fatal(a, p, time.Since(began))
		}
		// Who knows less is told at once, who knows this waits: until the lease runs out.
		if a, p = s.watch(ctx, "a", &zero, time.Minute); p != nil || a.get("number") != first.Number {
			t.Fatal(a, p)
		}
		began = time.Now()
		a, p = s.watch(ctx, "a", &first.Number, time.Minute)
		if p != nil || a.get("outcome") != "vacant" || time.Since(began) > 10*time.Second {
			t.Fatal(a, p, time.Since(began))
		}
		// A renewal is no change; a new term at once after the old one is.
		second := grab(t, b, 10*time.Second)
		time.AfterFunc(4*time.Second, func() { _, _ = b.Renew(ctx, "a", second.Token) })
		time.AfterFunc(7*time.Second+DefaultWatchEvery/2, func() { // between two looks, so that nobody sees it vacant
			_, _ = b.Resign(ctx, "a", second.Token, election.ResignOptions{})
			grab(t, b, 10*time.Second)
		})
		began = time.Now()
		if a, p = s.watch(ctx, "a", nil, time.Minute); p != nil || a.get("number") == second.Number || time.Since(began) < 7*time.Second {
			t.Fatal(a, p, time.Since(began))
		}
		// The caller leaves.
		leaving, leave := context.WithTimeout(ctx, time.Second)
		defer leave()
		if a, p = s.watch(leaving, "a", nil, time.Minute); a != nil && a.get("changed") != false {
			t.Fatal(a, p)
		}
		// The backend fails meanwhile, and at the end.
		time.AfterFunc(time.Second, func() { b.down.Store(true) })
		if a, p = s.watch(ctx, "b", nil, 5*time.Second); p == nil || p.Code != Unavailable {
			t.Fatal(a, p)
		}
		if a, p = s.watch(ctx, "b", nil, 5*time.Second); p == nil || p.Code != Unavailable {
			t.Fatal(a, p)
		}
		time.AfterFunc(time.Second, func() { b.down.Store(true) })
		b.down.Store(false)
		time.AfterFunc(2*time.Second, func() { b.down.Store(false) })
		if a, p = s.watch(ctx, "b", nil, 5*time.Second); p != nil || a.get("changed") != false {
			t.Fatal(a, p)
		}
		if len(s.watches) != 0 || s.watchers != 0 {
			t.Errorf("%d watches, %d watchers are left", len(s.watches), s.watchers)
		}
	})
}

// Who has just acquired is not told of what others saw before.
func TestWatchKnowsWhatItsCallerKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := New(b, Config{})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = s.watch(t.Context(), "a", nil, time.Minute) })
		time.Sleep(DefaultWatchEvery + time.Millisecond)
		won := grab(t, b, time.Minute)
		if a, p := s.watch(t.Context(), "a", &won.Number, time.Second); p != nil || a.get("changed") != false || a.get("number") != won.Number {
			t.Error(a, p)
		}
		wg.Wait()
	})
}

// However many watch an election, the backend is asked as often as for one; above the bound
// callers are told at once.
func TestManyWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Backend: memory.New()}
		s := New(b, Config{MaxWatchers: 500})
		var told, refused atomic.Int64
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				a, p := s.watch(t.Context(), "a", nil, time.Minute)
				switch {
				case p != nil && p.Code == TooManyWatchers:
					refused.Add(1)
				case p == nil && a.get("changed") == true:
					told.Add(1)
				}
			})
		}
		synctest.Wait()
		if refused.Load() != 1500 {
			t.Errorf("%d are refused", refused.Load())
		}
		before := b.asked.Load()
		time.Sleep(10 * time.Second)
		if n := b.asked.Load() - before; n > 21 {
			t.Errorf("500 watchers asked %d times in 10 s", n)
		}
		grab(t, b, time.Minute)
		wg.Wait()
		if told.Load() != 500 {
			t.Errorf("%d are told", told.Load())
		}
		before = b.asked.Load()
		time.Sleep(time.Minute)
		if n := b.asked.Load() - before; n != 0 {
			t.Errorf("asked %d times for nobody", n)
		}
	})
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Backend: memory.New()}
		s := New(b, Config{})
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		var lines []string
		go func() {
			time.Sleep(15 * time.Second)
			grab(t, b, 10*time.Second)
			time.Sleep(time.Second)
			b.down.Store(true)
			time.Sleep(2 * time.Second)
			b.down.Store(false)
			time.Sleep(20 * time.Second)
			stop()
		}()
		p := s.stream(ctx, "a", 10*time.Second, func(a answer) error {
			lines = append(lines, fmt.Sprintf("%v %v %v", time.Since(began).Truncate(time.Second), a.get("outcome"), a.get("changed")))
			return nil
		})
		want := "[0s vacant true 10s vacant false 15s held true 16s unknown false 18s held false 20s held false 25s vacant true 30s vacant false]"
		if got := fmt.Sprint(lines); p != nil || got != want {
			t.Errorf("%s %v\nwant %s", got, p, want)
		}
		if p := s.stream(t.Context(), "a", time.Second, func(answer) error { return errors.New("gone") }); p != nil {
			t.Error(p)
		}
	})
}

// Over HTTP both end when the caller leaves and when the server stops.
func TestStreamOverHTTP(t *testing.T) {
	s := New(memory.New(), Config{WatchEvery: 10 * time.Millisecond})
	h := newHTTP(t, s)
	open := func(ctx context.Context, path string) (*http.Response, *bufio.Reader) {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, h.url+path, nil)
		res, err := h.c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res, bufio.NewReader(res.Body)
	}
	line := func(r *bufio.Reader) (m map[string]any) {
		t.Helper()
		text, err := r.ReadString('\n')
		if err == nil {
			err = json.Unmarshal([]byte(text), &m)
		}
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return m
	}
	leaving, leave := context.WithCancel(t.Context())
	res, r := open(leaving, "/v1/elections/a/stream")
	if m := line(r); m["outcome"] != "vacant" || m["changed"] != true || res.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Error(m, res.Header)
	}
	won := grab(t, s.backend, time.Minute)
	if m := line(r); m["outcome"] != "held" || m["changed"] != true {
		t.Error(m)
	}
	if m, code := h.get(t, "/v1/elections/a/watch?number=0"); code != "" || m["number"] != json.Number(fmt.Sprint(won.Number)) {
		t.Error(m, code)
	}
	leave()
	testenv.Eventually(t, "nobody watches", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.watchers == 0
	})
	_, r = open(t.Context(), "/v1/elections/a/stream")
	line(r)
	waits := make(chan map[string]any, 1)
	go func() {
		m, _ := h.get(t, fmt.Sprintf("/v1/elections/a/watch?number=%d", won.Number))
		waits <- m
	}()
	testenv.Eventually(t, "both watch", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.watchers == 2
	})
	h.stop()
	if text, err := r.ReadString('\n'); err == nil {
		t.Errorf("the stream goes on with %q", text)
	}
	if m := <-waits; m["changed"] != false {
		t.Error(m)
	}
}
