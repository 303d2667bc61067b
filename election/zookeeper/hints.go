package zookeeper

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/fenceproxy/fenceproxy/election"
)

// Hints implements election.Hinter, by a watch in the session that there is. What is watched
// is the lease's node, which a renewal leaves alone.
func (b *Backend) Hints(ctx context.Context, id string, hint func()) error {
	if err := election.CheckID(id); err != nil {
		return err
	}
	path := b.path(id) + "/lease"
	return b.each(ctx, "listening for releases of", id, func(s *session) error {
		for first := true; ; first = false {
			w, err := s.watch(ctx, path)
			if err != nil {
				return err
			}
			if first || !w.exists {
				hint()
			}
			select {
			case <-w.fired:
			case <-s.quit:
				return errOver
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// A watch waits for the next change of a node.
type watch struct {
	exists bool            // then
	fired  <-chan zk.Event // one event and then closed, so that all who wait wake
}

// watch returns the watch of a node that is still waiting, or sets one. The library cannot
// take a watch back: one that nobody waits for any more is kept for whoever comes next, so
// that their number does not rise.
func (s *session) watch(ctx context.Context, path string) (watch, error) {
	s.mu.Lock()
	w, ok := s.watches[path]
	s.mu.Unlock()
	if ok {
		select {
		case <-w.fired:
		default:
			return w, nil
		}
	}
	w, err := do(ctx, s, func(c *zk.Conn) (w watch, err error) {
		w.exists, _, w.fired, err = c.ExistsW(path)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.watches[path] = w
		}
		return w, err
	})
	return w, err
}
