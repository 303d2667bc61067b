package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// releasedChannel is the channel that all releases in a database are notified on; the
// payload is the schema of the table, a point, and the election.
const releasedChannel = "fenceproxy_released"

// A connection on which nothing comes for quietFor is asked whether the server is still
// there. It has patience to answer that, and to begin.
const (
	quietFor = 30 * time.Second
	patience = 10 * time.Second
)

// A hearing is one connection that listens, for all of a backend that do. It lives as long
// as there is one.
type hearing struct {
	hints map[*string]func() // by the address of the election's id; guarded by the backend
	began bool               // it listens; guarded by the backend
	stop  context.CancelFunc
	done  chan struct{} // closed when it has ended, and its connection is closed
	err   error         // why; set before
}

// Hints implements election.Hinter. All that listen share one connection, which is no pool's.
// Behind a pooler a session is nobody's own, so that nothing can be listened for: the
// error is election.ErrNoHints then, as with a driver that is not pgx.
func (b *Backend) Hints(ctx context.Context, id string, hint func()) error {
	if err := election.CheckID(id); err != nil {
		return err
	}
	const doing = "listening for releases of"
	h := b.join(&id, hint)
	if h == nil {
		return fault.Closed(doing, id)
	}
	defer b.leave(h, &id)
	select {
	case <-ctx.Done():
		return fault.Unavailable(ctx, doing, id, nil)
	case <-h.done:
	}
	switch {
	case b.closed.Load():
		return fault.Closed(doing, id)
	case errors.Is(h.err, election.ErrNoHints):
		return fmt.Errorf("%s %q: %w", doing, id, h.err)
	}
	return fault.Unavailable(ctx, doing, id, h.err)
}

// join begins to listen; nil where the backend is closed.
func (b *Backend) join(id *string, hint func()) *hearing {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Load() {
		return nil
	}
	h := b.hearing
	if h == nil {
		h = &hearing{hints: make(map[*string]func()), done: make(chan struct{})}
		var ctx context.Context
		ctx, h.stop = context.WithCancel(context.Background())
		b.hearing = h
		go func() {
			defer close(h.done)
			h.err = b.hear(ctx, h)
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.hearing == h { // whoever comes later begins another
				b.hearing = nil
			}
		}()
	}
	h.hints[id] = hint
	if h.began {
		hint()
	}
	return h
}

// leave ends one's listening; the last one waits for the end of the connection.
func (b *Backend) leave(h *hearing, id *string) {
	b.mu.Lock()
	delete(h.hints, id)
	last := len(h.hints) == 0
	if last && b.hearing == h {
		b.hearing = nil
	}
	b.mu.Unlock()
	if last {
		h.stop()
		<-h.done
	}
}

// endHearing ends the listening of all, and waits for it.
func (b *Backend) endHearing() {
	b.mu.Lock()
	h := b.hearing
	b.mu.Unlock()
	if h != nil {
		h.stop()
		<-h.done
	}
}

// hear listens until ctx ends or the connection does.
func (b *Backend) hear(ctx context.Context, h *hearing) error {
	begin, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := b.db.dedicated(begin)
	if err != nil {
		return err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(bye)
	}()
	if err := listenOn(begin, c); err != nil {
		return err
	}
	b.mu.Lock()
	h.began = true
	b.mu.Unlock()
	b.hinted(h, func(string) bool { return true })
	for {
		quiet, cancel := context.WithTimeout(ctx, quietFor)
		n, err := c.WaitForNotification(quiet)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			// None where the caller's configuration takes notifications itself.
			b.hinted(h, func(id string) bool { return n == nil || n.Payload == b.queries.released(id) })
		case pgconn.Timeout(err) && !c.IsClosed():
			if err := ask(ctx, c); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// listenOn listens in a session that serves the connection alone.
func listenOn(ctx context.Context, c *pgx.Conn) error {
	own, err := ownSession(ctx, c)
	switch {
	case err != nil:
		return err
	case !own:
		return fmt.Errorf("%w: a pooler gives sessions to many", election.ErrNoHints)
	}
	_, err = c.Exec(ctx, "LISTEN "+releasedChannel, pgx.QueryExecModeSimpleProtocol)
	return err
}

// ask finds out whether the server is still there. What is notified meanwhile is kept.
func ask(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.Ping(ctx)
}

// hinted tells all that listen for one of the elections.
func (b *Backend) hinted(h *hearing, of func(id string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, hint := range h.hints {
		if of(*id) {
			hint()
		}
	}
}
