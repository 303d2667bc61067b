// Package trim gives memory back to the system when a burst is over. What thousands of logins
// leave behind, garbage and stacks that are wider than they need be, Go's runtime keeps until it
// has a reason to collect: in a process whose sessions are at rest that is minutes, and what it
// keeps then is sized by the burst.
//
// It promises to collect only after a while in which hardly anything was allocated, and only what
// is worth it. It does not bound how much memory the process takes: that is GOMEMLIMIT's to do.
package trim

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// every is how often it looks, and so how long a rest is.
	every = time.Second
	// little is how much may be allocated during a rest, in bytes: the proxy's own questions go
	// on in it. Or a part of the heap, where that is more.
	little, littlePart = 256 << 10, 64
	// much is how much must have been allocated since the last time to collect again. Or a part
	// of the heap, where that is more: the work of a collection is as the heap is.
	much, muchPart = 1 << 20, 4
)

// Run collects and gives back whenever it is worth it, until ctx is done. With GOGC=off it
// does nothing: somebody wants no collections.
func Run(ctx context.Context) {
	t := time.NewTicker(every)
	defer t.Stop()
	var s state
	samples := newSamples()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !s.due(read(samples)) {
			continue
		}
		// Twice: a stack shrinks by half each time, and what pools keep goes the second time.
		runtime.GC()
		debug.FreeOSMemory()
		s.collected(read(samples))
	}
}

// A reading is what the runtime says of its heap, in bytes.
type reading struct {
	allocated uint64 // since the process began
	live      uint64 // found by the last collection
	off       bool   // nobody wants collections
}

// A state is what was seen so far. The zero value has seen nothing, not even the process's
// start, which is a burst too.
type state struct {
	last, at uint64 // allocated at the last look, and at the last collection
}

// due reports whether to collect.
func (s *state) due(r reading) bool {
	rests := r.allocated-s.last <= max(little, r.live/littlePart)
	s.last = r.allocated
	return rests && !r.off && r.allocated-s.at >= max(much, r.live/muchPart)
}

// collected notes that it was done.
func (s *state) collected(r reading) { s.last, s.at = r.allocated, r.allocated }

func newSamples() []metrics.Sample {
	return []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
}

func read(samples []metrics.Sample) reading {
	metrics.Read(samples)
	return reading{number(samples[0]), number(samples[1]), number(samples[2]) == math.MaxUint64}
}

// number is zero for what this runtime does not tell.
func number(s metrics.Sample) uint64 {
	if s.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s.Value.Uint64()
}
