package pg

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// realRig is a rig with the real guard, the real fence and elections in memory.
func realRig(t *testing.T, change ...func(*Config, election.Backend)) (*rig, election.Backend) {
	t.Helper()
	r := newRig(t, nil)
	r.stop()
	root := connect(t, r.pg.DSN(servers.Superuser, "postgres"))
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Login: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := root.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
	fence, err := pgfence.Open(t.Context(), r.pg.DSN(pgfence.DefaultRole, "postgres"), pgfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fence.Close)
	backend := memory.New()
	t.Cleanup(func() { _ = backend.Close() })
	g := guard.New(backend, fence, guard.Config{ValidateEvery: 50 * time.Millisecond, PermitFor: time.Second})
	t.Cleanup(g.Close)
	r.serve(func(c *Config) {
		c.Guard, c.Binder = Admit(g), fence
		c.DefaultElection = r.db // elections keep apart by test
		for _, f := range change {
			f(c, backend)
		}
	})
	return r, backend
}

func acquire(t *testing.T, b election.Backend, id, owner string) election.AcquireResult {
	t.Helper()
	g, err := b.Acquire(t.Context(), id, election.AcquireOptions{Owner: owner, TTL: time.Minute})
	if err != nil || g.Status != election.Acquired {
		t.Fatalf("%+v %v", g, err)
	}
	return g
}

// The whole path: bind, write, takeover by a second token, which severs the first; that one
// gets one clear FATAL, reconnects and reads.
func TestTakeover(t *testing.T) {
	r, b := realRig(t)
	first := acquire(t, b, r.db, "w1")
	old := r.connect("&fence.token=" + first.Token.Reveal())
	mustExec(t, old, "INSERT INTO t VALUES (1)")
	if got := queryString(t, old, "SHOW fence.number"); got != fmt.Sprint(first.Number) {
		t.Errorf("number %s, want %d", got, first.Number)
	}
	later := r.connect("")
	mustExec(t, later, "SET fence.token = '"+first.Token.Reveal()+"'")
	mustExec(t, later, "BEGIN")
	mustExec(t, later, "INSERT INTO t VALUES (2)")

	if _, err := b.Resign(t.Context(), r.db, first.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, b, r.db, "w2")
	next := r.connect("&fence.token=" + second.Token.Reveal())
	mustExec(t, next, "INSERT INTO t VALUES (3)")

	for _, c := range []string{"INSERT INTO t VALUES (4)", "COMMIT"} {
		conn := old
		if c == "COMMIT" {
			conn = later
		}
		// It was severed, or lost its permit first: vacant, or ruled by the second.
		_, err := conn.Exec(t.Context(), c)
		e := wantError(t, err, pick(err, "FP001", "FP002"), fmt.Sprintf("this session holds number %d", first.Number))
		if e.Severity != "FATAL" || !conn.IsClosed() {
			t.Errorf("%+v", e)
		}
	}
	if got := r.rows(); got != "1,3" {
		t.Errorf("rows %s", got)
	}
	stale := r.connect("&fence.token=" + first.Token.Reveal())
	if got := queryString(t, stale, "SELECT count(*)::text FROM t"); got != "2" {
		t.Error(got)
	}
	wantError(t, try(t, stale, "INSERT INTO t VALUES (5)"), "FP001", fmt.Sprintf("number %d rules", second.Number), `"w2"`)
	wantError(t, try(t, stale, "SET fence.token = '"+first.Token.Reveal()+"'"), "FP001")
	mustExec(t, stale, "SET fence.token = '"+second.Token.Reveal()+"'")
	mustExec(t, stale, "INSERT INTO t VALUES (6)")
	if got := r.rows(); got != "1,3,6" {
		t.Errorf("rows %s", got)
	}
}

