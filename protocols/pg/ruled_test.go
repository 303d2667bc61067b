package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// byRules says whether an error is the refusal of what the rules do not let a session write.
func byRules(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "25006" || e.Code == "FP009")
}

// testRules are the rules of these tests.
func testRules(t testing.TB, fallback string) *policy.Rules {
	t.Helper()
	r, err := policy.NewRules([]policy.Rule{
		{Kind: policy.Table, Patterns: []string{"billing.*"}, Election: "billing"},
		{Kind: policy.Table, Patterns: []string{"invoices.*"}, Election: "invoices"},
		{Kind: policy.Table, Patterns: []string{"secret.*"}, Access: policy.Deny},
		{Kind: policy.Table, Patterns: []string{"scratch.*"}, Access: policy.Open},
		{Kind: policy.Table, Patterns: []string{"tenant_{t}.*"}, Election: "tenant-{t}"},
		{Kind: policy.Function, Patterns: []string{"billing.*"}, Election: "billing"},
	}, fallback, election.CheckID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ordersRules are the rules of transcripts: the leader holds orders.
func ordersRules() *policy.Rules {
	r, err := policy.NewRules([]policy.Rule{
		{Kind: policy.Table, Patterns: []string{"orders.*"}, Election: "orders"},
		{Kind: policy.Table, Patterns: []string{"other.*"}, Election: "other"},
		{Kind: policy.Table, Patterns: []string{"scratch.*"}, Access: policy.Open},
	}, "", election.CheckID)
	if err != nil {
		panic(err)
	}
	return r
}

// newRuledRig is a rig with rules, and a schema for each.
func newRuledRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, func(c *Config) { c.Rules, c.DefaultElection = testRules(t, ""), "" })
	for _, s := range []string{"billing", "invoices", "secret", "scratch", "tenant_a", "tenant_b"} {
		mustExec(t, r.admin, fmt.Sprintf("CREATE SCHEMA %[1]s; GRANT ALL ON SCHEMA %[1]s TO app; CREATE TABLE %[1]s.t (a int); ALTER TABLE %[1]s.t OWNER TO app", s))
	}
	mustExec(t, r.admin, `CREATE FUNCTION public.moves() RETURNS int LANGUAGE sql AS $$ SELECT set_config('search_path', 'invoices', false); SELECT 1 $$;
		CREATE FUNCTION billing.writes() RETURNS int LANGUAGE sql AS $$ INSERT INTO billing.t VALUES (9) RETURNING a $$`)
	return r
}

// holds opens a session that holds the terms of elections.
func (r *rig) holds(params string, elections ...string) *pgx.Conn {
	r.t.Helper()
	token := r.guard.lead().Reveal()
	tokens := strings.Repeat(","+token, len(elections))
	return r.connect("&fence.election=" + strings.Join(elections, ",") + "&fence.token=" + tokens[1:] + params)
}

func (r *rig) count(table string) string {
	r.t.Helper()
	return queryString(r.t, r.admin, "SELECT count(*)::text FROM "+table)
}

var allModes = []string{"", "&default_query_exec_mode=simple_protocol", "&default_query_exec_mode=exec", "&default_query_exec_mode=describe_exec", "&default_query_exec_mode=cache_describe"}

// A bound session writes what the rules give to its election, and nothing else.
func TestRulesDecide(t *testing.T) {
	r := newRuledRig(t)
	for _, mode := range allModes {
		c := r.holds(mode, "billing")
		before := r.count("billing.t")
		mustExec(t, c, "INSERT INTO billing.t VALUES (1)")
		mustExec(t, c, "INSERT INTO scratch.t VALUES (1)")
		if got := r.count("billing.t"); got == before {
			t.Error(got)
		}
		wantError(t, try(t, c, "INSERT INTO invoices.t VALUES (1)"), "25006", `election "invoices"`, "Rule 2", `holds number`, `election "billing"`)
		wantError(t, try(t, c, "WITH x AS (DELETE FROM billing.t RETURNING a) INSERT INTO invoices.t SELECT a FROM x"), "25006", `election "invoices"`, "invoices, billing")
		wantError(t, try(t, c, "DELETE FROM secret.t"), "FP009", "Rule 3", "--explain")
		wantError(t, try(t, c, "INSERT INTO t VALUES (100)"), "FP009", "o rule matches")
		wantError(t, try(t, c, "DO $$ BEGIN DELETE FROM invoices.t; END $$"), "FP009", "annot be told")
		if got := queryString(t, c, "SELECT count(*)::text FROM secret.t"); got != "0" {
			t.Error(got)
		}
		wantError(t, try(t, c, "SELEC 1"), "42601", "syntax error at or near")
		// The session is in step and goes on.
		if got := queryString(t, c, "SELECT 'y'"); got != "y" {
			t.Error(got)
		}
	}
	if got := r.count("invoices.t") + r.count("secret.t") + r.count("t"); got != "000" {
		t.Error(got)
	}
	// A reader hears which election it lacks.
	wantError(t, try(t, r.connect(""), "INSERT INTO tenant_x.t VALUES (1)"), "25006", `election "tenant-x"`, "Rule 5")
	wantError(t, try(t, r.connect(""), "INSERT INTO secret.t VALUES (1)"), "FP009", "Rule 3")
}

