// Package postgres keeps elections in a table of a Postgres database.
//
// It promises that each call is one statement in a transaction of its own, by the
// server's clock, and needs nothing of a session: a connection may end, or a transaction
// pooler may give each call another one, and leadership is as it was. (Reading an
// election that was never held takes a second statement.) A standby never answers. It
// does not promise that an asynchronous failover, or a crash of a server with
// synchronous_commit off, keeps the last grant: numbers rise all the same, by the clock,
// and the fence in the guarded resource decides between two holders. It cannot enforce a
// hold-off, and says so.
//
// A row stays when its holder is gone, so that numbers are remembered. A release is
// notified too, so that candidates ask sooner; that is all that a session serves for.
package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
)

// A Backend keeps elections in a Postgres database.
type Backend struct {
	db      database
	queries queries
	closed  atomic.Bool

	mu      sync.Mutex
	hearing *hearing // nil while nobody listens for releases
}

var _ election.Hinter = (*Backend)(nil)

// Options tune a Backend. The zero value is a working default.
type Options struct {
	// Schema is the schema of the table; empty means DefaultSchema.
	Schema string
}

// New returns a backend on a pool of the caller's, which Close leaves open.
func New(pool *pgxpool.Pool, o Options) (*Backend, error) {
	// The mode is set for each query: the pool has one of its own.
	return newBackend(poolDatabase{pool: pool, mode: pgx.QueryExecModeExec}, o)
}

// NewDB returns a backend on a handle of the caller's, which Close leaves open; with
// GORM it is what DB() returns. Its driver may be any that passes contexts on and
// reports errors with a method SQLState() string, as those of pgx and of lib/pq do.
// Behind a transaction pooler the driver must be set to use no named prepared
// statements: for pgx, default_query_exec_mode=exec in its connection string.
func NewDB(db *sql.DB, o Options) (*Backend, error) {
	return newBackend(sqlDatabase{db}, o)
}

// Open returns a backend on a pool of its own, which Close closes. The connection
// string is a URL or a list of keywords and values, as pgxpool.ParseConfig takes it.
// The server is asked nothing yet. The error never holds the password.
//
// Where the string says default_query_exec_mode, all statements go by that. Otherwise no
// statement is prepared by name, so that a transaction pooler may be in between; but for
// the one that reads, on a connection that is found to have a session to itself.
func Open(ctx context.Context, dsn string, o Options) (*Backend, error) {
	if err := connurl.Check(dsn); err != nil {
		return nil, fmt.Errorf("postgres election backend: %w", err)
	}
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres election backend: %w", connurl.Explain(dsn, err))
	}
	d := poolDatabase{own: true, mode: c.ConnConfig.DefaultQueryExecMode}
	if !modeSaid(dsn) {
		d.mode, d.learns = pgx.QueryExecModeExec, c.ConnConfig.StatementCacheCapacity > 0
		c.ConnConfig.DefaultQueryExecMode = d.mode
	}
	if d.pool, err = pgxpool.NewWithConfig(ctx, c); err != nil {
		return nil, fmt.Errorf("postgres election backend: making a pool: %w", err)
	}
	b, err := newBackend(d, o)
	if err != nil {
		d.pool.Close()
	}
	return b, err
}

func newBackend(db database, o Options) (*Backend, error) {
	q, err := newQueries(o.Schema)
	if err != nil {
		return nil, err
	}
	return &Backend{db: db, queries: q}, nil
}

// Close waits for the calls under way and closes the pool, if it was made here.
func (b *Backend) Close() error {
	if !b.closed.Swap(true) {
		b.endHearing()
		b.db.close()
	}
	return nil
}
