package resp

import (
	"sync"
	"time"
)

// logEvery is how often something that happens to many clients alike is logged.
const logEvery = time.Second

// often keeps what happens to many clients alike from filling the log: the first time is
// told, then at most once every logEvery, with how many there were since.
type often struct {
	mu    sync.Mutex
	told  time.Time
	times int // that were not told
	since bool
}

// happened reports how often it happened since it was last told, or zero for: do not tell.
func (o *often) happened() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.times++
	o.since = true
	if now := time.Now(); o.told.IsZero() || now.Sub(o.told) >= logEvery {
		n := o.times
		o.told, o.times = now, 0
		return n
	}
	return 0
}

// over reports whether it has happened since it was last over, and how often that was not
// told.
func (o *often) over() (untold int, happened bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	untold, happened = o.times, o.since
	o.times, o.since, o.told = 0, false, time.Time{}
	return untold, happened
}