// A session that holds several terms writes what any of them rules, and what needs all.
func TestSeveralCredentials(t *testing.T) {
	r := newRuledRig(t)
	for _, mode := range allModes {
		c := r.holds(mode, "billing", "invoices")
		mustExec(t, c, "WITH x AS (INSERT INTO billing.t VALUES (1) RETURNING a) INSERT INTO invoices.t SELECT a FROM x")
		if got := queryString(t, c, "SHOW fence.election"); got != "billing,invoices" {
			t.Error(got)
		}
		token := r.guard.leader.Reveal()
		wantError(t, try(t, c, "INSERT INTO tenant_a.t VALUES (1)"), "25006", `election "tenant-a"`, "SET fence.election = 'tenant-a'")
		// Another, later.
		mustExec(t, c, "SET fence.election = 'tenant-a'")
		wantError(t, try(t, c, "INSERT INTO tenant_a.t VALUES (1)"), "25006")
		mustExec(t, c, "SET fence.token = '"+token+"'")
		mustExec(t, c, "INSERT INTO tenant_a.t VALUES (1)")
		mustExec(t, c, "INSERT INTO billing.t VALUES (1)")
		if got := queryString(t, c, "SHOW fence.election"); got != "billing,invoices,tenant-a" {
			t.Error(got)
		}
		// One that is refused takes nothing from the others.
		mustExec(t, c, "SET fence.election = 'tenant-b'")
		wantError(t, try(t, c, "SET fence.token = '"+election.NewToken().Reveal()+"'"), "FP001")
		wantError(t, try(t, c, "INSERT INTO tenant_b.t VALUES (1)"), "25006", `election "tenant-b"`)
		mustExec(t, c, "INSERT INTO tenant_a.t VALUES (1)")
		// The same again changes nothing, another token of one that it holds is refused.
		mustExec(t, c, "SET fence.election = 'billing'")
		mustExec(t, c, "SET fence.token = '"+token+"'")
		wantError(t, try(t, c, "SET fence.token = '"+election.NewToken().Reveal()+"'"), "55000", `bound to election "billing"`)
	}
	if got := r.count("tenant_b.t"); got != "0" {
		t.Error(got)
	}
	// One of the credentials at the start is bad: the others count.
	token := r.guard.leader.Reveal()
	c := r.connect("&fence.election=billing,invoices&fence.token=" + election.NewToken().Reveal() + "," + token)
	mustExec(t, c, "INSERT INTO invoices.t VALUES (1)")
	wantError(t, try(t, c, "INSERT INTO billing.t VALUES (1)"), "25006", `election "billing"`)
	// They belong together one by one.
	c = r.connect("&fence.election=billing,invoices&fence.token=" + token)
	wantError(t, try(t, c, "INSERT INTO invoices.t VALUES (1)"), "FP010", "2 elections", "1 tokens")
}

// The loss of any term that the session holds ends it.
func TestLossOfAnyTermEnds(t *testing.T) {
	r := newRuledRig(t)
	for i := range 2 {
		c := r.holds("", "billing", "invoices")
		mustExec(t, c, "INSERT INTO billing.t VALUES (1)")
		r.guard.mu.Lock()
		p := r.guard.permits[len(r.guard.permits)-1-i]
		r.guard.mu.Unlock()
		p.end(&guard.Refusal{Reason: guard.Stale, Election: p.term.Election, Held: p.term.Number, Rules: 99})
		err := try(t, c, "INSERT INTO billing.t VALUES (1)")
		wantError(t, err, "FP001", p.term.Election, "number 99 rules")
	}
}

