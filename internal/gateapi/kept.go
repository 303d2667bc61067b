package gateapi

import (
	"context"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
)

// A kept binding is one whose consumer is heard of by requests.
type kept struct {
	id      string // random; only the consumer has it
	g       *guard.Gate
	b       *guard.Binding
	grace   time.Duration
	changed chan struct{} // has room for one: somebody was heard, or listens no more

	mu        sync.Mutex
	told      time.Time // the latest end of trust that the consumer may have heard of
	heard     time.Time // when it was last heard of
	listeners int       // streams that are open
}

// tell returns how long the consumer may be told to trust the binding, and notes it; the
// zero time when the binding has ended.
func (k *kept) tell() time.Time {
	until := k.b.TrustedUntil()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heard = time.Now()
	if until.After(k.told) {
		k.told = until
	}
	k.wake()
	return until
}

// listen notes that a stream begins or ends.
func (k *kept) listen(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners += n
	k.heard = time.Now()
	k.wake()
}

// abandon says that the consumer is gone for good: the binding ends, so that the next one
// waits for the partition and is not refused, and it is free when what the consumer was told
// is over.
func (k *kept) abandon() {
	k.b.Abandon()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners, k.grace, k.heard = 0, 0, time.Time{}
	k.wake()
}

func (k *kept) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// over is how long it is until the consumer is taken for gone; ok is false while it listens.
//
// INVARIANT: nothing is released for a consumer that is gone before the last end of trust
// that it was told is over, with a margin for clocks that run at different speeds.
func (k *kept) over() (d time.Duration, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d = time.Until(k.heard.Add(k.grace))
	return max(d, time.Until(k.told)+k.g.Config().PermitFor/10), k.listeners == 0
}

// watch releases the binding when its consumer is gone, and returns when the partition is
// free or ctx has ended.
func (k *kept) watch(ctx context.Context) {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		d, alone := k.over()
		if alone && d <= 0 {
			k.b.Release()
		}
		if alone {
			t.Reset(max(d, time.Second))
		}
		select {
		case <-k.changed:
		case <-t.C:
		case <-k.b.Free():
			return
		case <-ctx.Done():
			return
		}
	}
}
