package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A sidecarStage is a Postgres and a Redis that know of fences, and a table for one row a write: its
// number is that of the term that the server's session was bound to.
type sidecarStage struct {
	t      *testing.T
	pg     *servers.Process
	redis  *servers.Process
	db     string
	id     string // the election
	direct *pgx.Conn
	cache  *redis.Client // without a proxy
}

func newSidecarStage(t *testing.T) *sidecarStage {
	t.Helper()
	s := &sidecarStage{t: t, pg: testenv.SharedPostgres(t), redis: testenv.SharedRedis(t), db: testenv.Name(t, "db"), id: testenv.Name(t, "e")}
	root := s.connect(s.pg.DSN(servers.Superuser, "postgres"))
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Role: "fenceproxy", Login: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{sql, "DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN END $$", "CREATE DATABASE " + s.db} {
		if _, err := root.PgConn().Exec(testenv.Context(t), q).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	s.direct = s.connect(s.pg.DSN(servers.Superuser, s.db))
	if _, err := s.direct.Exec(testenv.Context(t), "CREATE TABLE w (id bigserial PRIMARY KEY, number bigint NOT NULL DEFAULT current_setting('fence.number')::bigint, who text)", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if _, err := s.direct.Exec(testenv.Context(t), "GRANT ALL ON w, w_id_seq TO app"); err != nil {
		t.Fatal(err)
	}
	s.cache = redis.NewClient(&redis.Options{Addr: s.redis.Addr, DisableIdentity: true})
	t.Cleanup(func() { _ = s.cache.Close() })
	return s
}

func (s *sidecarStage) connect(dsn string) *pgx.Conn {
	s.t.Helper()
	c, err := pgx.Connect(testenv.Context(s.t), dsn)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// dsn is how a program connects to a port on this machine.
func (s *sidecarStage) dsn(addr string) string {
	return fmt.Sprintf("postgres://app@%s/%s?sslmode=disable&connect_timeout=5", addr, s.db)
}

// A sidecarProxy is a process with a listener for each server, both of which campaign.
type sidecarProxy struct {
	*testenv.Proxy
	name, cache, admin string
}

const sidecarTTL = 2 * time.Second

func (s *sidecarStage) sidecar(name string) *sidecarProxy {
	s.t.Helper()
	one := &sidecarProxy{name: name, cache: freeAddr(s.t), admin: freeAddr(s.t)}
	elect := fmt.Sprintf("elect: {election: %s, owner: %s, ttl: %v}", s.id, name, sidecarTTL)
	one.Proxy = testenv.StartProxy(s.t, "redis://"+s.redis.Addr,
		fmt.Sprintf("protocol: postgres\nupstream: %s\ncontrol: %s\n%s", s.pg.Addr, s.pg.DSN("fenceproxy", "postgres"), elect),
		fmt.Sprintf("  - protocol: redis\n    listen: %s\n    upstream: %s\n    control: redis://%[2]s\n    %s", one.cache, s.redis.Addr, elect),
		"admin: {listen: "+one.admin+"}",
		"guard: {validate_every: 200ms, permit: 1s}")
	return one
}

func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// is waits until a health answer is 200.
func (p *sidecarProxy) is(t *testing.T, path string) {
	t.Helper()
	c := &http.Client{Timeout: time.Second}
	defer c.CloseIdleConnections()
	testenv.Eventually(t, p.name+" is "+path, func() bool {
		r, err := http.NewRequestWithContext(testenv.Context(t), http.MethodHead, "http://"+p.admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// loop runs psql again and again until the test ends, as a cron job would, each time with one
// INSERT and without a word about elections.
func (s *sidecarStage) loop(who, addr string) {
	s.t.Helper()
	psql := testenv.Tool(s.t, "psql")
	ctx, cancel := context.WithCancel(testenv.Context(s.t))
	script := filepath.Join(s.t.TempDir(), "loop.sh")
	text := "while :; do \"$PSQL\" -X -q -c \"INSERT INTO w (who) VALUES ('$WHO')\"; sleep 0.05; done\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "sh", script)
	cmd.Env = append(os.Environ(), "PSQL="+psql, "WHO="+who, "PGCONNECT_TIMEOUT=2")
	cmd.Env = append(cmd.Env, pgEnv(addr, s.db)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(sync.OnceFunc(func() { cancel(); _ = cmd.Wait() }))
}

func pgEnv(addr, db string) []string {
	host, port := split(addr)
	return []string{"PGHOST=" + host, "PGPORT=" + port, "PGUSER=app", "PGDATABASE=" + db, "PGSSLMODE=disable"}
}

// writes waits until a loop's rows have become more.
func (s *sidecarStage) writes(who string) {
	s.t.Helper()
	count := func() (n int) {
		if err := s.direct.QueryRow(testenv.Context(s.t), "SELECT count(*) FROM w WHERE who = $1", who).Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		return n
	}
	before := count()
	testenv.Eventually(s.t, who+" writes", func() bool { return count() > before })
}

// ordered checks that no row of a lower number stands behind one of a higher: nothing stale was
// applied. Ids are taken when a row is written, by sessions of one after the other.
func (s *sidecarStage) ordered(terms int) {
	s.t.Helper()
	var late, numbers int
	err := s.direct.QueryRow(testenv.Context(s.t),
		"SELECT count(*) FILTER (WHERE number < highest), count(DISTINCT number) FROM (SELECT number, max(number) OVER (ORDER BY id) AS highest FROM w) x").Scan(&late, &numbers)
	if err != nil {
		s.t.Fatal(err)
	}
	if late != 0 || numbers < terms {
		s.t.Errorf("%d late rows, of %d terms, want %d or more", late, numbers, terms)
	}
}
