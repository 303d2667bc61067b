package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestInstallPrintsWhatItWouldRun(t *testing.T) {
	plain := command(t, "", "install", "--print")
	if plain.code != exitOK || !strings.Contains(plain.out, "CREATE SCHEMA IF NOT EXISTS fenceproxy") || strings.Contains(plain.out, ".election (") {
		t.Errorf("%+v", plain)
	}
	all := command(t, "", "install", "--print", "--elections", "--role", "ctl", "--grant", "app,web")
	for _, want := range []string{`"ctl"`, `TO "app"`, `TO "web"`, `.election (`} {
		if !strings.Contains(all.out, want) {
			t.Errorf("no %s in\n%s", want, all.out)
		}
	}
	for _, args := range [][]string{{"--role", "pg_x"}, {"--grant", "app"}, {}} {
		t.Setenv("FENCEPROXY_ADMIN_DSN", "")
		if r := command(t, "", append([]string{"install"}, args...)...); r.code != exitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestInstallTwice(t *testing.T) {
	p := testenv.SharedPostgres(t)
	t.Setenv("FENCEPROXY_ADMIN_DSN", p.DSN(servers.Superuser, "postgres"))
	for range 2 {
		r := command(t, "", "install", "--elections", "--role", "twice")
		if r.code != exitOK || !strings.HasPrefix(r.out, "installed: schema fenceproxy and role twice, in postgres://postgres@") {
			t.Fatalf("%+v", r)
		}
	}
	conn, err := pgx.Connect(t.Context(), p.DSN("twice", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, table := range []string{"fence", "session", "gate", "election"} {
		if _, err := conn.Exec(t.Context(), "SELECT * FROM fenceproxy."+table); err != nil {
			t.Error(err)
		}
	}
}

func TestInstallThatCannot(t *testing.T) {
	p := testenv.SharedPostgres(t)
	for name, c := range map[string]struct {
		dsn  string
		code int
	}{
		"no server":   {"postgres://u:hunter2@127.0.0.1:1/postgres", exitUnavailable},
		"no role":     {strings.Replace(p.DSN("nobody", "postgres"), "nobody@", "nobody:hunter2@", 1), exitFailure},
		"no database": {p.DSN(servers.Superuser, "nonesuch"), exitFailure},
		"no URL":      {"postgres://u:hunter2@h:port/", exitUsage},
	} {
		r := command(t, "", "install", "--dsn", c.dsn, "--timeout", "5s")
		if r.code != c.code || r.err == "" || strings.Contains(r.err, "hunter2") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
