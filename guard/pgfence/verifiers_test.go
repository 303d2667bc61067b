package pgfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestVerifiers(t *testing.T) {
	c := &cluster{p: testenv.Postgres(t, servers.PostgresOptions{})}
	c.admin = c.connect(t, servers.Superuser)
	f := c.fence(t, pgfence.DefaultRole)
	v := f.Verifiers()
	installed := func(o pgfence.InstallOptions) {
		t.Helper()
		sql, err := pgfence.InstallSQL(o)
		must(t, err)
		c.exec(t, sql)
	}
	problem := func(want string) {
		t.Helper()
		ps := v.Check(t.Context())
		if len(ps) != 1 || !strings.Contains(ps[0].What, want) || !strings.Contains(ps[0].Fix, "install --scram") {
			t.Errorf("%v, not %s", ps, want)
		}
	}
	installed(pgfence.InstallOptions{Login: true})
	problem("no function")
	if _, err := v.Verifier(t.Context(), "app"); !errors.Is(err, pgfence.ErrVerifiers) {
		t.Error(err)
	}
	c.exec(t, `ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO pg_monitor`)
	for range 2 {
		installed(pgfence.InstallOptions{Login: true, SCRAM: true})
	}
	if ps := v.Check(t.Context()); len(ps) != 0 {
		t.Errorf("%v", ps)
	}
	c.exec(t, `SET password_encryption = 'scram-sha-256';
		CREATE ROLE app LOGIN PASSWORD 'secret';
		CREATE ROLE "We""ird é" LOGIN PASSWORD 'secret' VALID UNTIL 'infinity';
		CREATE ROLE soon LOGIN PASSWORD 'secret' VALID UNTIL '2999-01-01';
		CREATE ROLE root LOGIN SUPERUSER PASSWORD 'secret';
		CREATE ROLE toor LOGIN PASSWORD 'secret' IN ROLE root;
		CREATE ROLE nologin NOLOGIN PASSWORD 'secret';
		CREATE ROLE expired LOGIN PASSWORD 'secret' VALID UNTIL '2001-01-01';
		CREATE ROLE nopassword LOGIN;
		SET password_encryption = 'md5';
		CREATE ROLE old LOGIN PASSWORD 'secret'`)
	for role, want := range map[string]bool{
		"app": true, `We"ird é`: true, "soon": true,
		// A superuser's verifier is not for the control role: it could be tried for the password, and used to pass for the server.
		"root": false, "toor": false, servers.Superuser: false,
		"nologin": false, "expired": false, "nopassword": false, "old": false,
		"nobody": false, "": false, "x' OR true --": false, "\xff": false, strings.Repeat("x", 100): false,
	} {
		got, err := v.Verifier(t.Context(), role)
		if err != nil || strings.HasPrefix(got, "SCRAM-SHA-256$4096:") != want || !want && got != "" {
			t.Errorf("%q: %q, %v", role, got, err)
		}
	}
	// Nobody else may ask, and the control role itself reads no verifier but by the function.
	for _, role := range []string{"app", "old"} {
		if _, err := c.session(t, role).Exec(t.Context(), "SELECT fenceproxy.scram_verifier('app')"); err == nil {
			t.Errorf("%s may look up verifiers", role)
		}
	}
	if _, err := c.session(t, pgfence.DefaultRole).Exec(t.Context(), "SELECT rolpassword FROM pg_authid"); err == nil {
		t.Error("the control role reads pg_authid")
	}
	// What the caller's session looks like changes nothing.
	s := c.session(t, pgfence.DefaultRole)
	for _, sql := range []string{
		"CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '1999-01-01'::timestamptz $$",
		"CREATE TEMP TABLE pg_authid (rolname name, rolpassword text, rolcanlogin bool, rolvaliduntil timestamptz, rolsuper bool, oid oid)",
		"SET search_path = pg_temp, public",
	} {
		if _, err := s.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var got *string
	if err := s.QueryRow(t.Context(), "SELECT fenceproxy.scram_verifier('expired')").Scan(&got); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}

	c.exec(t, "GRANT USAGE ON SCHEMA fenceproxy TO app; GRANT EXECUTE ON FUNCTION fenceproxy.scram_verifier TO app")
	problem("[app] may call")
	c.exec(t, "GRANT EXECUTE ON FUNCTION fenceproxy.scram_verifier TO PUBLIC")
	problem("PUBLIC")
	installed(pgfence.InstallOptions{SCRAM: true})
	if ps := v.Check(t.Context()); len(ps) != 0 {
		t.Errorf("%v", ps)
	}
	c.exec(t, "ALTER FUNCTION fenceproxy.scram_verifier OWNER TO app")
	problem("superuser")
	c.exec(t, "ALTER FUNCTION fenceproxy.scram_verifier OWNER TO postgres; REVOKE EXECUTE ON FUNCTION fenceproxy.scram_verifier FROM fenceproxy, app")
	problem("may not call")
	if _, err := v.Verifier(t.Context(), "app"); !errors.Is(err, pgfence.ErrVerifiers) {
		t.Error(err)
	}

	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Verifier(done, "app"); err == nil {
		t.Error("no error")
	}
	// Only a superuser can let others look up verifiers.
	c.exec(t, "CREATE ROLE installer LOGIN CREATEROLE; GRANT pg_signal_backend, pg_read_all_stats TO installer WITH ADMIN OPTION; GRANT CREATE ON DATABASE postgres TO installer; DROP SCHEMA fenceproxy CASCADE")
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Role: "ctl", SCRAM: true})
	must(t, err)
	if _, err := c.session(t, "installer").PgConn().Exec(t.Context(), sql).ReadAll(); err == nil || !strings.Contains(err.Error(), "only a superuser") {
		t.Error(err)
	}
}
