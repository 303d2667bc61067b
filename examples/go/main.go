// Command go campaigns for an election, keeps it, and writes to Postgres through a
// fenceproxy with the token. docs/library.md explains it.
//
//	ELECTIONS=redis://127.0.0.1:6379 DATABASE=postgres://app@127.0.0.1:6432/postgres go run ./examples/go
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
)

const (
	name = "orders"
	ttl  = 10 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	redis.SetLogger(silent{})
	b, err := open.Backend(ctx, os.Getenv("ELECTIONS"), open.Options{})
	if err != nil {
		slog.Error("opening the election backend", "err", err)
		return
	}
	for ctx.Err() == nil {
		if err := campaign(ctx, b); err != nil && ctx.Err() == nil {
			slog.Warn("not leading", "err", err)
		}
		pause(ctx, ttl/5)
	}
	if err := b.Close(); err != nil {
		slog.Warn("closing", "err", err)
	}
}

// campaign asks for the leadership once, and works while it has it.
func campaign(ctx context.Context, b election.Backend) error {
	asked := time.Now()
	g, err := b.Acquire(ctx, name, election.AcquireOptions{TTL: ttl})
	if err != nil || g.Status != election.Acquired {
		return err // unknown, or another leads
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		cancel(renew(ctx, b, g.Token, asked.Add(ttl)))
	}()
	err = work(ctx, g.Token)
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	cancel(nil)
	<-done
	// Give it up even when told to end, so that the next need not wait for the lease.
	last, end := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer end()
	_, resignErr := b.Resign(last, name, g.Token, election.ResignOptions{})
	return errors.Join(err, resignErr)
}

// renew keeps the lease and returns once it cannot be trusted any more. Trust is
// counted from before each question, and ends a margin before the lease.
func renew(ctx context.Context, b election.Backend, t election.Token, until time.Time) error {
	const margin = ttl / 5
	for {
		pause(ctx, ttl/5)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		asked := time.Now()
		call, end := context.WithDeadline(ctx, until.Add(-margin))
		r, err := b.Renew(call, name, t)
		end()
		switch {
		case err == nil && r.Status == election.Lost:
			return errors.New("another may lead")
		case err == nil:
			until = asked.Add(ttl)
		case time.Until(until) <= margin:
			return fmt.Errorf("the lease cannot be kept: %w", err)
		}
	}
}

// work writes through the proxy, on a connection that presents the token.
func work(ctx context.Context, t election.Token) error {
	c, err := pgx.ParseConfig(os.Getenv("DATABASE"))
	if err != nil {
		return err
	}
	c.RuntimeParams["fence.election"] = name
	c.RuntimeParams["fence.token"] = t.Reveal()
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for {
		if _, err := conn.Exec(ctx, "INSERT INTO things VALUES ('by the leader')"); err != nil {
			return err // a stale leader: SQLSTATE FP001 and its like
		}
		pause(ctx, time.Second)
	}
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// silent is a logger that says nothing: go-redis prints what it also returns.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
