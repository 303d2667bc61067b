package pg

import (
	"fmt"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
)

// A protected table takes the writes of the leader's sessions through the proxy, whatever
// they do with their settings, and of nobody else, whichever way they come.
func TestProtectedTable(t *testing.T) {
	r, b := realRig(t)
	p := pgfence.Protector{Control: connect(t, r.pg.DSN(servers.Superuser, "postgres")), Tables: r.admin}
	if _, _, err := p.Protect(t.Context(), []pgfence.Protection{{Pattern: "public.t", Election: r.db}}); err != nil {
		t.Fatal(err)
	}
	n := 0
	write := func() string { n++; return fmt.Sprintf("INSERT INTO t VALUES (%d)", n) }
	first := acquire(t, b, r.db, "w1")
	direct := connect(t, r.pg.DSN("app", r.db))
	wantError(t, try(t, direct, write()), "FP020", "not bound to election", "Connect through fenceproxy")
	for _, mode := range []string{"", "&default_query_exec_mode=simple_protocol", "&default_query_exec_mode=exec"} {
		c := r.connect(mode + "&fence.token=" + first.Token.Reveal())
		mustExec(t, c, write())
		for _, sql := range []string{"DISCARD ALL", "RESET ALL", "DISCARD SEQUENCES", "BEGIN", "RESET ALL", "SAVEPOINT s", "ROLLBACK TO s", "COMMIT", "BEGIN", "ROLLBACK"} {
			mustExec(t, c, sql)
			mustExec(t, c, write())
		}
		mustExec(t, c, "SET default_transaction_read_only = on")
		mustExec(t, c, "RESET default_transaction_read_only")
		mustExec(t, c, write())
		for _, sql := range []string{"SET fence.proof = 'x'", "RESET fence.proof", "SELECT set_config('fence.proof', '', false)", "SET LOCAL fence.proof = ''"} {
			wantError(t, try(t, c, sql), "FP010")
		}
		mustExec(t, c, write())
	}
	// A leader whose default is to read only has its proof back all the same.
	c := r.connect("&default_transaction_read_only=on&fence.token=" + first.Token.Reveal())
	for range 2 {
		mustExec(t, c, "BEGIN READ WRITE")
		mustExec(t, c, write())
		mustExec(t, c, "COMMIT")
		mustExec(t, c, "DISCARD ALL")
	}
	// Nor does a setting of the role's matter.
	mustExec(t, r.admin, "ALTER ROLE app IN DATABASE "+r.db+" SET fence.proof = 'x'")
	c = r.connect("&fence.token=" + first.Token.Reveal())
	for _, sql := range []string{"SELECT 1", "RESET ALL", "DISCARD ALL"} {
		mustExec(t, c, sql)
		mustExec(t, c, write())
	}
	late := r.connect("")
	wantError(t, try(t, late, write()), "25006")
	mustExec(t, late, "SET fence.token = '"+first.Token.Reveal()+"'")
	mustExec(t, late, write())
	proof := queryString(t, late, "SHOW fence.proof")
	mustExec(t, direct, "SET fence.proof = '"+proof+"'")
	wantError(t, try(t, direct, write()), "FP020", "of another process")

	if _, err := b.Resign(t.Context(), r.db, first.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, b, r.db, "w2")
	next := r.connect("&fence.token=" + second.Token.Reveal())
	mustExec(t, next, write())
	_, err := late.Exec(t.Context(), write())
	wantError(t, err, pick(err, "FP001", "FP002"))
	testenv.Eventually(t, "the first term's sessions to be gone", func() bool {
		return queryString(t, r.admin, "SELECT count(*)::text FROM pg_stat_activity WHERE datname = $1 AND usename = 'app'", r.db) == "2"
	})
	mustExec(t, next, write())
	wantError(t, try(t, direct, write()), "FP020")
	if _, err := p.Unprotect(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	mustExec(t, direct, write())
}

// A session that holds several terms has a proof of each, and what a function of one election
// hides from the rules, a write of another's table, the trigger refuses.
func TestProtectedTablesOfSeveralElections(t *testing.T) {
	var a, z string
	r, b := realRig(t, func(c *Config, _ election.Backend) {
		a, z = c.DefaultElection+"-a", c.DefaultElection+"-z"
		c.Rules = mustRules(t, policy.Rule{Kind: policy.Table, Patterns: []string{"a.*"}, Election: a}, policy.Rule{Kind: policy.Table, Patterns: []string{"z.*"}, Election: z},
			policy.Rule{Kind: policy.Function, Patterns: []string{"a.*"}, Election: a})
	})
	mustExec(t, r.admin, "CREATE SCHEMA a; CREATE SCHEMA z; CREATE TABLE a.t (n int); CREATE TABLE z.t (n int); GRANT ALL ON SCHEMA a, z TO app; GRANT ALL ON a.t, z.t TO app")
	mustExec(t, r.admin, "CREATE FUNCTION a.hidden() RETURNS int LANGUAGE sql AS 'INSERT INTO z.t VALUES (2) RETURNING n'")
	p := pgfence.Protector{Control: connect(t, r.pg.DSN(servers.Superuser, "postgres")), Tables: r.admin}
	if _, _, err := p.Protect(t.Context(), []pgfence.Protection{{Pattern: "a.*", Election: a}, {Pattern: "z.*", Election: z}}); err != nil {
		t.Fatal(err)
	}
	one, two := acquire(t, b, a, "w1").Token.Reveal(), acquire(t, b, z, "w1").Token.Reveal()
	both := r.connect("&fence.election=" + a + "," + z + "&fence.token=" + one + "," + two)
	later := r.connect("&fence.election=" + a + "&fence.token=" + one)
	mustExec(t, both, "WITH x AS (INSERT INTO a.t VALUES (1) RETURNING n) INSERT INTO z.t SELECT n FROM x")
	mustExec(t, both, "SELECT a.hidden()")
	mustExec(t, later, "INSERT INTO a.t VALUES (1)")
	wantError(t, try(t, later, "SELECT a.hidden()"), "FP020", z)
	mustExec(t, later, "SET fence.election = '"+z+"'")
	mustExec(t, later, "SET fence.token = '"+two+"'")
	mustExec(t, later, "DISCARD ALL")
	mustExec(t, later, "SELECT a.hidden()")
	mustExec(t, later, "INSERT INTO a.t VALUES (1)")
	if _, err := p.Unprotect(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

func mustRules(t *testing.T, rules ...policy.Rule) *policy.Rules {
	t.Helper()
	r, err := policy.NewRules(rules, "", election.CheckID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
