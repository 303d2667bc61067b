package guard_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
)

// Two proxies of one leader are each paused before every one of their steps, a third
// proxy's leader takes over and writes, the fence may be lost before or after, and the
// paused ones go on in turn. After each step every session there ever was tries to bind.
func TestEveryPause(t *testing.T) {
	runs, bound := 0, 0
	for flags := range 16 {
		for k1 := range steps {
			for k2 := range steps {
				for j := 1; j < steps; j++ {
					if j%2 == 0 && flags&4 == 0 {
						continue // of less interest where the fence is not lost
					}
					for first := range 2 {
						synctest.Test(t, func(t *testing.T) {
							runs++
							bound += everyPause(t, pausing{
								k: [2]int{k1, k2}, j: j, first: first,
								loseEarly: flags&1 != 0, loseBefore: flags&2 != 0, loseAfter: flags&4 != 0, closes: flags&8 != 0,
							})
						})
						if t.Failed() {
							return
						}
					}
				}
			}
		}
	}
	if bound != runs {
		t.Errorf("the third leader got in %d times of %d", bound, runs)
	}
}

type pausing struct {
	k         [2]int // steps of the two proxies before the takeover
	j         int    // steps of the one that goes on first, before the other goes on
	first     int
	loseEarly bool // the fence is lost between the starts of the two
	// The fence is lost before the takeover, or after it.
	loseBefore, loseAfter bool
	closes                bool // the new leader's connection closes
}

// everyPause reports 1 if the leader that takes over was let in.
func everyPause(t *testing.T, p pausing) int {
	w := newWorld(model{losesFence: true}, func(format string, args ...any) {
		t.Helper()
		t.Errorf("%+v: "+format, append([]any{p}, args...)...)
	})
	defer w.end()
	lose := func(is bool) {
		if is {
			w.rec = guard.Record{}
		}
	}
	run := func(g, n int) {
		for range n {
			synctest.Wait()
			w.stepOf(g)
			synctest.Wait()
			w.bindAll()
		}
	}
	w.acquire(0, 0)
	w.admit(0, 0)
	run(0, p.k[0])
	lose(p.loseEarly)
	w.admit(1, 0)
	run(1, p.k[1])
	lose(p.loseBefore)
	w.holder = -1
	time.Sleep(time.Millisecond)
	w.acquire(1, 0)
	w.admit(2, 1)
	for try := 0; try < 100 && w.highest != w.number; try++ { // each connection is a step to end
		run(2, 1)
	}
	let := 0
	if w.highest == w.number {
		let = 1
	}
	if p.closes {
		for _, c := range w.conns {
			c.alive = false
		}
	}
	lose(p.loseAfter)
	run(p.first, p.j)
	run(1-p.first, 2*steps)
	run(p.first, 2*steps)
	return let
}

// steps are those of a whole takeover, and one for good measure.
const steps = 8

// bindAll lets every session there ever was try to bind.
func (w *world) bindAll() {
	w.mu.Lock()
	given := append([]*guard.Permit(nil), w.given...)
	w.mu.Unlock()
	for _, p := range given {
		w.bind(p)
	}
}
