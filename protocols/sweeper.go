package protocols

import (
	"context"
	"iter"
	"sync"
	"time"
)

// A Sweeper looks at all sessions of a listener now and then, so that a message costs
// nothing and no session has a timer. S is a session, V what is known of it. The zero
// value is ready; its methods may be called concurrently.
type Sweeper[S comparable, V any] struct {
	mu   sync.Mutex
	live map[S]V
}

// Enter adds a session.
func (w *Sweeper[S, V]) Enter(s S, v V) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live == nil {
		w.live = make(map[S]V)
	}
	w.live[s] = v
}

// Leave takes a session out. Once it has returned, nobody looks at the session.
func (w *Sweeper[S, V]) Leave(s S) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, s)
}

// All yields every session. None can enter or leave meanwhile.
func (w *Sweeper[S, V]) All() iter.Seq2[S, V] {
	return func(yield func(S, V) bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for s, v := range w.live {
			if !yield(s, v) {
				return
			}
		}
	}
}

// Run calls look for each session every so often, until ctx is done.
func (w *Sweeper[S, V]) Run(ctx context.Context, every time.Duration, look func(now time.Time, s S, v V)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			for s, v := range w.All() {
				look(now, s, v)
			}
		}
	}
}
