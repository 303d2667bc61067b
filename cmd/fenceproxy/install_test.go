package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

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

// TestAdviceWorks follows the advice of check and of the election commands from an
// empty server on, until there is none left.
func TestAdviceWorks(t *testing.T) {
	p := testenv.Postgres(t, servers.PostgresOptions{})
	super := p.DSN(servers.Superuser, "postgres")
	conn, err := pgx.Connect(t.Context(), super)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE ROLE app LOGIN"); err != nil {
		t.Fatal(err)
	}
	// follow runs the command that a text advises.
	follow := func(text, flags string) {
		t.Helper()
		m := regexp.MustCompile(`[Rr]un: fenceproxy (install .*--dsn) '(.*)'`).FindStringSubmatch(text)
		if m == nil || m[1] != "install "+flags+"--dsn" {
			t.Fatalf("advises no install %s: %s", flags, text)
		}
		if r := command(t, "", append(strings.Fields(m[1]), m[2])...); r.code != exitOK {
			t.Fatalf("%+v", r)
		}
	}
	control := p.DSN("fenceproxy", "postgres")
	file := configFile(t, postgresConfig, control, freeAddr(t), p.Addr, control, "orders")
	check := func() result { return command(t, "", "check", "-c", file) }
	status := func(code int) result {
		t.Helper()
		r := command(t, "", "election", "status", "orders", "--backend", p.DSN("app", "postgres"))
		if r.code != code {
			t.Fatalf("%+v", r)
		}
		return r
	}

	r := check()
	if r.code != exitFailure || strings.Contains(r.out, "Start it") {
		t.Errorf("%+v", r)
	}
	_, part, _ := strings.Cut(r.out, "control connection")
	follow(part, "")
	follow(check().out, "--elections ")
	if r := check(); r.code != exitOK {
		t.Errorf("%+v", r)
	}
	follow(status(exitFailure).err, "--elections --grant app ") // 42501
	status(exitNo)
	if _, err := conn.Exec(t.Context(), "DROP TABLE fenceproxy.election"); err != nil {
		t.Fatal(err)
	}
	follow(status(exitFailure).err, "--elections --grant app ") // 42P01
	status(exitNo)
}

// TestRefusedCredentials: the server answered, so that asking again or starting it is
// no advice.
func TestRefusedCredentials(t *testing.T) {
	p := testenv.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: p.Addr})
	defer admin.Close()
	for _, rule := range []string{"poor on >hunter2 ~* +ping +hello +select", "default off"} {
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER"}, anys(strings.Fields(rule))...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for user, want := range map[string]string{"": "refused the user or the password", "poor:wrong@": "refused the user or the password", "poor:hunter2@": "lists the rights"} {
		url := "redis://" + user + p.Addr
		if r := command(t, "", "election", "status", "orders", "--backend", url); r.code != exitFailure || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v", user, r)
		}
		file := configFile(t, `elections: {backend: "%s"}
listeners: [{name: cache, protocol: redis, listen: "127.0.0.1:0", upstream: "%s", control: "%s"}]
`, url, p.Addr, url)
		r := command(t, "", "check", "-c", file)
		rules := strings.Count(r.out, "\nACL SETUSER poor ~fenceproxy:*")
		if r.code != exitFailure || !strings.Contains(r.out, want) || strings.Contains(r.out, "Start") || strings.Contains(r.out, "hunter2") ||
			rules != strings.Count(user, "hunter2") || strings.Count(r.out, "ACL SETUSER") != rules {
			t.Errorf("%s: %s%s", user, r.out, r.err)
		}
	}
}
