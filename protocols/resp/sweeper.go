package resp

import (
	"context"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols"
)

// A sweeper ends the sessions of clients and servers that a network has cut off. One
// looks at all sessions of a listener now and then, so that a session has no timer.
type sweeper struct {
	mu   sync.Mutex
	live map[*session]*reach
}

// A reach is what is known of whether a session's peers are there, and of its moves.
type reach struct {
	client, upstream protocols.OutOfReach
	moves            uint64
}

const sweepEvery = time.Second

func (w *sweeper) enter(x *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live == nil {
		w.live = make(map[*session]*reach)
	}
	w.live[x] = new(reach)
}

func (w *sweeper) leave(x *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, x)
}

// run looks at the sessions every so often, until ctx is done.
func (w *sweeper) run(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			w.mu.Lock()
			for x, r := range w.live {
				x.sweep(now, r)
			}
			w.mu.Unlock()
		}
	}
}

// sweep ends the session if a side is out of reach. It closes sockets, never TLS, which
// would wait to say goodbye.
func (x *session) sweep(now time.Time, r *reach) {
	c := &x.server.c
	if r.client.Look(x.client, c.KeepAlive, now) {
		c.Log.Info("the client is out of reach", "client", x.client.RemoteAddr().String())
		_ = socketOf(x.client).Close()
	}
	if r.upstream.Look(x.upstream, c.KeepAlive, now) {
		c.Log.Warn("the server is out of reach", "upstream", x.upstream.RemoteAddr().String())
		_ = socketOf(x.upstream).Close()
	}
}
