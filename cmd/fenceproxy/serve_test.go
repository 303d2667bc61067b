package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// configFile writes a configuration and returns its name.
func configFile(t *testing.T, format string, args ...any) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fenceproxy.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const postgresConfig = `elections:
  backend: %s
listeners:
  - name: db
    protocol: postgres
    listen: %s
    upstream: %s
    control: %s
    election: %s
`

func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// A running is a fenceproxy serve in a process of its own.
type running struct {
	*exec.Cmd
	addr string
	log  *testenv.Buffer
	done chan struct{}
}

// serve starts fenceproxy serve and waits until it listens, and has logged the rest.
func serve(t *testing.T, file, addr string, logged ...string) *running {
	t.Helper()
	r := &running{Cmd: program(t, "serve", "-c", file), addr: addr, log: new(testenv.Buffer), done: make(chan struct{})}
	stderr, err := r.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan struct{})
	var once sync.Once
	logged = append(logged, "msg=listening")
	go func() {
		defer close(r.done)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			fmt.Fprintln(r.log, lines.Text())
			logged = slices.DeleteFunc(logged, func(want string) bool { return strings.Contains(lines.Text(), want) })
			if len(logged) == 0 {
				once.Do(func() { close(listening) })
			}
		}
		_ = r.Wait()
	}()
	t.Cleanup(func() {
		_ = r.Process.Kill()
		<-r.done
		if t.Failed() {
			t.Logf("fenceproxy serve said:\n%s", r.log)
		}
	})
	select {
	case <-listening:
	case <-r.done:
		t.Fatalf("fenceproxy serve ended: %v\n%s", r.ProcessState, r.log)
	}
	return r
}

// ended waits for the end and returns the exit code, -1 for a signal.
func (r *running) ended(t *testing.T) int {
	t.Helper()
	select {
	case <-r.done:
	case <-testenv.Context(t).Done():
		t.Fatal("fenceproxy serve does not end")
	}
	return r.ProcessState.ExitCode()
}

