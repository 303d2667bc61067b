package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Validate beside the reads of one row by its key and of nothing, by a pool of the same
// driver that prepares its statements, as Validate's is where it has its sessions to
// itself; and all of them without, as through a transaction pooler.
func BenchmarkValidate(b *testing.B) {
	x := newPlace(b, testenv.SharedPostgres(b), "").install()
	for mode, params := range map[string][]string{
		"prepared": nil,
		"pooler":   {"default_query_exec_mode=exec"},
	} {
		b.Run(mode, func(b *testing.B) {
			h := x.opened(b, params...)
			pool, err := pgxpool.New(b.Context(), x.dsn(x.server.Addr, params...))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(pool.Close)
			one := func(query string, args ...any) func(context.Context) error {
				return func(ctx context.Context) error {
					var n int64
					return pool.QueryRow(ctx, query, args...).Scan(&n)
				}
			}
			id := testenv.Name(b, "e")
			electiontest.BenchValidate(b, h, id, "row", map[string]func(context.Context) error{
				"row":     one("SELECT number FROM "+x.table()+" WHERE election = $1", id),
				"select1": one("SELECT 1"),
			})
		})
	}
}
