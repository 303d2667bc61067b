package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election"
)

// A database runs single statements, each in a transaction of its own.
type database interface {
	// row runs a statement that returns one row, and reads it. Without a row the error is
	// sql.ErrNoRows.
	row(ctx context.Context, query string, args []any, into ...any) error
	// read is row for statements that only read, and are run often.
	read(ctx context.Context, query string, args []any, into ...any) error
	// exec runs statements without arguments, all in one transaction.
	exec(ctx context.Context, statements string) error
	// dedicated makes a connection like the others, for the caller to close. Where it
	// cannot, the error is election.ErrNoHints.
	dedicated(ctx context.Context) (*pgx.Conn, error)
	close()
}

type poolDatabase struct {
	pool   *pgxpool.Pool
	own    bool
	mode   pgx.QueryExecMode
	learns bool // which sessions are the pool's own; only where mode prepares nothing
}

// modeSaid reports whether the connection string, or what it leads to, says how
// statements are to be run.
func modeSaid(dsn string) bool {
	c, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return false
	}
	_, ok := c.RuntimeParams["default_query_exec_mode"]
	return ok
}

func (d poolDatabase) row(ctx context.Context, query string, args []any, into ...any) error {
	return d.pool.QueryRow(ctx, query, in(d.mode, args)...).Scan(into...)
}

func in(mode pgx.QueryExecMode, args []any) []any { return append([]any{mode}, args...) }

// read prepares the statement where that is safe: planning it anew takes longer than
// running it.
func (d poolDatabase) read(ctx context.Context, query string, args []any, into ...any) error {
	if !d.learns {
		return d.row(ctx, query, args, into...)
	}
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	s := sessionOf(c.Conn())
	if s.exclusive(ctx, c.Conn()) {
		err := c.QueryRow(ctx, query, in(pgx.QueryExecModeCacheStatement, args)...).Scan(into...)
		if !unprepared(err) {
			return err
		}
		// It did not run. The session is shared after all, or somebody emptied it.
		s.shared()
	}
	return c.QueryRow(ctx, query, in(d.mode, args)...).Scan(into...)
}

func (d poolDatabase) exec(ctx context.Context, statements string) error {
	_, err := d.pool.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
	return err
}

// dedicated takes a connection away from the pool, which makes another when it needs one.
func (d poolDatabase) dedicated(ctx context.Context) (*pgx.Conn, error) {
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return c.Hijack(), nil
}

func (d poolDatabase) close() {
	if d.own {
		d.pool.Close()
	}
}

// A session is what is known about the server's end of a connection.
type session struct {
	reads int // until known
	known bool
	own   bool // it serves this connection alone
}

// sessionOf returns what is known about a connection, which is the caller's for now.
func sessionOf(c *pgx.Conn) *session {
	const key = "fenceproxy session"
	data := c.PgConn().CustomData()
	s, ok := data[key].(*session)
	if !ok {
		s = &session{}
		data[key] = s
	}
	return s
}

// exclusive reports whether the connection has a session to itself, so that what is
// prepared in it stays there. The server names a session by its process when a connection
// begins, and a pooler, which has no one session to name, makes a name up; so it asks the
// session for its process. A connection that is used once is spared that.
func (s *session) exclusive(ctx context.Context, c *pgx.Conn) bool {
	if s.known {
		return s.own
	}
	if s.reads++; s.reads < 2 {
		return false
	}
	own, err := ownSession(ctx, c)
	s.known, s.own = err == nil, own
	return s.own
}

// ownSession asks the session for its process.
func ownSession(ctx context.Context, c *pgx.Conn) (bool, error) {
	var pid uint32
	err := c.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return err == nil && pid == c.PgConn().PID(), err
}

// shared notes that the session is not the connection's alone.
func (s *session) shared() { s.known, s.own = true, false }

// unprepared reports whether a statement did not run because the session does not know
// it, or has another of its name, or made its plan for a table that has changed since.
func unprepared(err error) bool {
	switch sqlState(err) {
	case unknownStatement, duplicateStatement, notSupported:
		return true
	}
	return false
}

type sqlDatabase struct{ db *sql.DB }

func (d sqlDatabase) row(ctx context.Context, query string, args []any, into ...any) error {
	return d.db.QueryRowContext(ctx, query, args...).Scan(into...)
}

// read is row: the driver decides.
func (d sqlDatabase) read(ctx context.Context, query string, args []any, into ...any) error {
	return d.row(ctx, query, args, into...)
}

func (d sqlDatabase) exec(ctx context.Context, statements string) error {
	_, err := d.db.ExecContext(ctx, statements)
	return err
}

// dedicated connects as the handle's connections did, if they are pgx's: one of the
// handle's own would be missing to its owner.
func (d sqlDatabase) dedicated(ctx context.Context) (*pgx.Conn, error) {
	c, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var like *pgx.ConnConfig
	err = c.Raw(func(driver any) error {
		p, ok := driver.(interface{ Conn() *pgx.Conn })
		if !ok {
			return fmt.Errorf("%w: the driver is not pgx", election.ErrNoHints)
		}
		like = p.Conn().Config()
		like.OnNotification = nil // else that connection would take what this one is notified of
		return nil
	})
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, like)
}

func (sqlDatabase) close() {}
