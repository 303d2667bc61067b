package trim

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"
)

func TestDue(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		name string
		s    state
		r    reading
		want bool
	}{
		{"the start is over", state{last: 5 * mb}, reading{allocated: 5 * mb, live: 3 * mb}, true},
		{"a burst is under way", state{}, reading{allocated: 5 * mb, live: 3 * mb}, false},
		{"a burst is over", state{last: 105 * mb, at: 5 * mb}, reading{allocated: 105*mb + little, live: 40 * mb}, true},
		{"it goes on, slower", state{last: 105 * mb, at: 5 * mb}, reading{allocated: 106 * mb, live: 40 * mb}, false},
		{"that is little for a large heap", state{last: 105 * mb, at: 5 * mb}, reading{allocated: 106 * mb, live: 64 * mb}, true},
		{"little since the last time", state{last: 6*mb - 1, at: 5 * mb}, reading{allocated: 6*mb - 1, live: mb}, false},
		{"enough since the last time", state{last: 6 * mb, at: 5 * mb}, reading{allocated: 6 * mb, live: mb}, true},
		{"little for a large heap since the last time", state{last: 14 * mb, at: 5 * mb}, reading{allocated: 14 * mb, live: 40 * mb}, false},
		{"no collections are wanted", state{last: 105 * mb}, reading{allocated: 105 * mb, live: 40 * mb, off: true}, false},
	} {
		if got := c.s.due(c.r); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if c.s.last != c.r.allocated {
			t.Errorf("%s: the look is not noted", c.name)
		}
	}
	s := state{last: 5 * mb}
	if !s.due(reading{allocated: 5 * mb}) {
		t.Error("not due")
	}
	s.collected(reading{allocated: 6 * mb})
	if s.due(reading{allocated: 6 * mb}) {
		t.Error("due again, and nothing was allocated")
	}
}

func TestRead(t *testing.T) {
	old := debug.SetGCPercent(-1)
	r := read(newSamples())
	debug.SetGCPercent(old)
	if r.allocated == 0 || !r.off {
		t.Errorf("%+v", r)
	}
	if r = read(newSamples()); r.off != (old < 0) {
		t.Errorf("%+v, and GOGC is %d", r, old)
	}
	if n := number(metrics.Sample{}); n != 0 {
		t.Errorf("of nothing: %d", n)
	}
}

var kept [][]byte

// What a burst left behind is the system's again soon after it.
func TestRun(t *testing.T) {
	old := debug.SetGCPercent(math.MaxInt32) // by itself the runtime has no reason
	defer debug.SetGCPercent(old)
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { Run(ctx) })
	const most = 64 << 20
	for range 64 {
		kept = append(kept, make([]byte, most/64))
		for i := range kept[len(kept)-1] {
			kept[len(kept)-1][i] = 1
		}
	}
	held := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64() + s[1].Value.Uint64()
	}
	if n := held(); n < most {
		t.Fatalf("%d bytes are held, and %d are in use", n, most)
	}
	kept = nil
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for held() > most/2 {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%d bytes are held still", held())
		}
	}
}
