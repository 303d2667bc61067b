package redis

import (
	"context"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
)

// shared is a client of any kind, the caller's or one of a group of servers. Which
// connection a call is on cannot be told, so that each runs in a goroutine of its own
// that is left behind when its context ends.
type shared struct {
	client goredis.UniversalClient
	own    bool // the client was made here

	// mu guards closed, and that no call begins after it.
	mu     sync.RWMutex
	closed bool
	calls  sync.WaitGroup
	ended  chan struct{} // closed by close
}

func newSharedClient(c goredis.UniversalClient, own bool) *shared {
	return &shared{client: c, own: own, ended: make(chan struct{})}
}

// run makes a call and waits for it, but no longer than the context lives: go-redis looks at
// a context's deadline alone, and only if its client is set to. One that is left
// behind ends with its socket's time-out; close waits for it.
func (s *shared) run(ctx context.Context, c call) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return nil, election.ErrClosed
	}
	done := make(chan *goredis.Cmd, 1)
	s.calls.Go(func() { done <- c.on(ctx, s.client) })
	s.mu.RUnlock()
	select {
	case cmd := <-done:
		return cmd.Slice()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// subscription implements runner.
func (s *shared) subscription(ctx context.Context) (*goredis.PubSub, <-chan struct{}, func(), error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, nil, nil, election.ErrClosed
	}
	s.calls.Add(1)
	return s.client.Subscribe(ctx), s.ended, s.calls.Done, nil
}

func (s *shared) close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	if first {
		close(s.ended)
	}
	s.mu.Unlock()
	var err error
	if first && s.own {
		err = s.client.Close()
	}
	s.calls.Wait()
	return err
}
