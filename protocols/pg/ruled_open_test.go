package pg

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/policy"
)

// newOpenRig is a ruled rig whose tables have what a session without a token must not reach.
func newOpenRig(t *testing.T) *rig {
	t.Helper()
	r := newRuledRig(t)
	mustExec(t, r.admin, `CREATE SEQUENCE scratch.s; GRANT ALL ON SEQUENCE scratch.s TO app;
		CREATE VIEW billing.calls AS SELECT billing.writes() AS a; GRANT ALL ON billing.calls TO app;
		CREATE FUNCTION public.calls() RETURNS int LANGUAGE sql AS 'SELECT billing.writes()';
		CREATE DOMAIN public.checked AS int CHECK (value < billing.writes())`)
	return r
}

// Everybody writes what a rule opens, and the server still holds back all else.
func TestOpenTables(t *testing.T) {
	r := newOpenRig(t)
	for _, mode := range allModes {
		c := r.connect(mode)
		for _, sql := range []string{
			"INSERT INTO scratch.t VALUES (1)",
			"INSERT INTO scratch.t SELECT a + 1 FROM scratch.t WHERE a = 1",
			"INSERT INTO scratch.t VALUES (nextval('scratch.s'))",
			"UPDATE scratch.t SET a = a + 1",
			"DELETE FROM scratch.t WHERE a = (SELECT max(a) FROM scratch.t)",
			"SELECT a FROM scratch.t FOR UPDATE",
			"SELECT a INTO scratch.made FROM scratch.t",
			"TRUNCATE scratch.t",
			"SET search_path = scratch",
			"INSERT INTO t VALUES (1)",
			"RESET search_path",
		} {
			mustExec(t, c, sql)
			if got := queryString(t, c, "SHOW transaction_read_only") + queryString(t, c, "SHOW default_transaction_read_only"); got != "onon" {
				t.Fatalf("%s\n\tleaves %s", sql, got)
			}
		}
		mustExec(t, r.admin, "DROP TABLE scratch.made")
		if got := r.count("scratch.t"); got != "1" {
			t.Error(got)
		}
		if s := c.PgConn().ParameterStatus("default_transaction_read_only"); s != "on" {
			t.Errorf("reported %q", s)
		}

		// In a transaction, which has to begin with it.
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "INSERT INTO scratch.t VALUES (2)")
		mustExec(t, c, "SAVEPOINT s")
		mustExec(t, c, "INSERT INTO scratch.t VALUES (3)")
		mustExec(t, c, "ROLLBACK TO s")
		if got := queryString(t, c, "SELECT count(*)::text FROM scratch.t"); got != "2" {
			t.Error(got)
		}
		wantError(t, try(t, c, "SELECT count(*) FROM billing.t"), "25006", "billing.t", "open tables")
		mustExec(t, c, "ROLLBACK")
		if got := r.count("scratch.t"); got != "1" {
			t.Error(got)
		}
		mustExec(t, c, "BEGIN")
		if got := queryString(t, c, "SELECT count(*)::text FROM billing.t"); got != "0" {
			t.Error(got)
		}
		wantError(t, try(t, c, "INSERT INTO scratch.t VALUES (2)"), "25006", "has read something", "Begin the transaction")
		mustExec(t, c, "ROLLBACK")

		// The server's own errors point to where they belong.
		e := wantError(t, try(t, c, "INSERT INTO scratch.t VALUES (nothing)"), "42703", "nothing")
		if e.Position != 31 {
			t.Errorf("position %d", e.Position)
		}
		wantError(t, try(t, c, "INSERT INTO scratch.absent VALUES (1)"), "42P01", "absent")
		wantError(t, try(t, c, "INSERT INTO scratch.t VALUES (1 / 0)"), "22012")

		for _, sql := range []string{
			"INSERT INTO scratch.t SELECT a FROM billing.t",         // may be a view
			"INSERT INTO scratch.t SELECT a FROM billing.calls",     // is one
			"INSERT INTO scratch.t VALUES (billing.writes())",       // is ruled
			"INSERT INTO scratch.t VALUES (public.moves())",         // is not
			"INSERT INTO scratch.t VALUES (1::public.checked)",      // calls
			"INSERT INTO scratch.t VALUES ('1'::checked)",           // calls
			"INSERT INTO scratch.t VALUES (1 OPERATOR(public.+) 1)", // may call
			"CREATE TABLE scratch.new AS SELECT 1 AS a",             // is more than its words
			"DROP TABLE scratch.t",                                  // so is this
			"ALTER TABLE scratch.t ADD b checked",                   // and this
			"TRUNCATE scratch.t CASCADE",                            // and this
			"WITH x AS (DELETE FROM billing.t RETURNING a) INSERT INTO scratch.t SELECT a FROM x",
			"INSERT INTO scratch.t SELECT length(set_config('default_transaction_read_only', 'off', false))",
			"INSERT INTO scratch.t SELECT 1 FROM table_to_xml('billing.calls', true, false, '') x",
			"INSERT INTO t VALUES (1)",
		} {
			err := try(t, c, sql)
			if !byRules(err) {
				t.Errorf("%s\n\t%v", sql, err)
			}
		}
		if strings.Contains(mode, "simple") {
			wantError(t, try(t, c, "INSERT INTO scratch.t VALUES (1); SELECT 1"), "25006", "several statements")
			wantError(t, try(t, c, "BEGIN; INSERT INTO scratch.t VALUES (1); COMMIT"), "25006", "several statements")
		}
		mustExec(t, r.admin, "TRUNCATE scratch.t")
	}
	if got := r.count("billing.t"); got != "0" {
		t.Errorf("billing: %s", got)
	}
}

