// Package pgfence keeps the fence inside a Postgres cluster (14 to 18): a table of
// fences, and a table of the server processes that are bound to a term, in one
// control database for the whole cluster.
//
// It promises that Bind succeeds only while the fence is exactly the permit's, and
// that once Sever has returned no server process that was bound to an older term
// exists. Where the control role lacks a right that this rests on, it fails.
//
// It does not promise anything of work that a session handed to another process of
// the server (dblink, pg_cron), of prepared transactions, of sessions that came
// without a proxy, of writes that an asynchronous failover loses or brings back, or
// of people who change the schema fenceproxy by hand.
//
// Every transaction that takes the gate is one simple Query message: a proxy that is
// stopped in the middle of sending it holds no lock.
package pgfence

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// Errors of a Fence, for errors.Is.
var (
	// ErrDSN: the control DSN cannot be understood. The error never holds its text.
	ErrDSN = errors.New("not a Postgres connection string (postgres://user:password@host:port/database or key=value; percent-encode special characters)")
	// ErrPooler: the server process is connected to another socket than the proxy's.
	ErrPooler = errors.New("a pooler or address translation stands between the proxy and the server")
	// ErrSuperuser: the session's role is a superuser, which the control role may not end.
	ErrSuperuser = errors.New("the session's role is a superuser")
	// ErrGone: the server has no such client process.
	ErrGone = errors.New("the server has no such process: it ended, a pooler stands in between, or the control connection leads to another cluster")
	// ErrOther: the session is on another server than the control connection.
	ErrOther = errors.New("the control connection leads to another server than the session's")
	// ErrRights: the control role lacks a right that fencing relies on.
	ErrRights = errors.New("the control role lacks rights")
	// ErrSchema: the schema fenceproxy is missing in the control database, or of
	// another version.
	ErrSchema = errors.New("the schema fenceproxy is not installed in the control database (fenceproxy install)")
	// ErrStandby: the control connection leads to a standby.
	ErrStandby = errors.New("the control connection leads to a standby, the fence is on the primary")
	// ErrGate: the gate stayed locked for longer than LockTimeout.
	ErrGate = errors.New("the gate of the fence stayed locked")
	// ErrCorrupt: the fence holds what no fenceproxy wrote.
	ErrCorrupt = errors.New("the fence's row holds something else")
)

// Options tune a Fence. The zero value is a working default.
type Options struct {
	// MaxConns bounds the control connections that Open makes; zero means 4.
	MaxConns int32
	// LockTimeout bounds the wait for the gate of one bind or raise; zero means 5 s.
	LockTimeout time.Duration
}

// A Fence is the fence of one Postgres cluster. It implements guard.Fence.
type Fence struct {
	pool *pgxpool.Pool
	own  bool
	o    Options

	mu      sync.Mutex
	severed map[severing]string // on which run of which server, until it is marked
}

// A severing names what a Sever was for.
type severing struct {
	election string
	number   int64
	holder   election.Digest
}

// started is the SQL of the text that tells servers apart, and two runs of one server.
const started = `pg_catalog.to_char(pg_catalog.pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')`

var _ guard.Fence = (*Fence)(nil)

// Open makes a control pool for the DSN; it does not wait for the server.
func Open(ctx context.Context, dsn string, o Options) (*Fence, error) {
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// What ParseConfig says may hold a part of the password.
		return nil, fmt.Errorf("control connection: %w", ErrDSN)
	}
	c.MaxConns = 4
	if o.MaxConns > 0 {
		c.MaxConns = o.MaxConns
	}
	if several(c.ConnConfig) && c.ConnConfig.ValidateConnect == nil {
		// The fence is on the primary, wherever that is now.
		c.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "fenceproxy control"
	}
	// A server that ended its connections, as at a restart, has not ended the term: a
	// session that presents the live token then must not be refused for it.
	c.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingIdle }
	c.PingTimeout = pingTimeout
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("control connection: %w", err)
	}
	f := New(pool, o)
	f.own = true
	return f, nil
}

// several says whether a DSN names more than one server.
func several(c *pgx.ConnConfig) bool {
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
}

const (
	// pingIdle is how long a control connection may have been idle and be used unasked.
	pingIdle = 20 * time.Millisecond
	// pingTimeout is how long it may take to answer before it counts as broken.
	pingTimeout = 2 * time.Second
)

// New uses a pool that the caller closes.
func New(pool *pgxpool.Pool, o Options) *Fence {
	if o.LockTimeout <= 0 {
		o.LockTimeout = 5 * time.Second
	}
	return &Fence{pool: pool, o: o, severed: make(map[severing]string)}
}

// Close closes the pool if Open made it.
func (f *Fence) Close() {
	if f.own {
		f.pool.Close()
	}
}

