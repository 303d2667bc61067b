package redis

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Validate beside a GET by the same driver, as the backend sets it. The script alone, and
// the least that a script can do, show where the difference comes from; so does Validate
// on a client of the caller's, which runs in a goroutine of its own.
func BenchmarkValidate(b *testing.B) {
	for _, program := range programs {
		b.Run(scheme(program), func(b *testing.B) {
			p, err := servers.StartRedis(testenv.Context(b), servers.RedisOptions{Program: program})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { p.Stop() })
			h := opened(b, p.Addr)
			c := goredis.NewClient(&goredis.Options{
				Addr: p.Addr, MaxRetries: -1, ContextTimeoutEnabled: true,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			b.Cleanup(func() { _ = c.Close() })
			callers, token := New(c, Options{}), election.NewToken()
			least := goredis.NewScript(flags + "return 1")
			key := []string{"fenceproxy:{e}:lease"}
			electiontest.BenchValidate(b, h, "e", "get", map[string]func(context.Context) error{
				"get": func(ctx context.Context) error { return c.Get(ctx, "fenceproxy:{e}:number").Err() },
				"script": func(ctx context.Context) error {
					return h.scripts.validate.Run(ctx, c, key, token.Digest().String()).Err()
				},
				"least-script": func(ctx context.Context) error { return least.Run(ctx, c, nil).Err() },
				"callers":      func(ctx context.Context) error { _, err := callers.Validate(ctx, "e", token); return err },
			})
		})
	}
}
