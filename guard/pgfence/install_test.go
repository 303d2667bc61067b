package pgfence_test

import (
	"os"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func removeAll(t testing.TB, dir string) {
	t.Helper()
	must(t, os.RemoveAll(dir))
}

func TestInstall(t *testing.T) {
	c := &cluster{p: testenv.Postgres(t, servers.PostgresOptions{})}
	c.admin = c.connect(t, servers.Superuser)
	for _, role := range []string{"", `we"ird 'role' $1 :name:`} {
		sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Role: role, Login: true})
		must(t, err)
		c.exec(t, sql)
		c.exec(t, sql)
	}
	if ps := c.fence(t, pgfence.DefaultRole).Check(t.Context()); len(ps) != 0 {
		t.Errorf("%v", ps)
	}
	if n := c.count(t, `SELECT count(*) FROM pg_roles WHERE rolcanlogin AND NOT rolsuper AND rolname IN ('fenceproxy', $1)`,
		`we"ird 'role' $1 :name:`); n != 2 {
		t.Errorf("%d roles", n)
	}
	ps := c.fence(t, servers.Superuser).Check(t.Context())
	if len(ps) != 1 || ps[0].Fatal || !strings.Contains(ps[0].What, "superuser") {
		t.Errorf("superuser: %v", ps)
	}
	c.exec(t, "CREATE ROLE app LOGIN")
	app := c.session(t, "app")
	for _, sql := range []string{"LOCK fenceproxy.gate IN ROW SHARE MODE", "SELECT * FROM fenceproxy.fence", "DELETE FROM fenceproxy.session"} {
		if _, err := app.Exec(t.Context(), "BEGIN; "+sql); err == nil {
			t.Errorf("anyone may %s", sql)
		}
		_, _ = app.Exec(t.Context(), "ROLLBACK")
	}
	c.exec(t, "DROP SCHEMA fenceproxy CASCADE; CREATE SCHEMA fenceproxy AUTHORIZATION app")
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{})
	must(t, err)
	if _, err := c.admin.PgConn().Exec(t.Context(), sql).ReadAll(); err == nil {
		t.Error("installed into a schema of another's")
	}
}

func TestInstallRefusesBadRoles(t *testing.T) {
	for _, role := range []string{"pg_x", "public", "a\x00b", `a\b`, "a\nb", strings.Repeat("x", 64), "x$fenceproxy_install$"} {
		if _, err := pgfence.InstallSQL(pgfence.InstallOptions{Role: role}); err == nil {
			t.Errorf("%q", role)
		}
	}
}

func TestCheckWarnsOfPreparedTransactions(t *testing.T) {
	ps := shared(t).fence(t, pgfence.DefaultRole).Check(t.Context())
	if len(ps) != 1 || ps[0].Fatal || !strings.Contains(ps[0].What, "max_prepared_transactions") {
		t.Errorf("%v", ps)
	}
}