// Nothing that was prepared, bound or opened before is run in a transaction that was made
// read-write for open tables, unless it could be sent there.
func TestOpenTransactionRunsNothingElse(t *testing.T) {
	r := newOpenRig(t)
	c := r.connect("")
	prepare := func(name, sql string) {
		t.Helper()
		if _, err := c.Prepare(t.Context(), name, sql); err != nil {
			t.Fatal(err)
		}
	}
	prepare("write", "INSERT INTO scratch.t VALUES ($1)")
	prepare("call", "SELECT public.calls()")
	prepare("look", "SELECT count(*)::text FROM scratch.t")
	mustExec(t, c, "PREPARE q AS SELECT public.calls()")
	wantError(t, try(t, c, "call"), "25006") // by the server: it is a reader
	mustExec(t, c, "write", 1)
	if got := queryString(t, c, "look"); got != "1" {
		t.Error(got)
	}
	for _, sql := range []string{"call", "EXECUTE call", "EXECUTE q", "SELECT public.calls()", "SELECT * FROM billing.calls", "EXPLAIN ANALYZE SELECT public.calls()", "DECLARE x CURSOR FOR SELECT public.calls()"} {
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "write", 2)
		if got := queryString(t, c, "look"); got != "2" {
			t.Error(got)
		}
		wantError(t, try(t, c, sql), "25006", "open tables")
		mustExec(t, c, "ROLLBACK")
	}
	// A portal of a statement that takes no snapshot is bound before the transaction may write.
	b := c.PgConn().Frontend()
	b.Send(&pgproto3.Query{String: "BEGIN"})
	b.Send(&pgproto3.Parse{Name: "late", Query: "COPY (SELECT public.calls()) TO STDOUT"})
	b.Send(&pgproto3.Bind{DestinationPortal: "late", PreparedStatement: "late"})
	b.Send(&pgproto3.Sync{})
	flushAndSync(t, c, 2)
	b.Send(&pgproto3.Parse{Name: "now", Query: "INSERT INTO scratch.t VALUES (3)"})
	b.Send(&pgproto3.Bind{PreparedStatement: "now"})
	b.Send(&pgproto3.Execute{})
	b.Send(&pgproto3.Sync{})
	flushAndSync(t, c, 1)
	b.Send(&pgproto3.Execute{Portal: "late"})
	b.Send(&pgproto3.Sync{})
	if errs := flushAndSync(t, c, 1); len(errs) != 1 || !strings.Contains(errs[0], "open tables") {
		t.Errorf("%q", errs)
	}
	mustExec(t, c, "ROLLBACK")
	if got := r.count("billing.t"); got != "0" {
		t.Errorf("billing: %s", got)
	}
}

