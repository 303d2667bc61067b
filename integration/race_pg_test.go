package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/guard"
)

// pgRaced floods a Postgres table through two proxies.
type pgRaced struct {
	proxies [2]string // host:port
	user    string
	direct  *pgxpool.Pool
}

const pgRaceTables = `
create table race (number bigint not null, way text not null);
create table first (number bigint primary key, lower_seen bigint not null);
create index on race (number);
grant all on race, first to public;`

func (r *pgRaced) ways() int { return len(pgWays) }

// pgWays are the ways in which a client may write: each commits at least one row
// or fails.
var pgWays = []struct {
	name  string
	write func(ctx context.Context, c *pgx.Conn, n int64) error
}{
	{"autocommit", func(ctx context.Context, c *pgx.Conn, n int64) error {
		_, err := c.Exec(ctx, "insert into race values ($1, 'autocommit')", n)
		return err
	}},
	{"simple", func(ctx context.Context, c *pgx.Conn, n int64) error {
		_, err := c.Exec(ctx, "insert into race values ($1, 'simple')", pgx.QueryExecModeSimpleProtocol, n)
		return err
	}},
	{"transaction", func(ctx context.Context, c *pgx.Conn, n int64) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			for range 3 {
				if _, err := tx.Exec(ctx, "insert into race values ($1, 'transaction')", n); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{"pipeline", func(ctx context.Context, c *pgx.Conn, n int64) error {
		b := new(pgx.Batch)
		for range 20 {
			b.Queue("begin")
			b.Queue("insert into race values ($1, 'pipeline')", n)
			b.Queue("commit")
		}
		return c.SendBatch(ctx, b).Close()
	}},
	{"copy", func(ctx context.Context, c *pgx.Conn, n int64) error {
		_, err := c.CopyFrom(ctx, pgx.Identifier{"race"}, []string{"number", "way"},
			pgx.CopyFromSlice(200, func(int) ([]any, error) { return []any{n, "copy"}, nil }))
		return err
	}},
	{"repeatable read", func(ctx context.Context, c *pgx.Conn, n int64) error {
		return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
			var one int
			if err := tx.QueryRow(ctx, "select count(*) from first").Scan(&one); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "savepoint s"); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "insert into race values ($1, 'repeatable read')", n); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "release s")
			return err
		})
	}},
	{"slow commit", func(ctx context.Context, c *pgx.Conn, n int64) error {
		_, err := c.Exec(ctx, fmt.Sprintf(
			"do $$ begin perform pg_sleep(%f); insert into race values (%d, 'slow'); end $$", rand.Float64()/50, n),
			pgx.QueryExecModeSimpleProtocol)
		return err
	}},
}

func (r *pgRaced) connect(ctx context.Context, c guard.Credential, proxy int) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable", r.user, r.proxies[proxy]))
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["fence.election"] = c.Election
	cfg.RuntimeParams["fence.token"] = c.Token.Reveal()
	return pgx.ConnectConfig(ctx, cfg)
}

func (r *pgRaced) flood(ctx context.Context, c guard.Credential, n int64, proxy, way int) {
	conn, err := r.connect(ctx, c, proxy)
	if err != nil {
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		if err := pgWays[way].write(ctx, conn, n); err != nil {
			return
		}
	}
}

func (r *pgRaced) first(ctx context.Context, c guard.Credential, n int64, proxy int) error {
	conn, err := r.connect(ctx, c, proxy)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	// One statement: its snapshot was taken before its own commit, and after that
	// snapshot no lower number may commit any more.
	_, err = conn.Exec(ctx, "insert into first select $1, count(*) from race where number < $1", n)
	return err
}

func (r *pgRaced) late(ctx context.Context, n int64) (late int, err error) {
	err = r.direct.QueryRow(ctx, `select (select count(*) from race where number < $1) -
		(select lower_seen from first where number = $1)`, n).Scan(&late)
	return late, err
}

func (r *pgRaced) written(ctx context.Context) (all int, err error) {
	err = r.direct.QueryRow(ctx, "select count(*) from race").Scan(&all)
	return all, err
}

func newDirect(t *testing.T, ctx context.Context, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
