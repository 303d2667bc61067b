package redis

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/fault"
)

// A subscription from which nothing comes for quietFor is asked whether the server is still
// there, and must answer within pongWithin.
const (
	quietFor   = 30 * time.Second
	pongWithin = 5 * time.Second
)

// releasedChannel is where the releases of an election are published. In a cluster that
// reaches every node, by whichever its subscribers came.
func releasedChannel(id string) string { return "fenceproxy:{" + id + "}:released" }

// Hints implements election.Hinter, by a subscription that has a connection to itself.
func (b *Backend) Hints(ctx context.Context, id string, hint func()) error {
	if err := election.CheckID(id); err != nil {
		return err
	}
	const doing = "listening for releases of"
	s, ended, end, err := b.server.subscription(ctx)
	if err != nil {
		return fault.Closed(doing, id)
	}
	defer end()
	of, cancel := context.WithCancel(ctx)
	var ending sync.WaitGroup
	ending.Go(func() {
		select {
		case <-ended:
		case <-of.Done():
		}
		cancel() // first: the subscription cannot be closed while it dials
		_ = s.Close()
	})
	defer ending.Wait()
	defer cancel()
	err = hear(of, s, releasedChannel(id), hint)
	select {
	case <-ended:
		return fault.Closed(doing, id)
	default:
		return fault.Unavailable(ctx, doing, id, err)
	}
}

// hear subscribes, and calls hint for whatever comes: the answer to that, and messages.
func hear(ctx context.Context, s *goredis.PubSub, channel string, hint func()) error {
	if err := s.Subscribe(ctx, channel); err != nil {
		return err
	}
	wait, subscribed := pongWithin, false
	for {
		m, err := s.ReceiveTimeout(ctx, wait)
		var refused goredis.Error
		var silent net.Error
		switch {
		case err == nil:
			if _, pong := m.(*goredis.Pong); !pong {
				hint()
			}
			wait, subscribed = quietFor, true
		case subscribed && errors.As(err, &refused):
			wait = quietFor // it may not ping, and yet it was answered
		case wait == quietFor && errors.As(err, &silent) && silent.Timeout():
			if err := s.Ping(ctx); err != nil {
				return err
			}
			wait = pongWithin
		default:
			return err
		}
	}
}
