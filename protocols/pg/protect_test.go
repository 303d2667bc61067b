package pg

import (
	"fmt"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
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
