package election

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A process that was paused wakes after its trust and before any timer: its context,
// asked, says so.
func TestContextLooksAtTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeadership(t.Context(), Term{Number: 1, TrustedUntil: time.Now().Add(time.Second)})
		ctx := l.context() // nothing watches it
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		time.Sleep(time.Second - 1)
		if err := ctx.Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1)
		if child.Err() != nil {
			t.Error("a timer fired")
		}
		if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), ErrTrustEnded) {
			t.Errorf("%v, because of %v", ctx.Err(), context.Cause(ctx))
		}
		if child.Err() == nil {
			t.Error("the derived context goes on")
		}
		if l.extend(time.Now().Add(time.Hour)) {
			t.Error("what has ended was extended")
		}
		if _, ok := l.enter("late"); ok {
			t.Error("a callback entered after the end")
		}
	})
}

// Renewed after the trust has ended, though nobody has noticed the end yet: it stays so.
func TestTrustThatEndedIsNotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeadership(t.Context(), Term{Number: 1, TrustedUntil: time.Now().Add(time.Second)})
		if !l.extend(time.Now().Add(2 * time.Second)) {
			t.Fatal("not extended")
		}
		time.Sleep(2 * time.Second)
		if l.extend(time.Now().Add(time.Second)) || !errors.Is(l.lost(), ErrTrustEnded) {
			t.Errorf("extended; lost: %v", l.lost())
		}
	})
}

// Waits stay in their bounds, and are not all the same.
func TestWaits(t *testing.T) {
	e := &Elector{c: ElectorConfig{Retry: time.Second}}
	for _, c := range []struct {
		name     string
		wait     func() time.Duration
		min, max time.Duration
	}{
		{"busy, long", func() time.Duration { return e.busyPause(time.Hour) }, 800 * time.Millisecond, time.Second},
		{"busy, short", func() time.Duration { return e.busyPause(500 * time.Millisecond) }, 500 * time.Millisecond, 625 * time.Millisecond},
		{"busy, almost a wait", func() time.Duration { return e.busyPause(950 * time.Millisecond) }, 950 * time.Millisecond, time.Second},
		{"busy, no time left", func() time.Duration { return e.busyPause(0) }, 50 * time.Millisecond, 175 * time.Millisecond},
		{"first failure", func() time.Duration { return backOff(1, time.Second) }, 62 * time.Millisecond, 125 * time.Millisecond},
		{"second failure", func() time.Duration { return backOff(2, time.Second) }, 125 * time.Millisecond, 250 * time.Millisecond},
		{"fourth failure", func() time.Duration { return backOff(4, time.Second) }, 500 * time.Millisecond, time.Second},
		{"thousandth failure", func() time.Duration { return backOff(1000, time.Second) }, 500 * time.Millisecond, time.Second},
	} {
		seen := map[time.Duration]bool{}
		for range 1000 {
			d := c.wait()
			if d < c.min || d > c.max {
				t.Fatalf("%s: %v, must be %v to %v", c.name, d, c.min, c.max)
			}
			seen[d] = true
		}
		if len(seen) < 100 {
			t.Errorf("%s: only %d different waits", c.name, len(seen))
		}
	}
}
