package pgclients

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// openSQL is a pool of database/sql at a place, in one of pgx's modes.
func openSQL(t *testing.T, p place, mode pgx.QueryExecMode) *sql.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(p.dsn())
	if err != nil {
		t.Fatal(err)
	}
	cfg.DefaultQueryExecMode = mode
	db := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { db.Close() })
	return db
}

// A program on database/sql prints the same through the proxy.
func TestDatabaseSQL(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "gosql")
	leader := s.leader(s.lead(t, ctx, "gosql"))
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		run := func(p place, f func(context.Context, *book, *sql.DB)) string {
			var b book
			db := openSQL(t, p, mode)
			f(ctx, &b, db)
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			return b.String()
		}
		s.fresh(t, ctx)
		want := run(s.direct(), sqlSession)
		testenv.Holds(t, "session", want, "57014", "done\n")
		s.fresh(t, ctx)
		testenv.Same(t, mode.String(), run(leader, sqlSession), want)
		testenv.Same(t, mode.String()+", reader", run(s.reader(), sqlReads), run(s.direct(), sqlReads))
		var b book
		_, err := openSQL(t, s.reader(), mode).ExecContext(ctx, "insert into written values ($1)", "stale")
		b.show("", "", err)
		if !strings.Contains(b.String(), "25006 write refused") {
			t.Errorf("%s: %s", mode, b.String())
		}
	}
}

func sqlSession(ctx context.Context, b *book, db *sql.DB) {
	exec := func(what string, x interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}, query string, args ...any) {
		r, err := x.ExecContext(ctx, query, args...)
		var n int64
		if err == nil {
			n, _ = r.RowsAffected()
		}
		b.show(what, n, err)
	}
	exec("create", db, "create table t (id int primary key, name text, raw bytea, at timestamptz)")
	exec("insert", db, "insert into t values ($1, $2, $3, $4)", 1, "one", []byte{0, 255}, time.Unix(0, 0))
	exec("null", db, "insert into t (id, name) values ($1, $2)", 2, sql.NullString{})
	exec("duplicate", db, "insert into t (id) values ($1)", 1)
	st, err := db.PrepareContext(ctx, "insert into t (id, name) values ($1, $2)")
	b.show("prepare", "", err)
	for i := 3; i < 10; i++ {
		_, err := st.ExecContext(ctx, i, fmt.Sprint(i))
		b.show("prepared", "", err)
	}
	b.show("close", "", st.Close()) //nolint:sqlclosecheck // what it answers is compared
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	b.show("begin", "", err)
	exec("update", tx, "update t set name = $1 where id < $2", "in", 4)
	exec("savepoint", tx, "savepoint a")
	exec("divide", tx, "select 1 / 0")
	exec("back", tx, "rollback to a")
	b.show("commit", "", tx.Commit())
	tx, err = db.BeginTx(ctx, nil)
	b.show("begin", "", err)
	exec("delete", tx, "delete from t")
	b.show("rollback", "", tx.Rollback())
	tx, err = db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	b.show("begin", "", err)
	exec("read only", tx, "delete from t")
	b.show("rollback", "", tx.Rollback())
	sqlReads(ctx, b, db)
	exec("written", db, "insert into written values ($1)", "session")
}

func sqlReads(ctx context.Context, b *book, db *sql.DB) {
	rows, err := db.QueryContext(ctx, "select id, name, raw, at at time zone 'UTC' from t where id < $1 order by id", 5)
	if err == nil {
		for rows.Next() {
			var id int
			var name sql.NullString
			var raw []byte
			var at sql.NullTime
			err := rows.Scan(&id, &name, &raw, &at)
			b.show("row", fmt.Sprint(id, name, raw, at), err)
		}
		err = errors.Join(rows.Err(), rows.Close()) //nolint:sqlclosecheck // what it answers is compared
	}
	b.show("rows", "", err)
	var n int
	b.show("many", "", db.QueryRowContext(ctx, "select count(*) from generate_series(1, $1::int)", 100000).Scan(&n))
	b.show("none", "", db.QueryRowContext(ctx, "select id from t where id = $1", 999).Scan(&n))
	b.show("nowhere", "", db.QueryRowContext(ctx, "select 1 from nowhere").Scan(&n))
	// Left early.
	rows, err = db.QueryContext(ctx, "select i from generate_series(1, 100000) i")
	if err == nil {
		rows.Next()
		err = errors.Join(rows.Close(), rows.Err()) //nolint:sqlclosecheck // what it answers is compared
	}
	b.show("left early", "", err)
	conn, err := db.Conn(ctx)
	b.show("conn", "", err)
	if err == nil {
		_, err = conn.ExecContext(ctx, "set statement_timeout = 100")
		b.show("set", "", err)
		_, err = conn.ExecContext(ctx, "select pg_sleep(600)")
		b.show("timeout", "", err)
		_, err = conn.ExecContext(ctx, "reset statement_timeout")
		b.show("reset", "", err)
		b.show("close", "", conn.Close())
	}
	b.show("ping", "", db.PingContext(ctx))
	fmt.Fprintln(b, "done")
}

// A pool of database/sql loses leadership in mid-transaction and connects again by itself.
func TestDatabaseSQLLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "gosqlloss")
	open := func(p place) (goPool, error) { return sqlPool{openSQL(t, p, pgx.QueryExecModeExec)}, nil }
	s.loseInGo(t, ctx, open, map[string]func(context.Context, goTx, func()) error{
		"statement": func(ctx context.Context, tx goTx, loses func()) error {
			loses()
			return tx.exec(ctx, "insert into written values ('lost too')")
		},
		"commit": func(ctx context.Context, tx goTx, loses func()) error {
			loses()
			return tx.commit(ctx)
		},
		"sleeping": sleeping,
	})
}

type sqlPool struct{ db *sql.DB }

func (p sqlPool) begin(ctx context.Context) (goTx, error) {
	tx, err := p.db.BeginTx(ctx, nil)
	return sqlTx{tx}, err
}

func (p sqlPool) exec(ctx context.Context, q string) error {
	_, err := p.db.ExecContext(ctx, q)
	return err
}

func (p sqlPool) close() { p.db.Close() }

type sqlTx struct{ tx *sql.Tx }

func (x sqlTx) exec(ctx context.Context, q string) error {
	_, err := x.tx.ExecContext(ctx, q)
	return err
}
func (x sqlTx) commit(context.Context) error   { return x.tx.Commit() }
func (x sqlTx) rollback(context.Context) error { return x.tx.Rollback() }
