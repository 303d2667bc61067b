package integration

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// A raced is one guarded resource under test.
type raced interface {
	// flood writes with number n through the named proxy in one of the wire's
	// ways, again and again, until a write fails or ctx is done.
	flood(ctx context.Context, c guard.Credential, n int64, proxy, way int)
	// ways is how many ways of writing there are.
	ways() int
	// first binds with the credential and makes the first write of number n, which
	// records, atomically, how many writes of every lower number have been applied.
	first(ctx context.Context, c guard.Credential, n int64, proxy int) error
	// late returns how many writes of numbers lower than n were applied after first
	// recorded them.
	late(ctx context.Context, n int64) (int, error)
	// written is how many writes have been applied in all.
	written(ctx context.Context) (int, error)
}

// rounds is how many takeovers a race makes.
func rounds() int {
	if os.Getenv("FENCEPROXY_LONG") != "" {
		return 250
	}
	return 30
}

// race makes takeovers at random moments while every holder so far floods, and
// returns how many late writes landed in all.
func race(t *testing.T, ctx context.Context, b election.Backend, id string, r raced, takeovers int) int {
	t.Helper()
	var (
		wg      sync.WaitGroup
		writers atomic.Int64
		numbers []int64
		token   election.Token
	)
	floodCtx, stop := context.WithCancel(ctx)
	defer wg.Wait()
	defer stop()
	for i := range takeovers {
		if !token.IsZero() {
			// The old holder does not know: its writers go on.
			if _, err := b.Resign(ctx, id, token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := b.Acquire(ctx, id, election.AcquireOptions{TTL: time.Minute})
		if err != nil || got.Status != election.Acquired {
			t.Fatalf("acquire: %+v, %v", got, err)
		}
		token = got.Token
		c := guard.Credential{Election: id, Token: token}
		if i > 0 && got.Number <= numbers[i-1] {
			t.Fatalf("number %d after %d", got.Number, numbers[i-1])
		}
		numbers = append(numbers, got.Number)
		if err := r.first(ctx, c, got.Number, rand.IntN(2)); err != nil {
			t.Fatalf("takeover %d: first write of the live holder: %v", i, err)
		}
		for way := range r.ways() {
			for proxy := range 2 {
				writers.Add(1)
				wg.Go(func() {
					defer writers.Add(-1)
					// Some of the old holder's writers connect again with the old token.
					for range 3 {
						r.flood(floodCtx, c, got.Number, proxy, way)
					}
				})
			}
		}
		pause := time.NewTimer(time.Duration(20+rand.IntN(60)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	stop()
	wg.Wait()
	total := 0
	for _, n := range numbers {
		late, err := r.late(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		total += late
	}
	all, err := r.written(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d takeovers, %d writes, %d late", takeovers, all, total)
	if all < takeovers*r.ways() {
		t.Errorf("only %d writes: the flood did not flood", all)
	}
	return total
}

// unsevered is a fence whose sever step is taken out.
type unsevered struct{ guard.Fence }

func (unsevered) Sever(context.Context, guard.Term) error { return nil }
