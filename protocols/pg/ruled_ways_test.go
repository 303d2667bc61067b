package pg

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

const simply = "&default_query_exec_mode=simple_protocol"

// sends sends messages and a Sync, and returns the errors.
func sends(t *testing.T, c *pgx.Conn, all ...pgproto3.FrontendMessage) []string {
	t.Helper()
	for _, m := range append(all, &pgproto3.Sync{}) {
		c.PgConn().Frontend().Send(m)
	}
	return flushAndSync(t, c, 1)
}

// What makes a transaction read-write for open tables is the proxy's own: where an error left
// it at the server, no client runs it, and the next such transaction still begins.
func TestOpenStatementIsTheProxysOwn(t *testing.T) {
	r := newOpenRig(t)
	for name, own := range map[string][]pgproto3.FrontendMessage{
		"Bind":    {&pgproto3.Bind{PreparedStatement: "fenceproxy_open"}, &pgproto3.Execute{}},
		"EXECUTE": {&pgproto3.Parse{Query: "EXECUTE fenceproxy_open"}, &pgproto3.Bind{}, &pgproto3.Execute{}},
	} {
		c := r.connect(simply)
		write := &pgproto3.Parse{Name: "w", Query: "INSERT INTO scratch.t VALUES (3)"}
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "SELECT count(*) FROM billing.t")
		if errs := sends(t, c, write); len(errs) != 1 {
			t.Errorf("%s: %q", name, errs)
		}
		mustExec(t, c, "ROLLBACK")
		mustExec(t, c, "BEGIN")
		if errs := sends(t, c, own...); len(errs) != 1 {
			t.Errorf("%s: %q", name, errs)
		}
		_ = try(t, c, "SELECT billing.writes()")
		mustExec(t, c, "COMMIT")
		if errs := sends(t, c, write, &pgproto3.Bind{PreparedStatement: "w"}, &pgproto3.Execute{}); len(errs) != 0 {
			t.Errorf("%s: %q", name, errs)
		}
	}
	if got := r.count("billing.t"); got != "0" {
		t.Errorf("billing: %s", got)
	}
	if got := r.count("scratch.t"); got != "2" {
		t.Errorf("scratch: %s", got)
	}
}

// A name that is given up and prepared again in one text stands for something.
func TestRulesOfDeallocateAndPrepare(t *testing.T) {
	r := newRuledRig(t)
	for _, give := range []string{"DEALLOCATE p", "DEALLOCATE ALL"} {
		c := r.holds(simply, "billing")
		mustExec(t, c, "SET search_path = billing")
		mustExec(t, c, "PREPARE p AS SELECT 1")
		mustExec(t, c, give+"; PREPARE p AS INSERT INTO t VALUES (1)")
		mustExec(t, c, "SET search_path = invoices")
		wantError(t, try(t, c, "EXECUTE p"), "25006", `election "invoices"`)
	}
	if got := r.count("invoices.t"); got != "0" {
		t.Error(got)
	}
}

// A prepared statement whose name is other bytes in another encoding is not kept by its name.
func TestRulesOfNamesInOtherEncodings(t *testing.T) {
	r := newRuledRig(t)
	c := r.holds(simply, "billing")
	mustExec(t, c, "SET search_path = billing")
	wantError(t, try(t, c, "PREPARE \"\u00e9\" AS INSERT INTO t VALUES (1)"), "42622")
	wantError(t, try(t, c, "PREPARE s12345678901234567890123456789012345678901234567890123456789 AS INSERT INTO t VALUES (1)"), "42622")
	wantError(t, try(t, c, "EXECUTE \"\u00e9\""), "42622")
	if errs := sends(t, c, &pgproto3.Parse{Name: "\u00e9", Query: "INSERT INTO t VALUES (1)"}); len(errs) != 1 {
		t.Errorf("%q", errs)
	}
	mustExec(t, c, "PREPARE p AS INSERT INTO t VALUES (1)")
	mustExec(t, c, "BEGIN")
	if errs := sends(t, c, &pgproto3.Parse{Query: "EXECUTE p"}, &pgproto3.Bind{DestinationPortal: "\u00e9"}); len(errs) != 1 {
		t.Errorf("%q", errs)
	}
	mustExec(t, c, "ROLLBACK")
	mustExec(t, c, "SET client_encoding = 'LATIN1'")
	mustExec(t, c, "SET search_path = invoices")
	if errs := sends(t, c, &pgproto3.Bind{PreparedStatement: "\xe9"}, &pgproto3.Execute{}); len(errs) != 1 {
		t.Errorf("%q", errs)
	}
	if got := r.count("invoices.t"); got != "0" {
		t.Error(got)
	}
}

