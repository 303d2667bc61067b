package pgclients

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A goPool is a pool of connections of a library in this process.
type goPool interface {
	begin(ctx context.Context) (goTx, error)
	exec(ctx context.Context, sql string) error
	close()
}

type goTx interface {
	exec(ctx context.Context, sql string) error
	commit(ctx context.Context) error
	rollback(ctx context.Context) error
}

// sleeping loses leadership while a query runs.
func sleeping(ctx context.Context, tx goTx, loses func()) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(loses)
	return tx.exec(ctx, "select pg_sleep(600)")
}

// loseInGo loses leadership in mid-transaction, once in each of the ways to notice it, and
// checks what the library makes of it beside what it makes of pg_terminate_backend. The
// same pool then reads, and is refused a write; one with the new token writes.
func (s *stage) loseInGo(t *testing.T, ctx context.Context, open func(place) (goPool, error), ways map[string]func(context.Context, goTx, func()) error) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		want := s.loseOnce(t, ctx, open, name, ways[name], false)
		got := s.loseOnce(t, ctx, open, name, ways[name], true)
		testenv.Same(t, name, ended.ReplaceAllString(got, "*"), ended.ReplaceAllString(want, "*"))
		t.Logf("%s: %s", name, got)
	}
	var landed string
	err := connect(t, ctx, s.server.DSN("app", s.name)).QueryRow(ctx, "select coalesce(string_agg(what, ', '), '') from written where what not in ('kept', 'other')").Scan(&landed)
	if err != nil || landed != "" {
		t.Errorf("landed: %s (%v)", landed, err)
	}
}

func (s *stage) loseOnce(t *testing.T, ctx context.Context, open func(place) (goPool, error), name string, way func(context.Context, goTx, func()) error, proxied bool) string {
	t.Helper()
	var holder guard.Credential
	at := s.direct()
	if proxied {
		holder = s.lead(t, ctx, "holder")
		at = s.leader(holder)
	}
	loses := func() {
		if name == "sleeping" || name == "canceled" {
			s.waitForSleep(t, ctx)
		}
		if !proxied {
			s.terminate(t, ctx)
			return
		}
		s.resign(t, ctx, holder)
		holder = s.lead(t, ctx, "other")
		s.write(t, ctx, holder, "other")
	}
	pool, err := open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.close()
	tx, err := pool.begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.exec(ctx, "insert into written values ('lost')"); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	err = way(ctx, tx, loses)
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e):
		fmt.Fprintf(&b, "%T %s %s %s\n", err, e.Severity, e.Code, e.Message)
	default:
		fmt.Fprintf(&b, "no SQLSTATE: %T\n", err)
	}
	if err == nil || proxied && e != nil && e.Code != "FP001" {
		t.Errorf("%s: %v", name, err)
	}
	_ = tx.rollback(ctx)
	if err := pool.exec(ctx, "select 1"); err != nil {
		t.Errorf("%s: the pool does not recover: %v", name, err)
	}
	if !proxied {
		return b.String()
	}
	err = pool.exec(ctx, "insert into written values ('stale')")
	if !errors.As(err, &e) || e.Code != "FP001" || e.Severity != "ERROR" {
		t.Errorf("%s: a stale write: %v", name, err)
	}
	s.resign(t, ctx, holder)
	holder = s.lead(t, ctx, "holder")
	again, err := open(s.leader(holder))
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if err := again.exec(ctx, "insert into written values ('kept')"); err != nil {
		t.Errorf("%s: with the new token: %v", name, err)
	}
	s.resign(t, ctx, holder)
	return b.String()
}

type pgxPool struct{ p *pgxpool.Pool }

func (p pgxPool) begin(ctx context.Context) (goTx, error) {
	tx, err := p.p.Begin(ctx)
	return pgxTx{tx}, err
}

func (p pgxPool) exec(ctx context.Context, sql string) error {
	_, err := p.p.Exec(ctx, sql)
	return err
}

func (p pgxPool) close() { p.p.Close() }

type pgxTx struct{ pgx.Tx }

func (x pgxTx) exec(ctx context.Context, sql string) error {
	_, err := x.Exec(ctx, sql)
	return err
}
func (x pgxTx) commit(ctx context.Context) error   { return x.Commit(ctx) }
func (x pgxTx) rollback(ctx context.Context) error { return x.Rollback(ctx) }

