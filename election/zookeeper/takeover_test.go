package zookeeper

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A term is a time in which a candidate thought that it led.
type term struct {
	number    int64
	from, end time.Time
}

// Safety: three candidates take over from each other while servers are killed and
// stopped and candidates cut off. No two ever think that they lead at the same time, and
// numbers rise in the order of the terms.
func TestTakeoversUnderFaults(t *testing.T) {
	z := testenv.ZooKeeper(t, servers.ZooKeeperOptions{})
	const session = time.Second
	takeovers := 10
	if os.Getenv("FENCEPROXY_LONG") != "" {
		takeovers = 40
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	var (
		mu    sync.Mutex
		terms []term
		wg    sync.WaitGroup
	)
	enough := func() bool { mu.Lock(); defer mu.Unlock(); return len(terms) >= takeovers }
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for range 3 {
		var p tap
		b := opened(t, z.Addrs(), "/takeovers", Options{Dial: p.dial, SessionTimeout: session, AnswerTimeout: 200 * time.Millisecond})
		wg.Go(func() {
			for ctx.Err() == nil && !enough() {
				// Some leases end before the session that they are in would, some after.
				ttl := []time.Duration{session * 2 / 5, session * 5 / 2}[rand.IntN(2)]
				call, end := context.WithTimeout(ctx, time.Second)
				asked := time.Now()
				g, err := b.Acquire(call, "e", election.AcquireOptions{TTL: ttl})
				end()
				if err != nil || g.Status != election.Acquired {
					pause(time.Duration(rand.IntN(20)) * time.Millisecond)
					continue
				}
				me := term{number: g.Number, from: time.Now(), end: asked.Add(ttl)}
				lost := false
				for range rand.IntN(4) {
					pause(ttl / 5)
					call, end := context.WithTimeout(ctx, ttl/4)
					asked := time.Now()
					r, err := b.Renew(call, "e", g.Token)
					end()
					if err != nil {
						continue // trusted until the end of the last lease
					}
					if r.Status == election.Lost {
						lost = true
						break
					}
					if r.Number != g.Number {
						t.Errorf("renewed with %d, acquired with %d", r.Number, g.Number)
					}
					me.end = asked.Add(ttl)
				}
				switch way := rand.IntN(4); {
				case lost:
					me.end = minTime(me.end, time.Now())
				case way == 0: // cut off
					p.cut()
					pause(time.Duration(rand.IntN(1500)) * time.Millisecond)
					p.down.Store(false)
				case way == 1: // it does nothing more
				default:
					me.end = minTime(me.end, time.Now())
					call, end := context.WithTimeout(ctx, time.Second)
					_, _ = b.Resign(call, "e", g.Token, election.ResignOptions{})
					end()
				}
				mu.Lock()
				if me.from.Before(me.end) { // a reply that came too late makes no term
					terms = append(terms, me)
				}
				mu.Unlock()
			}
		})
	}
	for ctx.Err() == nil && !enough() { // one server at a time
		p := z.Nodes[rand.IntN(len(z.Nodes))]
		if rand.IntN(2) == 0 {
			p.Kill()
		} else {
			_ = p.Signal(syscall.SIGSTOP)
			pause(time.Duration(rand.IntN(2000)) * time.Millisecond)
			_ = p.Signal(syscall.SIGCONT)
		}
		if err := z.Restart(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
			cancel()
		}
	}
	wg.Wait()
	if len(terms) < takeovers {
		t.Fatalf("%d takeovers", len(terms))
	}
	for i, a := range terms {
		for _, b := range terms[:i] {
			if a.number == b.number || a.number < b.number != a.from.Before(b.from) || a.from.Before(b.end) && b.from.Before(a.end) {
				t.Errorf("%d from %v to %v, %d from %v to %v", a.number, a.from, a.end, b.number, b.from, b.end)
			}
		}
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