// A portal that ends the transaction, or goes back in it, takes the search_path with it when it is run.
func TestRulesOfPortalsThatEnd(t *testing.T) {
	r := newRuledRig(t)
	for _, end := range []string{"COMMIT", "ROLLBACK", "ROLLBACK TO s"} {
		c := r.holds(simply, "billing")
		for _, sql := range []string{"SET search_path = invoices", "BEGIN", "SAVEPOINT s", "SET LOCAL search_path = billing"} {
			mustExec(t, c, sql)
		}
		errs := sends(t, c, &pgproto3.Parse{Name: "end", Query: end}, &pgproto3.Bind{PreparedStatement: "end", DestinationPortal: "end"})
		errs = append(errs, sends(t, c, &pgproto3.Parse{Name: "write", Query: "INSERT INTO t VALUES (1)"})...)
		if len(errs) != 0 {
			t.Errorf("%s: %q", end, errs)
		}
		errs = sends(t, c, &pgproto3.Execute{Portal: "end"}, &pgproto3.Bind{PreparedStatement: "write"}, &pgproto3.Execute{})
		if len(errs) != 1 {
			t.Errorf("%s: %q", end, errs)
		}
		mustExec(t, c, "COMMIT")
	}
	if got := r.count("invoices.t"); got != "0" {
		t.Error(got)
	}
}

// $user in a path that the text sets stands for whoever the session is then.
func TestRulesOfUserInThePath(t *testing.T) {
	r := newRuledRig(t)
	mustExec(t, r.admin, `DO $$ BEGIN CREATE ROLE tenant_u; EXCEPTION WHEN duplicate_object THEN NULL; END $$; GRANT tenant_u TO app; GRANT USAGE ON SCHEMA billing TO tenant_u;
		CREATE SCHEMA tenant_u AUTHORIZATION tenant_u; CREATE TABLE tenant_u.t (a int); ALTER TABLE tenant_u.t OWNER TO tenant_u`)
	c := r.holds(simply, "billing")
	for _, sql := range []string{
		`SET ROLE tenant_u; SET search_path = "$user", billing; INSERT INTO t VALUES (1)`,
		`SET search_path = "$user", billing; INSERT INTO t VALUES (1)`,
	} {
		wantError(t, try(t, c, sql), "FP009")
		mustExec(t, c, "SET ROLE tenant_u")
	}
	if got := r.count("tenant_u.t"); got != "0" {
		t.Error(got)
	}
}

// A sequence that is named by its number may be any.
func TestRulesOfSequencesByNumber(t *testing.T) {
	r := newRuledRig(t)
	mustExec(t, r.admin, "CREATE SEQUENCE invoices.s; GRANT ALL ON SEQUENCE invoices.s TO app")
	n := queryString(t, r.admin, "SELECT 'invoices.s'::regclass::oid::text")
	bound, open := r.holds(simply, "billing"), r.connect(simply)
	mustExec(t, bound, "SET search_path = billing")
	mustExec(t, open, "SET search_path = scratch")
	for _, sql := range []string{"SELECT setval('" + n + "', 77)", "SELECT setval(" + n + ", 77)", "SELECT nextval('" + n + "'::regclass)"} {
		wantError(t, try(t, bound, sql), "FP009", "not named")
		wantError(t, try(t, open, sql), "FP009", "not named")
	}
	if got := queryString(t, r.admin, "SELECT last_value::text FROM invoices.s"); got != "1" {
		t.Error(got)
	}
}

// Nobody makes a view of one's own to write what is under it.
func TestRulesOfViewsOfOnesOwn(t *testing.T) {
	r := newRuledRig(t)
	c := r.holds(simply, "billing")
	for _, view := range []string{"TEMP VIEW v", "VIEW pg_temp.v", "VIEW billing.v"} {
		wantError(t, try(t, c, "CREATE "+view+" AS SELECT * FROM invoices.t"), "25006", `election "invoices"`)
		_, name, _ := strings.Cut(view, "VIEW ")
		if name == "v" {
			name = "pg_temp.v"
		}
		_ = try(t, c, "INSERT INTO "+name+" VALUES (1)")
	}
	if got := r.count("invoices.t"); got != "0" {
		t.Error(got)
	}
}

// Nobody makes a trigger of another's function to write by it.
func TestRulesOfTriggersOfOnesOwn(t *testing.T) {
	r := newRuledRig(t)
	mustExec(t, r.admin, `CREATE FUNCTION public.fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO invoices.t VALUES (9); RETURN NEW; END $$`)
	c := r.holds(simply, "billing")
	for _, table := range []string{"billing.t", "pg_temp.x"} {
		mustExec(t, c, "CREATE TEMP TABLE IF NOT EXISTS x (a int)")
		wantError(t, try(t, c, "CREATE TRIGGER x BEFORE INSERT ON "+table+" FOR EACH ROW EXECUTE FUNCTION public.fires()"), "FP009", "public.fires")
		mustExec(t, c, "INSERT INTO "+table+" VALUES (1)")
	}
	if got := r.count("invoices.t"); got != "0" {
		t.Error(got)
	}
}
