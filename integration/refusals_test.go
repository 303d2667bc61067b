package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	electionredis "github.com/fenceproxy/fenceproxy/election/redis"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A badCredential is one that must not write, and how each wire says so.
type badCredential struct {
	name        string
	c           guard.Credential
	pg          string // SQLSTATE
	redis       string // beginning of the error
	backendDown bool
}

// badCredentials are made on elections of b's; the last need the backend stopped.
func badCredentials(t *testing.T, ctx context.Context, b election.Backend) []badCredential {
	t.Helper()
	acquire := func(id string, ttl time.Duration) guard.Credential {
		got, err := b.Acquire(ctx, id, election.AcquireOptions{TTL: ttl})
		if err != nil || got.Status != election.Acquired {
			t.Fatalf("acquire: %+v, %v", got, err)
		}
		return guard.Credential{Election: id, Token: got.Token}
	}
	live := acquire("live", time.Hour)
	other := acquire("other", time.Hour)
	resigned := acquire("resigned", time.Hour)
	if _, err := b.Resign(ctx, "resigned", resigned.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	expired := acquire("expired", election.MinTTL)
	testenv.Eventually(t, "the lease has run out", func() bool {
		s, err := b.Status(ctx, "expired")
		return err == nil && s.Status == election.Vacant
	})
	overtaken := acquire("overtaken", election.MinTTL)
	lead(t, ctx, b, "overtaken", "next", time.Hour)
	return []badCredential{
		{name: "unknown election", c: guard.Credential{Election: "unknown", Token: live.Token}, pg: "FP002", redis: "FENCED"},
		{name: "wrong token", c: guard.Credential{Election: "live", Token: election.NewToken()}, pg: "FP001", redis: "FENCED"},
		{name: "token of another election", c: guard.Credential{Election: "live", Token: other.Token}, pg: "FP001", redis: "FENCED"},
		{name: "resigned", c: resigned, pg: "FP002", redis: "FENCED"},
		{name: "expired lease", c: expired, pg: "FP002", redis: "FENCED"},
		{name: "overtaken", c: overtaken, pg: "FP001", redis: "FENCED"},
		{name: "backend down", c: live, pg: "FP003", redis: "FENCEDOWN", backendDown: true},
	}
}

// stoppable is an election backend on a Redis of its own, and how to stop that.
func stoppable(t *testing.T) (election.Backend, func()) {
	t.Helper()
	server := testenv.Redis(t)
	b, err := electionredis.OpenURL("redis://"+server.Addr, electionredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, server.Kill
}

// Each bad credential is refused with its own error, reads, and writes nothing.
func TestPostgresRefusals(t *testing.T) {
	ctx := testenv.Context(t)
	r := newPgResource(t, ctx)
	b, stop := stoppable(t)
	addr := r.proxy(t, ctx, b, nil)
	for _, bad := range badCredentials(t, ctx, b) {
		t.Run(bad.name, func(t *testing.T) {
			if bad.backendDown {
				stop()
			}
			cl := mustConnect(t, ctx, r, addr, bad.c)
			err := cl.write(ctx, 1)
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != bad.pg || pgErr.Hint == "" {
				t.Errorf("refused with %v, want %s and a hint", err, bad.pg)
			}
			if err != nil && strings.Contains(fmt.Sprintf("%+v", pgErr), bad.c.Token.Reveal()) {
				t.Error("the error holds the token")
			}
			var n int
			if err := cl.(*pgClient).c.QueryRow(ctx, "select count(*) from w").Scan(&n); err != nil || n != 0 {
				t.Errorf("reading: %d rows, %v", n, err)
			}
		})
	}
}

func TestRedisRefusals(t *testing.T) {
	ctx := testenv.Context(t)
	server := testenv.Redis(t).Addr
	b, stop := stoppable(t)
	addr := redisProxy(t, ctx, server, b, nil)
	for _, bad := range badCredentials(t, ctx, b) {
		t.Run(bad.name, func(t *testing.T) {
			if bad.backendDown {
				stop()
			}
			cl := dialRedis(addr, 3, nil)
			defer cl.Close()
			err := cl.Do(ctx, "FENCE", "BIND", bad.c.Election, bad.c.Token.Reveal()).Err()
			if !redis.HasErrorPrefix(err, bad.redis+" ") || strings.Contains(err.Error(), bad.c.Token.Reveal()) {
				t.Errorf("bind: %v, want %s", err, bad.redis)
			}
			if err := cl.Set(ctx, "k", "v", 0).Err(); !redis.HasErrorPrefix(err, bad.redis+" ") {
				t.Errorf("write: %v, want %s", err, bad.redis)
			}
			if n, err := cl.Exists(ctx, "k").Result(); err != nil || n != 0 {
				t.Errorf("reading: %d keys, %v", n, err)
			}
		})
	}
}
