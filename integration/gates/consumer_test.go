package gates

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
)

// A plan is what a process of the race does.
type plan struct {
	Role       string // consumer or gate
	Elections  string // the backend's URL
	Prefix     string // of the elections
	Gates      []string
	Partitions int
	Workers    int
	TTL        time.Duration
	Log        string // what a consumer writes
	Addr       string // of a gate
	Unleased   bool   // the gate has no lease: the step that is taken out
}

// permit is the gates'.
const (
	permit        = 2 * time.Second
	validateEvery = 500 * time.Millisecond
)

// A consumer is one process of the race.
type consumer struct {
	plan
	b    election.Backend
	http http.Client

	mu  sync.Mutex
	log *os.File
}

// consume works until the process is told to stop.
func consume(p plan) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	b, err := open.Backend(ctx, p.Elections, open.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	f, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	c := &consumer{plan: p, b: b, log: f}
	c.http.Transport = &http.Transport{MaxIdleConnsPerHost: 2 * p.Workers}
	var workers sync.WaitGroup
	for w := range p.Workers {
		workers.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				c.turn(ctx, fmt.Sprintf("%d/%d", w, turn))
			}
		})
	}
	workers.Wait()
	return nil
}

// note writes a line down; only then is it believed.
func (c *consumer) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintf(c.log, format+"\n", args...); err != nil {
		panic(err) // it must not believe what it cannot write down
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// turn is one time of a worker's with a partition.
func (c *consumer) turn(ctx context.Context, key string) {
	part := rand.IntN(c.Partitions)
	id := fmt.Sprintf("%s-%d", c.Prefix, part)
	got, err := c.b.Acquire(ctx, id, election.AcquireOptions{Owner: "consumer", TTL: c.TTL})
	if err != nil || got.Status != election.Acquired {
		pause(ctx, time.Duration(20+rand.IntN(100))*time.Millisecond)
		return
	}
	renewing, stopRenewing := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stopRenewing()
	wg.Go(func() {
		for renewing.Err() == nil {
			pause(renewing, c.TTL/5)
			_, _ = c.b.Renew(renewing, id, got.Token)
		}
	})
	gate := rand.IntN(len(c.Gates))
	x := c.bind(ctx, key, gate, part, got)
	if x == nil {
		_, _ = c.b.Resign(context.WithoutCancel(ctx), id, got.Token, election.ResignOptions{})
		return
	}
	if rand.IntN(3) == 0 { // a second consumer with the same token
		wg.Go(func() {
			if y := c.bind(ctx, key+"+", 1-gate, part, got); y != nil {
				y.release("own")
			}
		})
	}
	lines := x.stream(&wg)
	work := time.NewTimer(time.Duration(rand.Int64N(int64(2 * time.Second))))
	defer work.Stop()
	ending := ctx.Done()
	losing := rand.IntN(4)
	for {
		left := time.NewTimer(x.until - now())
		select {
		case until, ok := <-lines:
			switch {
			case ok && until > 0:
				x.keep(until)
			case ok:
				x.release("told")
				return
			default:
				lines = nil // the stream broke: it trusts what it was told
			}
		case <-left.C:
			x.release("deadline")
			return
		case <-ending:
			x.release("own")
			return
		case <-work.C:
			switch losing {
			case 0: // resigned while it works on
				if r, err := c.b.Resign(ctx, id, got.Token, election.ResignOptions{}); err == nil && r.Status == election.Released {
					c.note("R %s %d", key, now())
				}
				stopRenewing()
			case 1: // its lease runs out while it works on
				stopRenewing()
			case 2: // it goes without a word to the gate
				x.end("own")
				_, _ = c.b.Resign(ctx, id, got.Token, election.ResignOptions{})
				return
			default:
				x.release("own")
				_, _ = c.b.Resign(ctx, id, got.Token, election.ResignOptions{})
				return
			}
		}
		left.Stop()
	}
}

// A bound is a binding that a consumer believes in.
type bound struct {
	c     *consumer
	key   string
	url   string
	until time.Duration
	ended sync.Once
	left  context.CancelFunc
}

func (c *consumer) ask(ctx context.Context, method, url string, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return c.http.Do(r)
}

// bind binds; nil where that is refused.
func (c *consumer) bind(ctx context.Context, key string, gate, part int, got election.AcquireResult) *bound {
	ctx, cancel := context.WithTimeout(ctx, 4*permit)
	defer cancel()
	asked := now()
	base := c.Gates[gate] + "/v1/gates/orders"
	res, err := c.ask(ctx, http.MethodPost, fmt.Sprintf("%s/partitions/%d/bind", base, part), map[string]any{"token": got.Token.Reveal()})
	if err != nil {
		c.note("X unreachable")
		return nil
	}
	defer res.Body.Close()
	var a struct {
		Binding   string
		Number    int64
		TrustedMS int64 `json:"trusted_ms"`
		Error     struct{ Code string }
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		c.note("X unreachable")
		return nil
	}
	if res.StatusCode != http.StatusOK {
		c.note("X %s", a.Error.Code)
		return nil
	}
	x := &bound{c: c, key: key, url: base + "/bindings/" + a.Binding, until: asked + time.Duration(a.TrustedMS)*time.Millisecond}
	c.note("B %s %d %d %d %d %d", key, part, a.Number, gate, now(), x.until)
	return x
}

// keep takes in how long the binding is trusted by now. What was over is over.
func (x *bound) keep(until time.Duration) {
	if until > x.until && now() < x.until {
		x.until = until
		x.c.note("K %s %d", x.key, until)
	}
}

// stream hears of the binding: ends of trust, zero for its end. It is closed when it breaks.
func (x *bound) stream(wg *sync.WaitGroup) <-chan time.Duration {
	ctx, cancel := context.WithCancel(context.Background())
	x.left = cancel
	lines := make(chan time.Duration)
	wg.Go(func() {
		defer close(lines)
		asked := now()
		res, err := x.c.ask(ctx, http.MethodGet, x.url+"/keep", nil)
		if err != nil {
			return
		}
		defer res.Body.Close()
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			var a struct {
				TrustedMS int64 `json:"trusted_ms"`
				Ended     bool
			}
			if json.Unmarshal(in.Bytes(), &a) != nil {
				return
			}
			until := asked + time.Duration(a.TrustedMS)*time.Millisecond
			if a.Ended {
				until = 0
			} else if a.TrustedMS == 0 {
				return
			}
			select {
			case lines <- until:
			case <-ctx.Done():
				return
			}
		}
	})
	return lines
}

// end writes the end of the belief down.
func (x *bound) end(how string) {
	x.ended.Do(func() { x.c.note("E %s %d %s", x.key, now(), how) })
	if x.left != nil {
		x.left()
	}
}

// release ends the belief, and then tells the gate.
func (x *bound) release(how string) {
	x.end(how)
	ctx, cancel := context.WithTimeout(context.Background(), permit)
	defer cancel()
	if res, err := x.c.ask(ctx, http.MethodDelete, x.url, nil); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}
