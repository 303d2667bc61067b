package pgclients

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	electionredis "github.com/fenceproxy/fenceproxy/election/redis"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	_ "github.com/fenceproxy/fenceproxy/protocols/pg" // so that go test notices when the program changes
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A stage is a Postgres, a fenceproxy of its own in front of it, and an election and a
// database of the same name, which belongs to the role "app".
type stage struct {
	name      string
	server    *servers.Process
	proxy     string // host:port
	elections election.Backend
	admin     *pgx.Conn // as the superuser, beside the proxy
}

// installed has the fence in the package's one server of each version.
var installed struct {
	sync.Mutex
	in map[*servers.Process]bool
}

// newStage is a stage on the server that Debian's programs belong to.
func newStage(t *testing.T, ctx context.Context, name string) *stage {
	t.Helper()
	return newStageOn(t, ctx, name, testenv.SharedPostgres(t))
}

// newStageOn is a stage on some server; more are further settings of the listener.
func newStageOn(t *testing.T, ctx context.Context, name string, server *servers.Process, more ...string) *stage {
	t.Helper()
	s := &stage{name: name, server: server, admin: connect(t, ctx, server.DSN(servers.Superuser, "postgres"))}
	s.install(t, ctx)
	url := "redis://" + testenv.SharedRedis(t).Addr + "/0"
	b, err := electionredis.OpenURL(url, electionredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() }) // behind the resignations
	s.elections = b
	// Nothing is asked between a resignation and the next acquisition, so that a loss
	// is a takeover every time.
	s.proxy = testenv.StartProxy(t, url, fmt.Sprintf("protocol: postgres\nupstream: %s\ncontrol: %s\nelection: %s\n%s",
		server.Addr, server.DSN("fenceproxy", "postgres"), name, strings.Join(more, "\n")), "guard: {validate_every: 60s, permit: 120s}").Addr
	s.fresh(t, ctx)
	return s
}

func (s *stage) install(t *testing.T, ctx context.Context) {
	t.Helper()
	installed.Lock()
	defer installed.Unlock()
	if installed.in[s.server] {
		return
	}
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Role: "fenceproxy", Login: true, SCRAM: true})
	if err != nil {
		t.Fatal(err)
	}
	s.exec(t, ctx, sql)
	s.exec(t, ctx, "create role app login password 'secret'")
	if installed.in == nil {
		installed.in = map[*servers.Process]bool{}
	}
	installed.in[s.server] = true
}

// exec runs statements as the superuser, beside the proxy.
func (s *stage) exec(t *testing.T, ctx context.Context, sql string) {
	t.Helper()
	if _, err := s.admin.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// fresh makes the database anew: what two runs print can only be the same when both
// find the same.
func (s *stage) fresh(t *testing.T, ctx context.Context) {
	t.Helper()
	s.drop(t, ctx, s.name)
	s.exec(t, ctx, "create database "+s.name+" owner app")
	c := connect(t, ctx, s.server.DSN("app", s.name))
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, "create table written (what text)"); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) drop(t *testing.T, ctx context.Context, database string) {
	t.Helper()
	s.exec(t, ctx, "drop database if exists "+database+" with (force)")
}

func connect(t *testing.T, ctx context.Context, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// lead acquires the election as soon as it is to be had.
func (s *stage) lead(t *testing.T, ctx context.Context, owner string) guard.Credential {
	t.Helper()
	var got election.AcquireResult
	testenv.Eventually(t, owner+" leads", func() bool {
		var err error
		got, err = s.elections.Acquire(ctx, s.name, election.AcquireOptions{Owner: owner, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status == election.Acquired
	})
	// Another run in this process finds the election free.
	t.Cleanup(func() { _, _ = s.elections.Resign(context.Background(), s.name, got.Token, election.ResignOptions{}) })
	return guard.Credential{Election: s.name, Token: got.Token}
}

func (s *stage) resign(t *testing.T, ctx context.Context, c guard.Credential) {
	t.Helper()
	if _, err := s.elections.Resign(ctx, c.Election, c.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A place is where a client connects to, and what it presents there.
type place struct {
	addr     string
	database string
	token    string // empty: none
	sslmode  string // empty: disable
	ca       string // a file, with sslmode verify-full
}

func (s *stage) direct() place { return place{addr: s.server.Addr, database: s.name} }

func (s *stage) reader() place { return place{addr: s.proxy, database: s.name} }

func (s *stage) leader(c guard.Credential) place {
	p := s.reader()
	p.token = c.Token.Reveal()
	return p
}

// env is the environment of a client program. Most read libpq's variables by
// themselves; FENCE_TOKEN is for those that do not.
func (p place) env() []string {
	host, port, _ := net.SplitHostPort(p.addr)
	env := append(os.Environ(), "PGHOST="+host, "PGPORT="+port, "PGUSER=app", "PGDATABASE="+p.database,
		"PGSSLMODE="+p.mode(), "PGCONNECT_TIMEOUT=60", "LC_ALL=C.UTF-8", "TZ=UTC", "PSQL_HISTORY=/dev/null", "PAGER=cat",
		"FENCE_TOKEN="+p.token)
	if p.token != "" {
		env = append(env, "PGOPTIONS="+p.options())
	}
	if p.sslmode != "" {
		env = append(env, "PGPASSWORD=secret")
	}
	if p.ca != "" {
		env = append(env, "PGSSLROOTCERT="+p.ca)
	}
	return env
}

func (p place) mode() string { return cmp.Or(p.sslmode, "disable") }

// options is the options parameter that presents the credential.
func (p place) options() string { return "-c fence.token=" + p.token }

// command is a client program at a place.
func (p place) command(ctx context.Context, bin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = p.env()
	return cmd
}

// run runs a client program at a place and returns what it printed.
func (p place) run(t *testing.T, ctx context.Context, stdin, bin string, args ...string) string {
	t.Helper()
	cmd := p.command(ctx, bin, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(bin), strings.Join(args, " "), err, complaints.String())
	}
	return string(out) + complaints.String()
}

// try runs a client program that may fail.
func (p place) try(ctx context.Context, stdin, bin string, args ...string) (string, error) {
	cmd := p.command(ctx, bin, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