// What a reader prepared is judged by the rules once the session is bound.
func TestRulesOfWhatWasPreparedBefore(t *testing.T) {
	r := newOpenRig(t)
	rules, err := policy.NewRules([]policy.Rule{{Kind: policy.Table, Patterns: []string{"*.*"}, Election: "invoices"},
		{Kind: policy.Function, Patterns: []string{"billing.*"}, Election: "billing"}}, "", election.CheckID)
	if err != nil {
		t.Fatal(err)
	}
	r.serve(func(c *Config) { c.Rules, c.DefaultElection = rules, "" })
	c := r.connect("")
	for name, sql := range map[string]string{"call": "SELECT public.calls()", "look": "SELECT count(*)::text FROM billing.t"} {
		if _, err := c.Prepare(t.Context(), name, sql); err != nil {
			t.Fatal(err)
		}
	}
	mustExec(t, c, "PREPARE q AS SELECT public.calls()")
	token := r.guard.lead().Reveal()
	mustExec(t, c, "SET fence.election = 'invoices'")
	mustExec(t, c, "SET fence.token = '"+token+"'")
	wantError(t, try(t, c, "call"), "25006", `election "billing"`)
	wantError(t, try(t, c, "EXECUTE q"), "25006", `election "billing"`)
	mustExec(t, c, "INSERT INTO scratch.t VALUES (1)")
	if got := queryString(t, c, "look"); got != "0" {
		t.Errorf("billing: %s", got)
	}
}

// What the server plans only when it runs it is judged by the path that rules then.
func TestRulesOfPortals(t *testing.T) {
	r := newOpenRig(t)
	mustExec(t, r.admin, "INSERT INTO invoices.t VALUES (1); INSERT INTO billing.t VALUES (1)")
	for _, open := range []bool{true, false} {
		c, path := r.connect(""), "scratch"
		if !open {
			c, path = r.holds("", "billing"), "billing"
		}
		for _, sql := range []string{"TRUNCATE t", "EXECUTE q"} {
			mustExec(t, c, "SET search_path = "+path)
			if sql == "EXECUTE q" {
				mustExec(t, c, "PREPARE q AS DELETE FROM t")
			}
			f := c.PgConn().Frontend()
			f.Send(&pgproto3.Query{String: "BEGIN"})
			f.Send(&pgproto3.Sync{})
			flushAndSync(t, c, 2)
			f.Send(&pgproto3.Parse{Query: "DELETE FROM " + path + ".t"}) // opens the transaction
			f.Send(&pgproto3.Bind{})
			f.Send(&pgproto3.Execute{})
			f.Send(&pgproto3.Sync{})
			flushAndSync(t, c, 1)
			f.Send(&pgproto3.Parse{Name: "late", Query: sql})
			f.Send(&pgproto3.Bind{PreparedStatement: "late", DestinationPortal: "late"})
			f.Send(&pgproto3.Sync{})
			if errs := flushAndSync(t, c, 1); len(errs) != 0 {
				t.Errorf("open %v: %s: %q", open, sql, errs)
			}
			f.Send(&pgproto3.Query{String: "SET search_path = invoices"})
			flushAndSync(t, c, 1)
			f.Send(&pgproto3.Execute{Portal: "late"})
			f.Send(&pgproto3.Sync{})
			if errs := flushAndSync(t, c, 1); len(errs) != 1 || !strings.Contains(errs[0], "write refused") {
				t.Errorf("open %v: %s: %q", open, sql, errs)
			}
			mustExec(t, c, "ROLLBACK")
			mustExec(t, c, "DEALLOCATE late")
		}
	}
	if got := r.count("invoices.t") + r.count("billing.t"); got != "11" {
		t.Errorf("rows: %s", got)
	}
}

// A statement of which nothing is kept, or not all, is not bound in an open transaction.
func TestOpenTransactionBindsNothingUnknown(t *testing.T) {
	for _, lost := range []bool{false, true} {
		d := loggedIn()
		d.c.ruled = &ruling{rules: ordersRules(), lost: lost, open: openTransaction{is: true}}
		if lost {
			d.c.ruled.keep("s", d.c.sql.Targets([]byte("SELECT 1")), false)
		}
		d.client(bindTo("", "s"))
		if got := show(d.up, true); !strings.Contains(got, "fenceproxy_") {
			t.Errorf("lost %v: upstream went %s", lost, got)
		}
	}
}

// flushAndSync sends what is queued, waits for so many ReadyForQuery, and returns the errors.
func flushAndSync(t *testing.T, c *pgx.Conn, ready int) (errs []string) {
	t.Helper()
	f := c.PgConn().Frontend()
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	for ready > 0 {
		m, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *pgproto3.ReadyForQuery:
			ready--
		case *pgproto3.ErrorResponse:
			errs = append(errs, m.Message)
		}
	}
	return errs
}
