package redis

import (
	"context"
	"testing"

	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Validate beside a GET by the same client. The script alone, without what the backend
// does around it, shows where the difference comes from.
func BenchmarkValidate(b *testing.B) {
	for _, program := range programs {
		b.Run(scheme(program), func(b *testing.B) {
			p, err := servers.StartRedis(testenv.Context(b), servers.RedisOptions{Program: program})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { p.Stop() })
			h := opened(b, p.Addr)
			keys := []string{"fenceproxy:{e}:lease", "fenceproxy:{e}:number", "fenceproxy:{e}:holdoff"}
			electiontest.BenchValidate(b, h, "e", "get", map[string]func(context.Context) error{
				"get":    func(ctx context.Context) error { return h.client.Get(ctx, keys[1]).Err() },
				"script": func(ctx context.Context) error { return h.scripts.validate.Run(ctx, h.client, keys, "x").Err() },
			})
		})
	}
}