// Read implements guard.Fence.
func (f *Fence) Read(ctx context.Context, electionID string) (guard.Record, error) {
	var (
		standby       bool
		highest       *int64
		holder, raise []byte
		state         *string
	)
	err := f.pool.QueryRow(ctx, `SELECT pg_catalog.pg_is_in_recovery(), f.highest, f.holder, f.state, f.raise_id
		FROM (SELECT) one LEFT JOIN fenceproxy.fence f ON f.election = $1`,
		pgx.QueryExecModeExec, electionID).Scan(&standby, &highest, &holder, &state, &raise)
	switch {
	case err != nil:
		return guard.Record{}, fmt.Errorf("reading the fence: %w", explain(err))
	case standby:
		return guard.Record{}, ErrStandby
	case highest == nil:
		return guard.Record{}, nil
	}
	r := guard.Record{Highest: *highest, State: stateOf(*state)}
	if len(holder) != len(r.Holder) || len(raise) != len(r.Raise) || r.State == 0 || r.Highest <= 0 {
		return guard.Record{}, fmt.Errorf("reading the fence: %w", ErrCorrupt)
	}
	r.Holder, r.Raise = election.Digest(holder), guard.RaiseID(raise)
	return r, nil
}

// Swap implements guard.Fence.
func (f *Fence) Swap(ctx context.Context, electionID string, old, new guard.Record) error {
	if err := election.CheckID(electionID); err != nil {
		return fmt.Errorf("writing the fence: %w", err)
	}
	change := fmt.Sprintf(`INSERT INTO fenceproxy.fence (election, highest, holder, state, raise_id, updated_at)
		VALUES (%s, %d, %s, %s, %s, pg_catalog.now()) ON CONFLICT DO NOTHING`,
		quote(electionID), new.Highest, bytea(new.Holder[:]), quote(stateName(new.State)), bytea(new.Raise[:]))
	if old != (guard.Record{}) {
		change = fmt.Sprintf(`UPDATE fenceproxy.fence SET highest = %d, holder = %s, state = %s, raise_id = %s, updated_at = pg_catalog.now()
			WHERE %s`, new.Highest, bytea(new.Holder[:]), quote(stateName(new.State)), bytea(new.Raise[:]), isRecord(electionID, old))
	}
	// INVARIANT: the mark is made on the server whose processes Sever looked at, in the same
	// run of it. After a failover the control connections may lead to two servers at once.
	if at := f.severedAt(electionID, new); at != "" && old != (guard.Record{}) {
		change += " AND " + started + " = " + quote(at)
	}
	// INVARIANT: EXCLUSIVE waits until every bind under way has committed, and keeps
	// later ones waiting until the new record can be seen. So the sever that follows
	// sees every connection that was ever bound to an older record.
	// The raise outlives a crash: a number that was refused stays refused.
	results, err := f.transact(ctx, `SELECT pg_catalog.set_config('synchronous_commit', 'on', true)
		WHERE pg_catalog.current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')`,
		`LOCK TABLE fenceproxy.gate IN EXCLUSIVE MODE`, change)
	if err != nil {
		return fmt.Errorf("writing the fence: %w", err)
	}
	if results[len(results)-1].CommandTag.RowsAffected() != 1 {
		return guard.ErrConflict
	}
	return nil
}

// severedAt returns, and forgets, on which server the record's connections were severed.
func (f *Fence) severedAt(electionID string, r guard.Record) string {
	if r.State != guard.Severed {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := severing{electionID, r.Highest, r.Holder}
	at := f.severed[key]
	delete(f.severed, key)
	return at
}

// transact runs the statements as one transaction in one message, and returns their
// results.
func (f *Fence) transact(ctx context.Context, statements ...string) ([]*pgconn.Result, error) {
	conn, err := f.pool.Acquire(ctx)
	if err != nil {
		return nil, explain(err)
	}
	defer conn.Release()
	sql := "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = " +
		strconv.FormatInt(f.o.LockTimeout.Milliseconds(), 10) + "; " + strings.Join(statements, "; ") + "; COMMIT"
	pg := conn.Conn().PgConn()
	results, err := pg.Exec(ctx, sql).ReadAll()
	if err != nil {
		if pg.TxStatus() == 'E' {
			_, _ = pg.Exec(ctx, "ROLLBACK").ReadAll() // else the pool drops the connection
		}
		return nil, explain(err)
	}
	if len(results) != len(statements)+3 || results[len(results)-1].CommandTag.String() != "COMMIT" {
		return nil, fmt.Errorf("the transaction was not committed (%d results)", len(results))
	}
	return results[2 : len(results)-1], nil
}

// isRecord is the SQL condition that a row of the fence is exactly r.
func isRecord(electionID string, r guard.Record) string {
	return fmt.Sprintf("election = %s AND highest = %d AND holder = %s AND state = %s AND raise_id = %s",
		quote(electionID), r.Highest, bytea(r.Holder[:]), quote(stateName(r.State)), bytea(r.Raise[:]))
}

// quote makes a literal of text that holds no backslash.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func bytea(b []byte) string { return "pg_catalog.decode('" + hex.EncodeToString(b) + "', 'hex')" }

func stateName(s guard.State) string {
	if s == guard.Severed {
		return "severed"
	}
	return "raised"
}

func stateOf(name string) guard.State {
	switch name {
	case "raised":
		return guard.Raised
	case "severed":
		return guard.Severed
	}
	return 0
}

// explain gives what the server refused its name for errors.Is.
func explain(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case "42P01", "3F000", "42703": // undefined table, schema, column
		return fmt.Errorf("%w: %w", ErrSchema, err)
	case "42501": // insufficient privilege
		return fmt.Errorf("%w: %w", ErrRights, err)
	case "55P03": // lock not available
		return fmt.Errorf("%w: %w", ErrGate, err)
	case "25006": // read-only transaction
		return fmt.Errorf("%w: %w", ErrStandby, err)
	}
	return err
}