// A takeover of one of several elections ends the sessions that hold it, whatever else they
// hold, and leaves those that do not.
func TestTakeoverOfOneOfSeveral(t *testing.T) {
	r, b := realRig(t, func(c *Config, _ election.Backend) { c.Rules, c.DefaultElection = testRules(t, ""), "" })
	for _, s := range []string{"billing", "invoices"} {
		mustExec(t, r.admin, fmt.Sprintf("CREATE SCHEMA %[1]s; GRANT ALL ON SCHEMA %[1]s TO app; CREATE TABLE %[1]s.t (a int); ALTER TABLE %[1]s.t OWNER TO app", s))
	}
	billing, invoices := acquire(t, b, "billing", "w1"), acquire(t, b, "invoices", "w1")
	with := func(election, token string) *pgx.Conn {
		return r.connect("&fence.election=" + election + "&fence.token=" + token)
	}
	both := with("billing,invoices", billing.Token.Reveal()+","+invoices.Token.Reveal())
	one := with("billing", billing.Token.Reveal())
	later := with("billing", billing.Token.Reveal())
	mustExec(t, later, "SET fence.election = 'invoices'; ")
	mustExec(t, later, "SET fence.token = '"+invoices.Token.Reveal()+"'")
	if got := queryString(t, later, "SHOW fence.number"); got != fmt.Sprintf("%d,%d", billing.Number, invoices.Number) {
		t.Error(got)
	}
	for _, c := range []*pgx.Conn{both, later} {
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "WITH x AS (INSERT INTO billing.t VALUES (1) RETURNING a) INSERT INTO invoices.t SELECT a FROM x")
	}
	if _, err := b.Resign(t.Context(), "invoices", invoices.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, b, "invoices", "w2")
	mustExec(t, with("invoices", second.Token.Reveal()), "INSERT INTO invoices.t VALUES (2)")
	for _, c := range []*pgx.Conn{both, later} {
		_, err := c.Exec(t.Context(), "COMMIT")
		e := wantError(t, err, pick(err, "FP001", "FP002"), `"invoices"`, fmt.Sprintf("this session holds number %d", invoices.Number))
		if e.Severity != "FATAL" || !c.IsClosed() {
			t.Errorf("%+v", e)
		}
	}
	mustExec(t, one, "INSERT INTO billing.t VALUES (3)")
	if got := r.count("billing.t") + r.count("invoices.t"); got != "11" {
		t.Errorf("rows %s", got)
	}
}

func pick(err error, states ...string) string {
	for _, s := range states {
		if err != nil && strings.Contains(err.Error(), s) {
			return s
		}
	}
	return states[0]
}

// A superuser's session could not be ended by a takeover, so it is not bound.
func TestSuperuserIsNotBound(t *testing.T) {
	r, b := realRig(t)
	g := acquire(t, b, r.db, "w1")
	c := connect(t, strings.Replace(r.dsn("&fence.token="+g.Token.Reveal()), "app@", "postgres@", 1))
	wantError(t, try(t, c, "INSERT INTO t VALUES (1)"), "FP007", "ordinary role")
	if got := r.rows(); got != "" {
		t.Error(got)
	}
}

// A lease that runs out ends the session's writing though nobody took over.
func TestLeaseRunsOut(t *testing.T) {
	r, b := realRig(t)
	g, err := b.Acquire(t.Context(), r.db, election.AcquireOptions{TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c := r.connect("&fence.token=" + g.Token.Reveal())
	mustExec(t, c, "INSERT INTO t VALUES (1)")
	err = waitClosed(t, c)
	e := wantError(t, err, "FP002", "nobody leads")
	if e.Severity != "FATAL" {
		t.Errorf("%+v", e)
	}
}

// A session whose server ends while its credential is being settled keeps no permit.
func TestServerEndsDuringABind(t *testing.T) {
	r := newRig(t, nil)
	token := r.guard.lead()
	r.guard.control = nil // the bind succeeds, though the process is gone
	binding, bind := make(chan struct{}), make(chan struct{})
	r.guard.onBind = func(int) error {
		close(binding)
		<-bind
		return nil
	}
	p := r.peer(false)
	p.send(appendQuery(nil, "SET fence.token = '"+token.Reveal()+"'"))
	<-binding
	mustExec(t, r.admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND usename = 'app'", r.db)
	p.rest() // the server's side is over
	close(bind)
	r.stop()
	for _, permit := range r.guard.permits {
		if permit.Live() {
			t.Error("a permit was kept")
		}
	}
	if n := len(r.guard.permits); n != 1 {
		t.Errorf("%d permits", n)
	}
	if n := r.guard.boundSessions(); n != 0 {
		t.Errorf("%d sessions stay bound", n)
	}
}
