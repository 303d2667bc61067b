package pg

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/loops/loopstest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A fakeGuard admits the one token that leads, and is its own binder: bindings are
// checked against pg_stat_activity and kept in memory.
type fakeGuard struct {
	control *pgxpool.Pool

	mu      sync.Mutex
	number  int64
	leader  election.Token
	permits []*fakePermit
	bound   map[uint32]int64
	admits  int
	bindErr error
	onBind  func(try int) error // called in Bind, without the lock
	binds   int
	noPrep  bool
}

func (g *fakeGuard) record() guard.Record {
	return guard.Record{Highest: g.number, Holder: g.leader.Digest(), State: guard.Severed}
}

func (g *fakeGuard) Admit(_ context.Context, c guard.Credential) (Permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admits++
	if c.Token != g.leader {
		return nil, &guard.Refusal{Reason: guard.Stale, Election: c.Election, Held: 1, Rules: g.number, Leader: "w2"}
	}
	p := &fakePermit{term: guard.Term{Election: c.Election, Owner: "w1", Number: g.number, Digest: c.Token.Digest()},
		record: g.record(), done: make(chan struct{})}
	p.live.Store(true)
	g.permits = append(g.permits, p)
	return p, nil
}

func (g *fakeGuard) Bind(ctx context.Context, b pgfence.Backend, t guard.Term, r guard.Record) (pgfence.Bound, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bindErr != nil {
		return pgfence.Bound{}, g.bindErr
	}
	if g.binds++; g.onBind != nil {
		g.mu.Unlock()
		err := g.onBind(g.binds)
		g.mu.Lock()
		if err != nil {
			return pgfence.Bound{}, err
		}
	}
	if r != g.record() {
		return pgfence.Bound{}, &guard.Refusal{Reason: guard.FenceUnavailable, Err: guard.ErrConflict}
	}
	if g.control != nil {
		var n int
		err := g.control.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE pid=$1 AND client_addr=$2::text::inet AND client_port=$3",
			b.PID, b.Addr.Addr().String(), int(b.Addr.Port())).Scan(&n)
		if err != nil || n != 1 {
			return pgfence.Bound{}, fmt.Errorf("no backend %v: %d, %w", b, n, err)
		}
	}
	if g.bound == nil {
		g.bound = make(map[uint32]int64)
	}
	g.bound[b.PID] = t.Number
	return pgfence.Bound{PID: b.PID, Election: t.Election, PreparedTransactions: !g.noPrep}, nil
}

func (g *fakeGuard) Unbind(_ context.Context, b pgfence.Bound) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.bound, b.PID)
	return nil
}

func (g *fakeGuard) Read(context.Context, string) (guard.Record, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.record(), nil
}

func (g *fakeGuard) boundSessions() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.bound)
}

// lead makes a new token the leader's, without telling anyone.
func (g *fakeGuard) lead() election.Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.number++
	g.leader = election.NewToken()
	return g.leader
}

// endPermits ends every permit, as a guard does that has noticed.
func (g *fakeGuard) endPermits(reason guard.Reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.permits {
		p.end(&guard.Refusal{Reason: reason, Election: p.term.Election, Held: p.term.Number, Rules: g.number, Leader: "w2"})
	}
	g.permits = nil
}

// sever ends the server processes bound to lower numbers.
func (g *fakeGuard) sever(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for pid, n := range g.bound {
		if n < g.number {
			if _, err := g.control.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid); err != nil {
				t.Fatal(err)
			}
		}
	}
}

type fakePermit struct {
	term   guard.Term
	record guard.Record
	live   atomic.Bool
	once   sync.Once
	done   chan struct{}
	err    error
}

func (p *fakePermit) Term() guard.Term      { return p.term }
func (p *fakePermit) Record() guard.Record  { return p.record }
func (p *fakePermit) Live() bool            { return p.live.Load() }
func (p *fakePermit) Done() <-chan struct{} { return p.done }
func (p *fakePermit) Invalidate()           {}
func (p *fakePermit) Release()              { p.end(&guard.Refusal{Reason: guard.NoCredential}) }

func (p *fakePermit) AfterFunc(f func()) (stop func() bool) {
	stopped, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-p.done:
			f()
		case <-stopped:
		}
	}()
	return func() bool {
		close(stopped)
		<-over
		return true
	}
}

func (p *fakePermit) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

func (p *fakePermit) end(err error) {
	p.once.Do(func() {
		p.live.Store(false)
		p.err = err
		close(p.done)
	})
}

// A rig is a proxy before the shared server, with a database of the test's own.
type rig struct {
	t     *testing.T
	pg    *servers.Process
	db    string
	addr  string
	guard *fakeGuard
	admin *pgx.Conn // straight to the server, a superuser
	stop  func()
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	return newRigAt(t, testenv.SharedPostgres(t), change)
}

// newRigAt is a rig before a server of the caller's.
func newRigAt(t *testing.T, p *servers.Process, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, pg: p, db: testenv.Name(t, "db"), guard: &fakeGuard{}}
	root := connect(t, r.pg.DSN(servers.Superuser, "postgres"))
	mustExec(t, root, "CREATE DATABASE "+r.db)
	r.admin = connect(t, r.pg.DSN(servers.Superuser, r.db))
	mustExec(t, r.admin, "CREATE TABLE t (a int PRIMARY KEY, b text)")
	mustExec(t, r.admin, "DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
	mustExec(t, r.admin, "GRANT ALL ON SCHEMA public TO app; GRANT ALL ON t TO app; ALTER TABLE t OWNER TO app")
	pool, err := pgxpool.New(t.Context(), r.pg.DSN(servers.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r.guard.control = pool
	r.serve(change)
	return r
}

func (r *rig) serve(change func(*Config)) {
	r.t.Helper()
	cfg := Config{Upstream: r.pg.Addr, Guard: r.guard, Binder: r.guard, DefaultElection: "orders", Loops: loopstest.Start(r.t)}
	if change != nil {
		change(&cfg)
	}
	srv, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	l := testenv.Listen(r.t)
	r.addr = l.Addr().String()
	r.serveOn(srv, l)
}

func (r *rig) serveOn(srv *Server, l net.Listener) { r.stop = testenv.Serve(r.t, l, srv.Serve) }

// dsn is the proxy's connection URL, with more parameters appended.
func (r *rig) dsn(params string) string {
	return fmt.Sprintf("postgres://app@%s/%s?sslmode=disable%s", r.addr, r.db, params)
}

func (r *rig) connect(params string) *pgx.Conn {
	r.t.Helper()
	return connect(r.t, r.dsn(params))
}

// leader is a session bound from its start.
func (r *rig) leader() *pgx.Conn {
	r.t.Helper()
	return r.connect("&fence.token=" + r.guard.lead().Reveal())
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func mustExec(t *testing.T, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func queryString(t *testing.T, c *pgx.Conn, sql string, args ...any) string {
	t.Helper()
	var s string
	if err := c.QueryRow(t.Context(), sql, args...).Scan(&s); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return s
}

func (r *rig) rows() string {
	r.t.Helper()
	return queryString(r.t, r.admin, "SELECT coalesce(string_agg(a::text, ',' ORDER BY a), '') FROM t")
}