// pgx's pool loses leadership in mid-transaction, in each of the ways to notice it.
func TestPgxLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "pgxloss")
	open := func(p place) (goPool, error) {
		pool, err := pgxpool.New(ctx, p.dsn("pool_max_conns=1"))
		return pgxPool{pool}, err
	}
	conn := func(tx goTx) *pgx.Conn { return tx.(pgxTx).Conn() }
	dead := func(tx goTx, err error) error {
		if !conn(tx).IsClosed() {
			return errors.New("the connection counts as live")
		}
		return err
	}
	s.loseInGo(t, ctx, open, map[string]func(context.Context, goTx, func()) error{
		"statement": func(ctx context.Context, tx goTx, loses func()) error {
			loses()
			return dead(tx, tx.exec(ctx, "insert into written values ('lost too')"))
		},
		"simple": func(ctx context.Context, tx goTx, loses func()) error {
			loses()
			_, err := conn(tx).Exec(ctx, "insert into written values ('lost too')", pgx.QueryExecModeSimpleProtocol)
			return dead(tx, err)
		},
		"commit": func(ctx context.Context, tx goTx, loses func()) error {
			loses()
			return tx.commit(ctx)
		},
		"sleeping": sleeping,
		"batch": func(ctx context.Context, tx goTx, loses func()) error {
			b := new(pgx.Batch)
			for range 10 {
				b.Queue("insert into written values ('lost too')")
			}
			loses()
			return dead(tx, conn(tx).SendBatch(ctx, b).Close())
		},
		"copying": func(ctx context.Context, tx goTx, loses func()) error {
			var once sync.Once
			rows := 0
			_, err := conn(tx).CopyFrom(ctx, pgx.Identifier{"written"}, []string{"what"}, pgx.CopyFromFunc(func() ([]any, error) {
				if rows++; rows > 200000 {
					once.Do(loses)
				}
				if rows > 2000000 {
					return nil, nil
				}
				return []any{"lost too"}, nil
			}))
			if err == nil || !conn(tx).IsClosed() {
				return fmt.Errorf("the copy ended with %w", err)
			}
			// Whether the library reads the server's last words or fails to write
			// first is a matter of time.
			return errors.New("broken")
		},
		"pipeline": func(ctx context.Context, tx goTx, loses func()) error {
			p := conn(tx).PgConn().StartPipeline(ctx)
			p.SendQueryParams("insert into written values ('lost too')", nil, nil, nil, nil)
			if err := p.Flush(); err != nil {
				return err
			}
			loses()
			p.SendQueryParams("insert into written values ('lost too')", nil, nil, nil, nil)
			return errors.Join(p.Sync(), p.Close())
		},
		"waiting": func(ctx context.Context, tx goTx, loses func()) error {
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(loses)
			_, err := conn(tx).WaitForNotification(ctx)
			return dead(tx, err)
		},
		"fetching": func(ctx context.Context, tx goTx, loses func()) error {
			if err := tx.exec(ctx, "declare c cursor for select i from generate_series(1, 10000) i"); err != nil {
				return err
			}
			if err := tx.exec(ctx, "fetch 5 from c"); err != nil {
				return err
			}
			loses()
			return dead(tx, tx.exec(ctx, "fetch 5 from c"))
		},
	})
}

// A context that ends cancels the query on the server, through the proxy too: with pgx's
// watcher the connection lives on.
func TestPgxContextCancels(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "pgxcancel")
	for _, p := range []place{s.direct(), s.reader(), s.leader(s.lead(t, ctx, "pgx"))} {
		cfg, err := pgx.ParseConfig(p.dsn())
		if err != nil {
			t.Fatal(err)
		}
		cfg.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: time.Minute}
		}
		c, err := pgx.ConnectConfig(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			sleep, cancel := context.WithCancel(ctx)
			var wg sync.WaitGroup
			wg.Go(func() {
				s.waitForSleep(t, ctx)
				cancel()
			})
			_, err := c.Exec(sleep, "select pg_sleep(600)")
			wg.Wait()
			var e *pgconn.PgError
			if !errors.As(err, &e) || e.Code != "57014" || c.IsClosed() {
				t.Errorf("%v", err)
			}
			var one int
			if err := c.QueryRow(ctx, "select 1").Scan(&one); err != nil {
				t.Errorf("after the cancel: %v", err)
			}
		}
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
