package pg

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// wantError checks an error's SQLSTATE and that its texts hold what they should.
func wantError(t *testing.T, err error, state string, words ...string) *pgconn.PgError {
	t.Helper()
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want SQLSTATE %s", err, state)
	}
	all := e.Message + "\n" + e.Detail + "\n" + e.Hint
	if e.Code != state {
		t.Errorf("SQLSTATE %s, want %s\n%s", e.Code, state, all)
	}
	for _, w := range words {
		if !strings.Contains(all, w) {
			t.Errorf("%q is not in:\n%s", w, all)
		}
	}
	if strings.Contains(all, "fenceproxy_") {
		t.Errorf("the marker is seen:\n%s", all)
	}
	return e
}

func try(t *testing.T, c *pgx.Conn, sql string) error {
	t.Helper()
	_, err := c.Exec(t.Context(), sql)
	return err
}

func TestReaderReadsAndIsRefused(t *testing.T) {
	r := newRig(t, nil)
	for _, mode := range []string{"", "&default_query_exec_mode=simple_protocol", "&default_query_exec_mode=exec", "&default_query_exec_mode=describe_exec"} {
		c := r.connect(mode)
		if got := queryString(t, c, "SELECT 'x'"); got != "x" {
			t.Error(got)
		}
		err := try(t, c, "INSERT INTO t VALUES (1)")
		wantError(t, err, "25006", `no live token of election "orders"`, "INSERT", "Present the live token")
		// The session is in step and goes on.
		if got := queryString(t, c, "SELECT 'y'"); got != "y" {
			t.Error(got)
		}
		if got := queryString(t, c, "SHOW fence.status"); got != "reader" {
			t.Error(got)
		}
		if s := c.PgConn().ParameterStatus("default_transaction_read_only"); s != "on" {
			t.Errorf("reported %q", s)
		}
	}
	if got := r.rows(); got != "" {
		t.Error(got)
	}
}

func TestLeaderWrites(t *testing.T) {
	r := newRig(t, nil)
	token := r.guard.lead().Reveal()
	for i, params := range []string{
		"&fence.token=" + token,
		"&fence.election=orders&fence.token=" + token,
		"&options=-c%20fence.election%3Dorders%20-c%20fence.token%3D" + token,
		"&options=--fence.token%3D" + token + "%20-c%20work_mem%3D1MB",
		"&Fence.Token=" + token + "&default_query_exec_mode=simple_protocol",
		"&default_transaction_read_only=off&fence.token=" + token,
	} {
		c := r.connect(params)
		mustExec(t, c, "INSERT INTO t VALUES ($1)", i)
		for setting, want := range map[string]string{"fence.status": "bound", "fence.election": "orders", "fence.number": "1",
			"fence.token": "[token]", "default_transaction_read_only": "off"} {
			if got := queryString(t, c, "SHOW "+setting); got != want {
				t.Errorf("%s is %q", setting, got)
			}
		}
		if s := c.PgConn().ParameterStatus("default_transaction_read_only"); s != "off" {
			t.Errorf("reported %q", s)
		}
	}
	if got := r.rows(); got != "0,1,2,3,4,5" {
		t.Error(got)
	}
}

func TestSetBindsLater(t *testing.T) {
	r := newRig(t, nil)
	token := r.guard.lead().Reveal()
	for i, c := range []struct {
		params string
		sets   []string
	}{
		{"", []string{"SET fence.token = '" + token + "'"}},
		{"", []string{"SET fence.election TO orders", "SET SESSION fence.token TO '" + token + "'"}},
		{"", []string{"SET fence.token = '" + token + "'"}},
		{"&default_query_exec_mode=simple_protocol", []string{"SET fence.election='orders'; SET fence.token='" + token + "';"}},
		{"&default_query_exec_mode=exec", []string{"SET fence.token = '" + token + "'", "SET fence.token = '" + token + "'"}},
		{"&default_query_exec_mode=simple_protocol", []string{`/* x */ SET U&"\0066ence" . "token" = '` + token + "'"}},
	} {
		conn := r.connect(c.params)
		wantError(t, try(t, conn, "INSERT INTO t VALUES (100)"), "25006")
		for _, s := range c.sets {
			mustExec(t, conn, s)
		}
		mustExec(t, conn, "INSERT INTO t VALUES ($1)", i)
		if got := queryString(t, conn, "SHOW fence.status"); got != "bound" {
			t.Error(got)
		}
		wantError(t, try(t, conn, "SET fence.token = '"+election.NewToken().Reveal()+"'"), "55000", `bound to election "orders" with number 1`)
	}
	if got := r.rows(); got != "0,1,2,3,4,5" {
		t.Error(got)
	}
}

