package load

import (
	"context"
	"fmt"
	"strings"
)

// PrepareRedis writes the keys of the scenarios, over a connection that may write them.
// RemoveRedis removes them.
func PrepareRedis(ctx context.Context, t *Target) error {
	return redisEach(ctx, t, func(key string) []string { return []string{"SET", key, strings.Repeat("x", redisValue)} },
		[]string{"SET", redisPrefix + "large", strings.Repeat("x", redisLarge)})
}

// RemoveRedis removes what PrepareRedis and the scenarios made.
func RemoveRedis(ctx context.Context, t *Target) error {
	return redisEach(ctx, t, func(key string) []string { return []string{"DEL", key} },
		[]string{"DEL", redisPrefix + "large"})
}

// redisEach sends a command for every key, and one more.
func redisEach(ctx context.Context, t *Target, of func(key string) []string, more []string) error {
	r, err := openRedis(ctx, t)
	if err != nil {
		return err
	}
	defer r.close()
	const flight = 1000
	for i := 0; i < redisKeys; i += flight {
		if err := ctx.Err(); err != nil {
			return err
		}
		var b []byte
		for k := i; k < i+flight; k++ {
			b = command(b, of(redisPrefix+fmt.Sprintf("%012d", k))...)
		}
		if err := r.ask(b, flight); err != nil {
			return fmt.Errorf("target %s: %w", t.Name, err)
		}
	}
	if err := r.ask(command(nil, more...), 1); err != nil {
		return fmt.Errorf("target %s: %w", t.Name, err)
	}
	return nil
}

// redisRequests opens a session of GET and SET.
func redisRequests(kind string) opener {
	return func(ctx context.Context, t *Target, _ int) (session, error) {
		r, err := openRedis(ctx, t)
		if err != nil {
			return nil, err
		}
		get := func() []string { return []string{"GET", ""} }
		set := func() []string { return []string{"SET", "", strings.Repeat("x", redisValue)} }
		switch kind {
		case "reads":
			r.randomKeys(get())
		case "writes":
			r.randomKeys(set())
		case "mixed":
			r.randomKeys(set())
			write := r.next
			r.randomKeys(get())
			r.next = fourToOne(r.next, write)
		case "pipeline":
			var all [][]string
			for i := range 16 {
				if i%5 == 4 {
					all = append(all, set())
				} else {
					all = append(all, get())
				}
			}
			r.randomKeys(all...)
		case "large":
			b := command(nil, "GET", redisPrefix+"large")
			r.next = func() ([]byte, int) { return b, 1 }
		}
		return r, nil
	}
}

// A redisBlocking waits, in one session, for what it pushes in another: a request is done
// when the element has been popped.
type redisBlocking struct {
	pusher, popper *redisSession
	push, pop      []byte
}

func openBlocking(ctx context.Context, t *Target, i int) (session, error) {
	pusher, err := openRedis(ctx, t)
	if err != nil {
		return nil, err
	}
	popper, err := openRedis(ctx, t)
	if err != nil {
		pusher.close()
		return nil, err
	}
	key := fmt.Sprintf("%slist:%d", redisPrefix, i)
	return &redisBlocking{pusher, popper, command(nil, "LPUSH", key, "x"), command(nil, "BLPOP", key, "30")}, nil
}

func (r *redisBlocking) do() error {
	if _, err := r.popper.stream.Write(r.pop); err != nil {
		return err
	}
	if err := r.pusher.ask(r.push, 1); err != nil {
		return err
	}
	_, err := r.popper.answers(1)
	return err
}

func (r *redisBlocking) interrupt() { r.pusher.interrupt(); r.popper.interrupt() }
func (r *redisBlocking) close()     { r.pusher.close(); r.popper.close() }

// A redisConnecting connects, says who it is, reads a key and leaves.
type redisConnecting struct {
	ctx    context.Context //nolint:containedctx // the life of the session, as its opener got it
	cancel context.CancelFunc
	target *Target
}

func openConnectingRedis(ctx context.Context, t *Target, _ int) (session, error) {
	s := &redisConnecting{target: t}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s, nil
}

func (s *redisConnecting) do() error {
	r, err := redisDial(s.ctx, s.target)
	if err != nil {
		return err
	}
	defer r.close()
	return r.ask(command(nil, "GET", redisPrefix+"000000000001"), 1)
}

func (s *redisConnecting) interrupt() { s.cancel() }
func (s *redisConnecting) close()     { s.cancel() }

func openIdleRedis(ctx context.Context, t *Target, _ int) (session, error) {
	r, err := openRedis(ctx, t)
	if err != nil {
		return nil, err // not a nil *redisSession, which were a session
	}
	return r, nil
}
