package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// The whole life of a protection on the command line; what it does is pgfence's tests'.
func TestInstallProtect(t *testing.T) {
	p := testenv.SharedPostgres(t)
	db := testenv.Name(t, "db")
	control := p.DSN(servers.Superuser, "postgres")
	root, err := pgx.Connect(t.Context(), control)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close(t.Context())
	if _, err := root.Exec(t.Context(), "CREATE DATABASE "+db); err != nil {
		t.Fatal(err)
	}
	dsn := p.DSN(servers.Superuser, db)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	do := func(sql string) error {
		_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
		return err
	}
	if err := do("CREATE SCHEMA billing; CREATE TABLE billing.invoice (id int); CREATE SCHEMA \"tenant_a b\"; CREATE TABLE \"tenant_a b\".t ()"); err != nil {
		t.Fatal(err)
	}
	run := func(code int, want string, args ...string) {
		t.Helper()
		r := command(t, "", append([]string{"install"}, args...)...)
		if r.code != code || !strings.Contains(r.out+r.err, want) {
			t.Errorf("%v: %+v", args, r)
		}
	}
	run(exitOK, "installed", "--dsn", control, "--role", "fenceproxy")
	run(exitOK, "fenceproxy.apply_protection(NULL)", "--protect", "billing.*=billing", "--print")
	run(exitFailure, "name the control database with --control-dsn", "--protect", "billing.*=billing", "--dsn", dsn)
	both := []string{"--dsn", dsn, "--control-dsn", control}
	for want, args := range map[string][]string{
		"is not pattern=election":                 {"--protect", "billing.*"},
		"is not schema.name":                      {"--protect", "billing=x"},
		"name the database of the tables":         {"--protect", "billing.*=x"},
		"--always and --new-tables go with":       {"--always"},
		"--remove goes with":                      {"--remove", "--always"},
		"are of the control database":             {"--protect", "billing.*=x", "--elections"},
		"several patterns are a list":             {"--protect", "billing.*, invoices.*=x"},
		"needs {t}, which the pattern":            {"--protect", "billing.*=x-{t}"},
		"its name holds a NUL, a backslash or a ": {"--protect", "billing.*=x", "--role", `a\b`, "--print"},
	} {
		t.Setenv("FENCEPROXY_ADMIN_DSN", "")
		run(exitUsage, want, args...)
	}
	run(exitOK, "protected: billing.invoice by election billing\n", append(both, "--protect", "billing.*=billing")...)
	run(exitOK, "which is no election's name: nobody can write it", append(both, "--protect", "tenant_{t}.*=t-{t}", "--new-tables")...)
	var refused *pgconn.PgError
	if err := do("INSERT INTO billing.invoice VALUES (1)"); !errors.As(err, &refused) || refused.Code != "FP020" {
		t.Error(err)
	}
	run(exitOK, "warning: billing.invoice=other never counts: billing.*=billing, which comes before it, takes all its tables. To let it come last: --remove --protect 'billing.*', then",
		append(both, "--protect", "billing.invoice=other")...)
	run(exitOK, "protected: billing.invoice by election other\n", append(both, "--remove", "--protect", "billing.*")...)
	if r := command(t, "", append([]string{"install", "--protect", "billing.*=billing"}, both...)...); r.code != exitOK || strings.Contains(r.out, "warning") {
		t.Errorf("%+v", r)
	}
	run(exitOK, "still protected: billing.invoice by election billing\n", append(both, "--remove", "--protect", "billing.invoice")...)
	psql := exec.CommandContext(t.Context(), testenv.Tool(t, "psql"), "-X", "-v", "VERBOSITY=verbose", "-c", "UPDATE billing.invoice SET id = 1", dsn)
	if out, err := psql.CombinedOutput(); err == nil || !strings.Contains(string(out), "FP020: write refused") || !strings.Contains(string(out), "HINT:  Connect through fenceproxy") {
		t.Errorf("psql: %v %s", err, out)
	}
	run(exitFailure, "not protected: nowhere.*", append(both, "--remove", "--protect", "nowhere.*")...)
	run(exitOK, "still protected: billing.invoice by election billing\n", append(both, "--remove", "--protect", "tenant_{t}.*")...)
	run(exitOK, "no longer protected\n", append(both, "--remove")...)
	if err := do("INSERT INTO billing.invoice VALUES (1)"); err != nil {
		t.Error(err)
	}
	run(exitOK, "no table matches yet", append(both, "--protect", "later.*=billing")...)
	run(exitOK, "no longer protected\n", append(both, "--remove")...)
}