func TestSetIsRefused(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Elections = []string{"orders", "other"} })
	r.guard.lead()
	token := r.guard.lead().Reveal()
	simple := "&default_query_exec_mode=simple_protocol"
	for _, params := range []string{"", simple} {
		c := r.connect(params)
		wantError(t, try(t, c, "SET fence.token = '"+election.NewToken().Reveal()+"'"), "FP001", "number 1", "number 2 rules", `"w2"`)
		// From now on writes are refused with that reason.
		wantError(t, try(t, c, "DELETE FROM t"), "FP001", "number 2 rules", "DELETE")
		wantError(t, try(t, c, "SET fence.token = 'short'"), "FP010", "length")
		wantError(t, try(t, c, "SET LOCAL fence.token = '"+token+"'"), "FP010")
		wantError(t, try(t, c, "RESET fence.token"), "FP010")
		wantError(t, try(t, c, "SET fence.tok = '"+token+"'"), "FP010")
		wantError(t, try(t, c, "SELECT set_config('fence.token', '"+token+"', false)"), "FP010")
		wantError(t, try(t, c, "SET fence.election = 'invoices'; SET fence.token = '"+token+"'"), "FP008")
		if params == simple {
			wantError(t, try(t, c, "SET fence.token = '"+token+"'; SELECT 1"), "FP010", "beside other statements")
		}
		mustExec(t, c, "BEGIN")
		wantError(t, try(t, c, "SET fence.token = '"+token+"'"), "25001")
		mustExec(t, c, "ROLLBACK")
		mustExec(t, c, "SET fence.token = '"+token+"'")
		mustExec(t, c, "DELETE FROM t")
	}
}

func TestRefusedCredentialAtConnectWarns(t *testing.T) {
	r := newRig(t, func(c *Config) { c.DefaultElection = "" })
	r.guard.lead()
	for params, state := range map[string]string{
		"&fence.election=orders&fence.token=" + election.NewToken().Reveal(): "FP001",
		"&fence.election=orders&fence.token=bad":                             "FP010",
		"&fence.token=" + election.NewToken().Reveal():                       "FP010",
		"&fence.election=%20&fence.token=" + election.NewToken().Reveal():    "FP010",
	} {
		cfg, err := pgx.ParseConfig(r.dsn(params))
		if err != nil {
			t.Fatal(err)
		}
		var notices []*pgconn.Notice
		cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n) }
		c, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if len(notices) != 1 || notices[0].Severity != "WARNING" || notices[0].Code != state {
			t.Errorf("notices %+v, want one WARNING %s", notices, state)
		}
		wantError(t, try(t, c, "INSERT INTO t VALUES (1)"), state)
		if got := queryString(t, c, "SELECT 'reads'"); got != "reads" {
			t.Error(got)
		}
		_ = c.Close(t.Context())
	}
}

func TestBindRefused(t *testing.T) {
	r := newRig(t, nil)
	token := r.guard.lead().Reveal()
	r.guard.bindErr = &guard.Refusal{Reason: guard.Unseverable, Election: "orders", Detail: "a superuser"}
	c := r.connect("&fence.token=" + token)
	wantError(t, try(t, c, "INSERT INTO t VALUES (1)"), "FP007", "superuser")
	if got := r.rows(); got != "" {
		t.Error(got)
	}
}

// A permit that ends while the bind is under way lets nothing through.
func TestPermitEndsDuringBind(t *testing.T) {
	r := newRig(t, nil)
	token := r.guard.lead().Reveal()
	r.guard.onBind = func(int) error {
		r.guard.mu.Lock()
		defer r.guard.mu.Unlock()
		for _, p := range r.guard.permits {
			p.live.Store(false) // expired; no one has noticed
		}
		return nil
	}
	c := r.connect("&fence.token=" + token)
	wantError(t, try(t, c, "INSERT INTO t VALUES (1)"), "FP003")
	if got := queryString(t, c, "SHOW default_transaction_read_only"); got != "on" {
		t.Error(got)
	}
	if got := r.rows(); got != "" {
		t.Error(got)
	}
}

