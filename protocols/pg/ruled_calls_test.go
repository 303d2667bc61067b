package pg

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// A reader calls functions, but none that a rule names, by whatever way: the server would run
// it read-only, and it could still hold a lock that the leader needs.
func TestReadersCallNoRuledFunctions(t *testing.T) {
	rules, err := policy.NewRules([]policy.Rule{
		{Kind: policy.Table, Patterns: []string{"*.*"}, Election: "orders"},
		{Kind: policy.Function, Patterns: []string{"billing.*"}, Election: "billing"},
		{Kind: policy.Function, Patterns: []string{"secret.*"}, Access: policy.Deny},
		{Kind: policy.Function, Patterns: []string{"scratch.*"}, Access: policy.Open},
	}, "", election.CheckID)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) { c.Rules = rules })
	for _, schema := range []string{"billing", "secret", "scratch", "other"} {
		mustExec(t, r.admin, "CREATE SCHEMA "+schema+"; GRANT USAGE ON SCHEMA "+schema+" TO app;"+
			"CREATE FUNCTION "+schema+".locks() RETURNS text LANGUAGE sql AS $$ SELECT pg_try_advisory_lock(42)::text $$")
	}
	for _, mode := range allModes {
		c := r.connect(mode)
		for _, sql := range []string{
			"SELECT billing.locks()",
			"PREPARE q AS SELECT billing.locks()",
			"DECLARE q CURSOR WITH HOLD FOR SELECT billing.locks()",
			"EXPLAIN ANALYZE SELECT billing.locks()",
			"SELECT a FROM t WHERE billing.locks() = 'true'",
		} {
			wantError(t, try(t, c, sql), "25006", `election "billing"`, "SET fence.election = 'billing'; SET fence.token = '...'")
		}
		wantError(t, try(t, c, "SELECT secret.locks()"), "FP009", "Rule 3")
		wantError(t, try(t, c, `SELECT billing."wörk"()`), "FP009", "beyond ASCII")
		mustExec(t, c, "SELECT other.locks(), scratch.locks()")
	}
}

// Where the name has no schema, the search_path decides, also on what was prepared before.
func TestReadersCallsFollowThePath(t *testing.T) {
	r := newRuledRig(t)
	mustExec(t, r.admin, `CREATE FUNCTION public.works() RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION billing.works() RETURNS int LANGUAGE sql AS 'SELECT 2'`)
	refused := func(err error) {
		t.Helper()
		wantError(t, err, "25006", `election "billing"`)
	}
	c := r.connect("")
	simply := func(sql string) error {
		_, err := c.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	if _, err := c.Prepare(t.Context(), "p", "SELECT works()"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, c, "PREPARE q AS SELECT works()")
	all := []string{"SELECT works()", "p"}
	for range 2 {
		for _, sql := range all {
			mustExec(t, c, sql)
		}
		mustExec(t, c, "EXECUTE q", pgx.QueryExecModeSimpleProtocol)
		mustExec(t, c, "SET search_path = billing, public")
		refused(simply("EXECUTE q"))
		for _, sql := range all {
			refused(try(t, c, sql))
		}
		refused(simply("SELECT works()"))
		mustExec(t, c, "SET search_path = public")
	}
	refused(simply("SET search_path = billing; SELECT works()"))
	mustExec(t, c, "SET search_path = public; SELECT works()", pgx.QueryExecModeSimpleProtocol)

	// Who leads another election may not either, and who leads this one may.
	mustExec(t, r.holds("", "billing"), "SELECT billing.works()")
	refused(try(t, r.holds("", "invoices"), "SELECT billing.works()"))
	// One whose credential was refused hears why.
	c = r.connect("&fence.election=billing&fence.token=" + election.NewToken().Reveal())
	wantError(t, try(t, c, "SELECT billing.works()"), "FP001", "Refused: a call, by rule 6")
}

// What SHOW says is what the session holds, whatever it asks for.
func TestShowsWhatIsHeld(t *testing.T) {
	r := newRuledRig(t)
	c := r.holds("", "billing", "billing")
	shows := func(want string) {
		t.Helper()
		if got := queryString(t, c, "SHOW fence.election"); got != want {
			t.Errorf("shows %s, not %s", got, want)
		}
	}
	shows("billing")
	mustExec(t, c, "SET fence.election = 'tenant-b'")
	shows("billing")
	wantError(t, try(t, c, "SET fence.token = '"+election.NewToken().Reveal()+"'"), "FP001")
	shows("billing")
	mustExec(t, c, "SET fence.election = 'invoices'; SET fence.token = '"+r.guard.leader.Reveal()+"'", pgx.QueryExecModeSimpleProtocol)
	shows("billing,invoices")
}

// Words of listeners that serve bound sessions alone, or that bind sessions themselves.
func TestWordsOfListeners(t *testing.T) {
	for _, reason := range []guard.Reason{guard.Stale, guard.LeaseVacant, guard.NotElected} {
		refusal := &guard.Refusal{Reason: reason, Election: "orders"}
		d := newDriver()
		d.c.required = true
		for _, r := range []report{d.c.refused("FATAL", refusal), turnedAway(refusal)} {
			if r.hint == "" || r.hint == refusal.Hint() || r.hint != refusal.HintBound() {
				t.Errorf("%d: %q", reason, r.hint)
			}
		}
	}
}