// install installs everything in the shared Postgres and returns a role's URLs.
func install(t *testing.T) *servers.Process {
	t.Helper()
	p := testenv.SharedPostgres(t)
	if r := command(t, "", "install", "--elections", "--dsn", p.DSN(servers.Superuser, "postgres")); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	conn, err := pgx.Connect(t.Context(), p.DSN(servers.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{
		"DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN END $$",
		"CREATE TABLE IF NOT EXISTS things (name text)",
		"GRANT ALL ON things TO app",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TestServePostgres follows the steps of the README: install, check, serve, acquire,
// write with the token, and not without it.
func TestServePostgres(t *testing.T) {
	p := install(t)
	ctx := testenv.Context(t)
	control, id, addr := p.DSN("fenceproxy", "postgres"), testenv.Name(t, "serve"), freeAddr(t)
	file := configFile(t, postgresConfig, control, addr, p.Addr, control, id)

	r := command(t, "", "check", "-c", file)
	if r.code != exitOK || strings.Contains(r.out, "fail") || strings.Count(r.out, "ok    ") != 5 {
		t.Fatalf("%+v", r)
	}
	proxy := serve(t, file, addr)

	token := filepath.Join(t.TempDir(), "token")
	if r := command(t, "", "election", "acquire", id, "--backend", control, "--save-token", token); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	secret, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(secret))
	name := testenv.Name(t, "thing")
	url := strings.Replace(p.DSN("app", "postgres"), p.Addr, addr, 1)
	insert := func(options string) error {
		c, err := pgx.ParseConfig(url)
		if err != nil {
			return err
		}
		c.RuntimeParams["options"] = options
		conn, err := pgx.ConnectConfig(ctx, c)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "INSERT INTO things VALUES ($1)", name)
		return err
	}
	var refused *pgconn.PgError
	if err := insert(""); !errors.As(err, &refused) || refused.Code != "25006" {
		t.Errorf("without a token: %v", err)
	}
	if err := insert("-c fence.token=" + text); err != nil {
		t.Errorf("with the token: %v", err)
	}
	if err := insert("-c fence.election=other -c fence.token=" + text); !errors.As(err, &refused) || refused.Code != "FP008" {
		t.Errorf("an election that the listener does not serve: %v", err)
	}

	// An orderly end lets nothing but an idle session end, and leaves no token in the log.
	if err := proxy.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := proxy.ended(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(proxy.log.String(), text) {
		t.Error("the token is in the log")
	}
	if !strings.Contains(proxy.log.String(), "fenceproxy has ended") {
		t.Errorf("the log does not say so:\n%s", proxy.log)
	}
}

// TestASecondSignalEndsAtOnce: a session that does not end holds the first one up, for
// as long as drain allows, and the admin listener answers meanwhile; the second one waits for
// nothing.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	p := install(t)
	addr, adm, control := freeAddr(t), freeAddr(t), p.DSN("fenceproxy", "postgres")
	file := configFile(t, postgresConfig+"drain: 1h\nadmin: {listen: %s}\n", control, addr, p.Addr, control, testenv.Name(t, "serve"), adm)
	proxy := serve(t, file, addr)
	conn, err := pgx.Connect(t.Context(), strings.Replace(p.DSN("app", "postgres"), p.Addr, addr, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	slept := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "SELECT pg_sleep(3600)")
		slept <- err
	}()
	active := func() bool {
		c, err := pgx.Connect(t.Context(), p.DSN(servers.Superuser, "postgres"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		var n int
		if err := c.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(3600)%' AND state = 'active'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	for !active() {
	}
	_ = proxy.Process.Signal(syscall.SIGINT)
	select {
	case <-proxy.done:
		t.Fatalf("the first signal did not wait for the session: %v", proxy.ProcessState)
	case <-time.After(300 * time.Millisecond):
	}
	for path, want := range map[string]int{"/health": 200, "/liveness": 200, "/readiness": 503, "/leader": 503, "/v1/elections/x": 200} {
		if got := statusOf(t, "http://"+adm+path); got != want {
			t.Errorf("%s: %d while sessions drain", path, got)
		}
	}
	_ = proxy.Process.Signal(syscall.SIGINT)
	if code := proxy.ended(t); code != -1 {
		t.Errorf("exit code %d", code)
	}
	if err := <-slept; err == nil {
		t.Error("the session's statement succeeded")
	}
}

// statusOf is the status of an answer.
func statusOf(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

func TestServeWithAConfigurationThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		code int
		want string
	}{
		"no file":   {"nonesuch.yaml", exitUsage, "fenceproxy: reading the configuration: stat nonesuch.yaml: no such file or directory\n"},
		"mistakes":  {configFile(t, "elections: {backend: \"x://\"}\nlisteners: []\n"), exitUsage, ":2:1: listeners: is an empty list: leave it out, or give at least one\n"},
		"busy port": {configFile(t, postgresConfig, "redis://127.0.0.1:1", testenv.SharedRedis(t).Addr, "127.0.0.1:1", "postgres://fenceproxy@127.0.0.1:1/postgres", "x"), exitFailure, ":6:5: listener db: listen tcp " + testenv.SharedRedis(t).Addr + ": bind: address already in use\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cmd := range []string{"serve", "check"} {
				if cmd == "check" && name == "busy port" {
					continue // a warning there
				}
				r := command(t, "", cmd, "-c", c.file)
				if r.code != c.code || !strings.HasSuffix(r.err, c.want) || r.out != "" {
					t.Errorf("%s: %+v", cmd, r)
				}
			}
		})
	}
}

// TestServeBeforeTheServersAreThere: nothing that is down keeps the proxy from
// starting; it says what is wrong, and refuses.
func TestServeBeforeTheServersAreThere(t *testing.T) {
	addr := freeAddr(t)
	adm := freeAddr(t)
	file := configFile(t, postgresConfig+"admin: {listen: %s}\n", "redis://:hunter2@127.0.0.1:1", addr, "127.0.0.1:1", "postgres://fenceproxy:hunter2@127.0.0.1:1/postgres", "x", adm)
	proxy := serve(t, file, addr, "the election backend does not answer", "the upstream does not answer", "the control connection does not work")
	var refused *pgconn.PgError
	if _, err := pgx.Connect(t.Context(), "postgres://app@"+addr+"/postgres?sslmode=disable"); !errors.As(err, &refused) || refused.Code != "08006" {
		t.Errorf("got %v", err)
	}
	for path, want := range map[string]int{"/health": 503, "/readiness": 503, "/liveness": 200} {
		if got := statusOf(t, "http://"+adm+path); got != want {
			t.Errorf("%s: %d without an election backend", path, got)
		}
	}
	_ = proxy.Process.Signal(syscall.SIGTERM)
	if code := proxy.ended(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	log := proxy.log.String()
	if strings.Count(log, "fix=\"Start ") != 3 || strings.Contains(log, "hunter2") || strings.Contains(log, `\n`) {
		t.Errorf("the log:\n%s", log)
	}
}

// TestCheckSaysWhatWouldFail has everything wrong that can be at once.
func TestCheckSaysWhatWouldFail(t *testing.T) {
	redis := testenv.SharedRedis(t)
	p := testenv.Postgres(t, servers.PostgresOptions{}) // nothing installed
	bare := p.DSN(servers.Superuser, "postgres")
	file := configFile(t, `elections:
  backend: %s
listeners:
  - {name: bare, protocol: postgres, listen: "%s", upstream: "%s", control: "%s"}
  - {name: down, protocol: postgres, listen: "127.0.0.1:0", upstream: "127.0.0.1:1", control: "postgres://u:hunter2@127.0.0.1:1/postgres"}
  - {name: odd, protocol: postgres, listen: "192.0.2.1:6432", upstream: "%s", control: "%s"}
  - {name: cache, protocol: redis, listen: "127.0.0.1:0", upstream: "%s", control: "redis://%s", nodes: ["127.0.0.1:1"]}
`, bare, redis.Addr, p.Addr, bare, redis.Addr, bare, redis.Addr, redis.Addr)
	r := command(t, "", "check", "-c", file, "--timeout", "2s")
	if r.code != exitFailure || strings.Contains(r.out, "hunter2") {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{
		"fail  elections at postgres://postgres@", "fenceproxy install --elections",
		"warn  bare: cannot listen on " + redis.Addr,
		"fail  odd: cannot listen on 192.0.2.1:6432: ", "Choose another address",
		"ok    bare: upstream " + p.Addr + " answers as postgres",
		"fail  bare: ",
		"fail  down: upstream 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused",
		"fail  down: ",
		"fail  odd: upstream " + redis.Addr + ": ",
		"warn  odd: control leads to " + p.Addr + ", upstream to " + redis.Addr,
		"ok    cache: upstream " + redis.Addr + " answers as redis",
		"fail  cache: ",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q", want)
		}
	}
	t.Logf("\n%s%s", r.out, r.err)
}
