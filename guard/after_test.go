package guard_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
)

// Whoever asked is told of a permit's end, once; who did not wait for it is not.
func TestAfterFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		var called [5]atomic.Int32
		var stops [5]func() bool
		var permits [5]*guard.Permit
		for i := range called {
			p := admit(t, g, tok)
			permits[i] = p
			stops[i] = p.AfterFunc(func() {
				called[i].Add(1)
				refused(t, p.Err(), guard.LeaseVacant)
				p.Release() // it may
			})
		}
		for _, i := range []int{0, 2, 4} { // one at either end, one between
			if !stops[i]() {
				t.Errorf("%d was called before the end", i)
			}
			if stops[i]() {
				t.Errorf("%d was kept from being called twice", i)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		b.set(func() { b.expiry = time.Now() })
		<-permits[0].Done()
		synctest.Wait()
		for i, want := range []int32{0, 1, 0, 1, 0} {
			if n := called[i].Load(); n != want {
				t.Errorf("%d was called %d times, want %d", i, n, want)
			}
			if stops[i]() {
				t.Errorf("%d was kept from being called after the end", i)
			}
			permits[i].Release()
		}

		// After the end there is nothing to wait for.
		late := make(chan struct{})
		stop := permits[0].AfterFunc(func() { close(late) })
		<-late
		if stop() {
			t.Error("kept from being called after it was")
		}
	})
}

// When stop has returned, the function does not run any more.
func TestAfterFuncStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		p := admit(t, g, tok)
		defer p.Release()
		running, goOn := make(chan struct{}), make(chan struct{})
		stop := p.AfterFunc(func() { close(running); <-goOn })
		b.set(func() { b.expiry = time.Now() })
		<-running
		var returned atomic.Int32
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if stop() {
					t.Error("kept from being called while it ran")
				}
				returned.Add(1)
			})
		}
		synctest.Wait()
		if n := returned.Load(); n != 0 {
			t.Errorf("stop returned %d times while the function ran", n)
		}
		close(goOn)
		wg.Wait()
	})
}

// Who finds out that a permit has ended may hold what the function waits for, and the
// keeper may be waiting for the backend.
func TestAfterFuncOfAPermitThatIsFoundEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b, _, tok := setUp(t, guard.Config{})
		p := admit(t, g, tok)
		defer p.Release()
		stuck := make(chan struct{})
		b.set(func() { b.stuck = stuck })
		time.Sleep(guard.DefaultPermitFor)
		var mu sync.Mutex
		told := make(chan struct{})
		stop := p.AfterFunc(func() {
			mu.Lock()
			defer mu.Unlock()
			close(told)
		})
		mu.Lock()
		if p.Live() {
			t.Error("live at its end")
		}
		mu.Unlock()
		<-told
		stop()
		close(stuck)
	})
}

// A session that must hold its election is told when it holds it no more.
func TestAfterFuncOfAnExclusive(t *testing.T) {
	withListeners(t, false, func(t *testing.T, w *listeners) {
		tok := w.lead("me")
		p := w.must(0, tok, "a")
		told := make(chan error, 1)
		stop := p.AfterFunc(func() { told <- p.Err() })
		w.x[0].Close()
		if err := <-told; err == nil || p.Live() {
			t.Errorf("told, and live: %v", err)
		}
		if stop() {
			t.Error("kept from being called after it was")
		}
		p.Release()
	})
}
