package redis

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Validate beside a GET by the same driver. The script alone, and the least that a script
// can do, show where the difference comes from.
func BenchmarkValidate(b *testing.B) {
	for _, program := range programs {
		b.Run(scheme(program), func(b *testing.B) {
			addr, c := bench(b, program)
			validate, least := newScripts(Options{}).validate, goredis.NewScript(flags+"return 1")
			electiontest.BenchValidate(b, opened(b, addr), "e", "get", map[string]func(context.Context) error{
				"get":          func(ctx context.Context) error { return c.Get(ctx, "fenceproxy:{e}:number").Err() },
				"script":       func(ctx context.Context) error { return validate.Run(ctx, c, []string{leaseKey("e")}).Err() },
				"least-script": func(ctx context.Context) error { return least.Run(ctx, c, nil).Err() },
			})
		})
	}
}

// The same on a client of the caller's, where each call runs in a goroutine of its own.
func BenchmarkValidateOnCallersClient(b *testing.B) {
	_, c := bench(b, programs[0])
	electiontest.BenchValidate(b, New(c, Options{}), "e", "get", map[string]func(context.Context) error{
		"get": func(ctx context.Context) error { return c.Get(ctx, "fenceproxy:{e}:number").Err() },
	})
}

// bench starts a server, and opens a client with the same options as a backend's.
func bench(b *testing.B, program string) (addr string, c *goredis.Client) {
	b.Helper()
	p, err := servers.StartRedis(testenv.Context(b), servers.RedisOptions{Program: program})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Stop() })
	c = goredis.NewClient(&goredis.Options{
		Addr: p.Addr, MaxRetries: -1, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	b.Cleanup(func() { _ = c.Close() })
	return p.Addr, c
}