// A name without a schema is looked for where the server looks for it.
func TestRulesFollowThePath(t *testing.T) {
	r := newRuledRig(t)
	for _, mode := range allModes {
		c := r.holds(mode, "billing")
		in := r.count("invoices.t")
		refused := func(sql string, words ...string) {
			t.Helper()
			err := try(t, c, sql)
			if err == nil {
				t.Errorf("%s\n\tgoes through", sql)
				return
			}
			if !byRules(err) {
				t.Errorf("%s\n\t%v", sql, err)
			}
		}
		refused("INSERT INTO t VALUES (5)") // public
		mustExec(t, c, "SET search_path = billing")
		mustExec(t, c, "INSERT INTO t VALUES (5)")
		mustExec(t, c, "SET search_path TO invoices, billing")
		refused("INSERT INTO t VALUES (5)")
		mustExec(t, c, `SELECT set_config('search_path', 'billing, "$user"', false)`)
		mustExec(t, c, "INSERT INTO t VALUES (5)")
		refused("SELECT public.moves()")

		// What a transaction sets ends with it.
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "SET LOCAL search_path = scratch")
		mustExec(t, c, "INSERT INTO t VALUES (5)")
		mustExec(t, c, "COMMIT")
		mustExec(t, c, "INSERT INTO t VALUES (5)")
		mustExec(t, c, "SET search_path = invoices")
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "SET LOCAL search_path = billing")
		mustExec(t, c, "INSERT INTO t VALUES (5)")
		mustExec(t, c, "SAVEPOINT s")
		mustExec(t, c, "SET LOCAL search_path = scratch")
		mustExec(t, c, "INSERT INTO t VALUES (5)")
		mustExec(t, c, "ROLLBACK TO s")
		mustExec(t, c, "INSERT INTO t VALUES (5)")
		mustExec(t, c, "ROLLBACK")
		refused("INSERT INTO t VALUES (5)")
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "SAVEPOINT s")
		mustExec(t, c, "SET LOCAL search_path = billing")
		mustExec(t, c, "INSERT INTO t VALUES (5)")
		mustExec(t, c, "ROLLBACK TO s")
		refused("INSERT INTO t VALUES (5)")
		mustExec(t, c, "ROLLBACK")
		refused("BEGIN; SET LOCAL search_path = billing; COMMIT; INSERT INTO t VALUES (5)")
		if c.PgConn().TxStatus() != 'I' {
			mustExec(t, c, "ROLLBACK")
		}
		mustExec(t, c, "RESET search_path")
		refused("INSERT INTO t VALUES (5)")
		mustExec(t, c, "SET search_path = billing")
		if _, err := c.PgConn().Exec(t.Context(), "DISCARD ALL").ReadAll(); err != nil {
			t.Fatal(err)
		}
		if err := c.DeallocateAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		refused("INSERT INTO t VALUES (6)")
		if got := r.count("invoices.t"); got != in {
			t.Errorf("invoices: %s, was %s", got, in)
		}
	}
	if got := r.rows(); got != "" {
		t.Error(got)
	}
}

// A prepared statement is judged again when it is run in another search_path, for the
// server looks for its names again.
func TestRulesOfPreparedStatements(t *testing.T) {
	r := newRuledRig(t)
	c := r.holds("", "billing")
	mustExec(t, c, "SET search_path = billing")
	if _, err := c.Prepare(t.Context(), "ins", "INSERT INTO t VALUES ($1)"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Prepare(t.Context(), "path", "SELECT set_config('search_path', $1, false)"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, c, "PREPARE q AS INSERT INTO t VALUES (7)")
	mustExec(t, c, "ins", 1)
	mustExec(t, c, "EXECUTE q")
	for _, move := range []func(){
		func() { mustExec(t, c, "SET search_path = invoices") },
		func() { mustExec(t, c, "path", "invoices") },
		func() { mustExec(t, c, "EXECUTE path('invoices')") },
	} {
		move()
		wantError(t, try(t, c, "EXECUTE q"), "25006", `election "invoices"`)
		_, err := c.Exec(t.Context(), "ins", 1)
		wantError(t, err, "25006", `election "invoices"`)
		_, err = c.Exec(t.Context(), "EXECUTE ins(2)", pgx.QueryExecModeSimpleProtocol)
		wantError(t, err, "25006", `election "invoices"`)
		mustExec(t, c, "SET search_path = billing")
		mustExec(t, c, "ins", 1)
		mustExec(t, c, "EXECUTE q")
	}
	mustExec(t, c, "SET search_path = invoices; DEALLOCATE q")
	if got := r.count("invoices.t"); got != "0" {
		t.Error(got)
	}
	if got := r.count("billing.t"); got != "8" {
		t.Error(got)
	}

	// In a pipeline without Sync the path is not known: a name may be anywhere.
	b := &pgx.Batch{}
	b.Queue("SET search_path = billing")
	b.Queue("INSERT INTO t VALUES (1)")
	err := pipelined(t.Context(), c, b)
	wantError(t, err, "FP009", "Rule")
	if got := r.count("billing.t"); got != "8" {
		t.Error(got)
	}
}

// A statement that was seen before is decided on without an allocation.
func TestRulesAllocateNothing(t *testing.T) {
	d := leading()
	d.c.ruled = &ruling{rules: ordersRules()}
	d.c.ruled.setPath(policy.SearchPath{Known: true, Schemas: []string{"orders"}})
	named := append(append(appendParse(nil, "s", "DELETE FROM orders.t"), bindTo("", "s")...), executeOf("", 0)...)
	for _, m := range []struct{ message, answer []byte }{
		{appendQuery(nil, "INSERT INTO t VALUES (1)"), appendMessage(nil, 'C', "INSERT 0 1")},
		{append(named, syncs...), appendMessage([]byte("1\x00\x00\x00\x042\x00\x00\x00\x04"), 'C', "DELETE 0")},
	} {
		answer := append(m.answer, "Z\x00\x00\x00\x05I"...)
		if n := testing.AllocsPerRun(1000, func() {
			if st := d.c.client(m.message); st.pass != len(m.message) {
				t.Fatalf("%+v", st)
			}
			if st := d.c.server(answer); st.pass != len(answer) {
				t.Fatalf("%+v", st)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

func pipelined(ctx context.Context, c *pgx.Conn, b *pgx.Batch) error {
	return c.SendBatch(ctx, b).Close()
}
