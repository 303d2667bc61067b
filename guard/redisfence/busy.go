package redisfence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pollEvery is the pause between two looks at a node that still has connections to
	// end, or that is busy.
	pollEvery = 5 * time.Millisecond
	// nodeTimeout is how long a node that does not answer is tried again.
	nodeTimeout = 3 * time.Second
	// downTimeout is how long one that sentinels hold to be down is tried.
	downTimeout = time.Second
	// busyPatience is how long a node may be busy with a script before it is asked to
	// end it, and to end the next one.
	busyPatience = time.Second
)

// patiently calls do again while the node is busy, and for a while where it does not
// answer.
func patiently(ctx context.Context, c *redis.Client, do func() error) error {
	start := time.Now()
	for {
		err := whileBusy(ctx, c, do)
		if err == nil || isReply(err) || ctx.Err() != nil || time.Since(start) > nodeTimeout {
			return err
		}
		if pause(ctx) != nil {
			return err
		}
	}
}

// isReply reports whether an error is what a server answered.
func isReply(err error) bool {
	var said redis.Error
	return errors.As(err, &said)
}

// whileBusy calls do again while the server answers that a script runs or that it is
// loading, until ctx ends.
func whileBusy(ctx context.Context, c *redis.Client, do func() error) error {
	since := time.Now()
	for {
		err := do()
		busy := redis.HasErrorPrefix(err, "BUSY")
		if !busy && !redis.HasErrorPrefix(err, "LOADING") {
			return err
		}
		if busy && time.Since(since) > busyPatience {
			endScript(ctx, c)
			since = time.Now()
		}
		if pause(ctx) != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// endScript asks the server to end the script or function that runs: a reader's endless
// one must not hold up a takeover. The server ends none that has written, and so the
// takeover waits for that; likewise where the control user may not ask.
func endScript(ctx context.Context, c *redis.Client) {
	o := *c.Options()
	o.DB, o.PoolSize, o.MinIdleConns = 0, 1, 0 // a busy server refuses SELECT
	k := redis.NewClient(&o)
	defer func() { _ = k.Close() }()
	_ = k.ScriptKill(ctx).Err() // what came of it the next look shows
	_ = k.FunctionKill(ctx).Err()
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
