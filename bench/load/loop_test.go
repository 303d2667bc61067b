package load

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A fake session takes as long as took says for the request of a number.
type fake struct {
	n    int
	took func(n int) (time.Duration, error)
	done atomic.Int64
}

func (f *fake) do() error {
	d, err := f.took(f.n)
	f.n++
	if err != nil {
		return err
	}
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		<-timer.C
	}
	f.done.Add(1)
	return nil
}

func (f *fake) interrupt() {}
func (f *fake) close()     {}

// One stall of a fifth of the run is charged to every request that was due meanwhile. Were
// latencies to count from when a request was sent, one in two hundred would be slow.
func TestOpenLoopCountsFromWhenDue(t *testing.T) {
	const stall = 100 * time.Millisecond
	f := &fake{took: func(n int) (time.Duration, error) {
		if n == 50 {
			return stall, nil
		}
		return 0, nil
	}}
	o, err := openLoop(testenv.Context(t), []session{f}, 400*time.Millisecond, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if o.operations+float64(o.unsent) != 400 {
		t.Errorf("%v requests and %d unsent at 1000 a second in 400 ms", o.operations, o.unsent)
	}
	// Of 400, 100 waited, from nothing to the whole stall: three quarters of these more than
	// a quarter of it.
	if p := o.latencies.At(82); p < stall/4 {
		t.Errorf("82 of 100 took %v at most: the wait for the stall is not counted", p)
	}
	if p := o.latencies.At(100); p < stall*9/10 {
		t.Errorf("the longest took %v", p)
	}
}

// What cannot be sent at all is counted as it waited, and not as done.
func TestOpenLoopOverrun(t *testing.T) {
	f := &fake{took: func(int) (time.Duration, error) { return 20 * time.Millisecond, nil }}
	o, err := openLoop(testenv.Context(t), []session{f}, 100*time.Millisecond, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if o.unsent < 80 || o.operations != float64(f.done.Load()) || o.latencies.Count() != 100 {
		t.Errorf("%v done of %d, %d unsent, %d latencies", o.operations, f.done.Load(), o.unsent, o.latencies.Count())
	}
	if p := o.latencies.At(50); p < 80*time.Millisecond {
		t.Errorf("the median is %v, though most were never sent", p)
	}
}

func TestOpenLoopRate(t *testing.T) {
	all := make([]session, 4)
	for i := range all {
		all[i] = &fake{took: func(int) (time.Duration, error) { return 0, nil }}
	}
	o, err := openLoop(testenv.Context(t), all, 200*time.Millisecond, 2000)
	if err != nil || math.Abs(o.operations+float64(o.unsent)-400) > 4 {
		t.Errorf("%v operations, %v", o.operations, err)
	}
	if _, err := openLoop(testenv.Context(t), all, time.Second, math.Inf(1)); err == nil {
		t.Error("an endless rate was made")
	}
}

func TestClosedLoop(t *testing.T) {
	a := &fake{took: func(int) (time.Duration, error) { return time.Millisecond, nil }}
	b := &fake{took: func(int) (time.Duration, error) { return 2 * time.Millisecond, nil }}
	o, err := closedLoop(testenv.Context(t), []session{a, b}, 50*time.Millisecond)
	if err != nil || o.seconds < 0.05 || o.operations != float64(a.done.Load()+b.done.Load()) || o.operations < 2 {
		t.Errorf("%+v, %v", o, err)
	}
	if o.latencies.At(0) < time.Millisecond*99/100 {
		t.Errorf("the shortest took %v", o.latencies.At(0))
	}
	broken := errors.New("broken")
	c := &fake{took: func(n int) (time.Duration, error) {
		if n == 3 {
			return 0, broken
		}
		return 0, nil
	}}
	synctest.Test(t, func(t *testing.T) { // in which no load of the machine makes it late
		if _, err := closedLoop(t.Context(), []session{a, c}, 5*time.Millisecond); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	})
}

// The rate of an open loop follows from what a target does in its warm-up, however short that
// is: there is one request at least.
func TestWarmUpIsLongEnough(t *testing.T) {
	w := &ownWork{kind{each: 1, open: func(context.Context, *Target, int) (session, error) {
		return &fake{took: func(int) (time.Duration, error) { return time.Millisecond, nil }}, nil
	}}}
	sp := &Spec{Clients: 1, Open: true}
	if err := w.prepare(testenv.Context(t), sp, []*Target{{Name: "slow"}}, 1); err != nil || sp.Rate <= 0 {
		t.Errorf("a rate of %v, %v", sp.Rate, err)
	}
}

// Of sessions that cannot all be opened none is left.
func TestOpenSessions(t *testing.T) {
	refused := errors.New("refused")
	var open atomic.Int64
	_, err := openSessions(testenv.Context(t), 20, func(_ context.Context, i int) (session, error) {
		if i == 13 {
			return nil, refused
		}
		open.Add(1)
		return &counted{open: &open}, nil
	})
	if !errors.Is(err, refused) || open.Load() != 0 {
		t.Errorf("%v, %d left open", err, open.Load())
	}
}

type counted struct {
	fake
	open *atomic.Int64
}

func (c *counted) close() { c.open.Add(-1) }
