package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Validate beside SELECT 1 by the same pool in the same mode. For comparison, the plainest
// read of one row, and SELECT 1 by a pool that prepares its statements, which a pooler in
// between may not bear.
func BenchmarkValidate(b *testing.B) {
	x := newPlace(b, testenv.SharedPostgres(b), "").install()
	h := x.opened(b)
	preparing, err := pgxpool.New(b.Context(), x.dsn(x.server.Addr))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(preparing.Close)
	electiontest.BenchValidate(b, h, "e", "select1", map[string]func(context.Context) error{
		"row": func(ctx context.Context) error {
			var n int64
			return h.db.row(ctx, "SELECT number FROM "+x.table()+" WHERE election = $1::text", []any{"e"}, &n)
		},
		"select1":          func(ctx context.Context) error { var n int; return h.db.row(ctx, "SELECT 1", nil, &n) },
		"prepared-select1": func(ctx context.Context) error { var n int; return preparing.QueryRow(ctx, "SELECT 1").Scan(&n) },
	})
}