// A fence that moved between admission and bind is asked for again, a few times.
func TestBindConflict(t *testing.T) {
	r := newRig(t, nil)
	token := r.guard.lead().Reveal()
	conflict := &guard.Refusal{Reason: guard.FenceUnavailable, Election: "orders", Err: guard.ErrConflict}
	r.guard.onBind = func(n int) error {
		if n < bindTries {
			return conflict
		}
		return nil
	}
	mustExec(t, r.connect("&fence.token="+token), "INSERT INTO t VALUES (1)")
	if r.guard.admits != bindTries {
		t.Errorf("admitted %d times", r.guard.admits)
	}
	r.guard.onBind = func(int) error { return conflict }
	wantError(t, try(t, r.connect("&fence.token="+token), "INSERT INTO t VALUES (2)"), "FP004")
	if got := r.rows(); got != "1" {
		t.Error(got)
	}
}

func TestLossOfPermitEndsTheSession(t *testing.T) {
	r := newRig(t, nil)
	idle, busy := r.leader(), r.connect("&fence.token="+r.guard.leader.Reveal())
	mustExec(t, busy, "BEGIN")
	mustExec(t, busy, "INSERT INTO t VALUES (1)")
	r.guard.lead()
	r.guard.endPermits(guard.Stale)
	for _, c := range []*pgx.Conn{idle, busy} {
		e := wantError(t, try(t, c, "INSERT INTO t VALUES (2)"), "FP001", "holds number 1", "number 2 rules", `held by "w2"`, "Stop writing")
		if e.Severity != "FATAL" {
			t.Error(e.Severity)
		}
		if !c.IsClosed() {
			t.Error("still open")
		}
	}
	if got := r.rows(); got != "" {
		t.Error(got)
	}
	// It reconnects, and reads.
	if got := queryString(t, r.connect("&fence.token="+election.NewToken().Reveal()), "SELECT 'reads'"); got != "reads" {
		t.Error(got)
	}
}

// A permit whose time ran out while nobody noticed (a stopped process) is looked at
// before each write. Taking the look out lets the row in.
func TestDeadPermitWithoutNoticeWritesNothing(t *testing.T) {
	r := newRig(t, nil)
	c := r.leader()
	mustExec(t, c, "INSERT INTO t VALUES (1)")
	r.guard.permits[0].live.Store(false)
	wantError(t, try(t, c, "INSERT INTO t VALUES (2)"), "FP003")
	if got := r.rows(); got != "1" {
		t.Error(got)
	}
}

func TestSeverIsExplained(t *testing.T) {
	r := newRig(t, nil)
	c := r.leader()
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "INSERT INTO t VALUES (1)")
	r.guard.lead()
	r.guard.sever(t) // the permit does not know yet
	e := wantError(t, try(t, c, "COMMIT"), "FP001", "holds number 1", "number 2 rules")
	if e.Severity != "FATAL" {
		t.Error(e.Severity)
	}
	if got := r.rows(); got != "" {
		t.Error(got)
	}
}

func TestOrdinaryTerminationPassesUnchanged(t *testing.T) {
	r := newRig(t, nil)
	c := r.leader()
	mustExec(t, r.admin, "SELECT pg_terminate_backend($1)", int32(c.PgConn().PID()))
	wantError(t, try(t, c, "SELECT 1"), "57P01", "terminating connection due to administrator command")
}

func TestUnbindsWhenTheServerClosed(t *testing.T) {
	r := newRig(t, nil)
	c := r.leader()
	if n := r.guard.boundSessions(); n != 1 {
		t.Fatal(n)
	}
	_ = c.Close(t.Context())
	r.stop()
	if n := r.guard.boundSessions(); n != 0 {
		t.Error(n)
	}
}

func TestShutdown(t *testing.T) {
	r := newRig(t, nil)
	rests, works := r.connect(""), r.leader()
	mustExec(t, works, "BEGIN")
	mustExec(t, works, "INSERT INTO t VALUES (1)")
	stopped := make(chan struct{})
	go func() { r.stop(); close(stopped) }()
	wantError(t, waitClosed(t, rests), "57P01", "shutting down")
	mustExec(t, works, "COMMIT")
	wantError(t, try(t, works, "SELECT 1"), "57P01")
	<-stopped
	if got := r.rows(); got != "1" {
		t.Error(got)
	}
}

// waitClosed waits for the server's last words on an idle connection.
func waitClosed(t *testing.T, c *pgx.Conn) error {
	t.Helper()
	err := c.PgConn().WaitForNotification(t.Context())
	return err
}
