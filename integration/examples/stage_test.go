package examples

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	_ "github.com/fenceproxy/fenceproxy/protocols/pg"   // so that go test notices when the
	_ "github.com/fenceproxy/fenceproxy/protocols/resp" // program changes
)

func TestMain(m *testing.M) {
	flag.Parse()
	// They wait for leases to end more than they work.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	testenv.Main(m)
}

// lease is what the workers of the tests ask for.
const lease = "3s"

// A stage is what an example needs: servers, and a proxy with the example's own
// configuration, all on ports of the test's.
type stage struct {
	dir       string // the example's
	readme    string
	database  string // of its own, with the examples' schema
	addresses *strings.Replacer
	seen      map[string]string // addresses in the example, and here
	proxies   []*testenv.Proxy
}

// installed has the fence and the role of the examples in the package's one Postgres.
var installed sync.Mutex

// newStage makes the stage of examples/<name>, and starts its proxies: one for each of
// the example's configurations.
func newStage(t *testing.T, ctx context.Context, name string, configs ...string) *stage {
	t.Helper()
	return newStageIn(t, ctx, name, name, configs...)
}

// newStageIn is a stage with a database of that name.
func newStageIn(t *testing.T, ctx context.Context, name, database string, configs ...string) *stage {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.Sources(filepath.Join("examples", name)); err != nil {
		t.Fatal(err)
	}
	pg := testenv.SharedPostgres(t)
	s := &stage{dir: dir, database: database, seen: map[string]string{
		"127.0.0.1:5432": pg.Addr,
	}}
	s.readme = s.read(t, "README.md")
	s.look(t)
	s.prepare(t, ctx, pg)

	texts := make([]string, len(configs))
	first := make([]string, len(configs))
	for i, c := range configs {
		texts[i] = strings.ReplaceAll(s.read(t, c), "ttl: 15s", "ttl: "+lease)
		if _, ok := s.seen[redisAddr]; !ok && strings.Contains(texts[i], redisAddr) {
			s.seen[redisAddr] = testenv.Redis(t).Addr
		}
		for _, m := range listening.FindAllStringSubmatch(texts[i], -1) {
			port, err := servers.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			s.seen[m[1]] = fmt.Sprintf("127.0.0.1:%d", port)
			if first[i] == "" {
				first[i] = s.seen[m[1]]
			}
		}
	}
	var pairs []string
	for there, here := range s.seen {
		pairs = append(pairs, there, here)
	}
	s.addresses = strings.NewReplacer(pairs...)
	for i, text := range texts {
		s.proxies = append(s.proxies, testenv.StartProxyOf(t, first[i], s.addresses.Replace(text)))
	}
	return s
}

const redisAddr = "127.0.0.1:6379"

// listening finds the addresses that a configuration listens at.
var listening = regexp.MustCompile(`listen: (127\.0\.0\.1:\d+)`)

// look has go test notice when a file of the example changes.
func (s *stage) look(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			t.Error(err)
		}
	}
}

// read returns a file of the example.
func (s *stage) read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// prepare does once what examples/README.md says, and makes the example's database.
func (s *stage) prepare(t *testing.T, ctx context.Context, pg *servers.Process) {
	t.Helper()
	installed.Lock()
	defer installed.Unlock()
	admin := connect(t, ctx, pg.DSN(servers.Superuser, "postgres"))
	var there bool
	if err := admin.QueryRow(ctx, "select exists (select from pg_roles where rolname = 'app')").Scan(&there); err != nil {
		t.Fatal(err)
	}
	if !there {
		exec1(t, ctx, admin, "CREATE ROLE app LOGIN")
		out, err := exec.CommandContext(ctx, testenv.Program(t), "install", "--elections", "--grant", "app", "--dsn", pg.DSN(servers.Superuser, "postgres")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	exec1(t, ctx, admin, "CREATE DATABASE "+s.database+" OWNER app")
	schema, err := os.ReadFile(filepath.Join(s.dir, "..", "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	exec1(t, ctx, connect(t, ctx, pg.DSN("app", s.database)), string(schema))
}

func exec1(t *testing.T, ctx context.Context, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
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

// libpq is the environment of programs that read libpq's variables.
func (s *stage) libpq(t *testing.T) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.at("127.0.0.1:6432"))
	if err != nil {
		t.Fatal(err)
	}
	return []string{"PGHOST=" + host, "PGPORT=" + port, "PGUSER=app", "PGDATABASE=" + s.database, "LC_ALL=C"}
}

// at is an address of the example's, as it is here.
func (s *stage) at(addr string) string {
	if here, ok := s.seen[addr]; ok {
		return here
	}
	return addr
}

// journal is what the leaders of an example wrote to Postgres, in order.
func (s *stage) journal(t *testing.T, ctx context.Context) (all []entry) {
	t.Helper()
	c := connect(t, ctx, "postgres://app@"+s.at("127.0.0.1:5432")+"/"+s.database)
	rows, err := c.Query(ctx, "SELECT worker, number FROM journal ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// inTransaction says whether a worker's transaction is open and waits for its client.
func (s *stage) inTransaction(t *testing.T, ctx context.Context) func() bool {
	t.Helper()
	c := connect(t, ctx, testenv.SharedPostgres(t).DSN(servers.Superuser, "postgres"))
	return func() (so bool) {
		t.Helper()
		const open = "select exists (select from pg_stat_activity where datname = $1 and state = 'idle in transaction')"
		if err := c.QueryRow(ctx, open, s.database).Scan(&so); err != nil {
			t.Fatal(err)
		}
		return so
	}
}

// vacant checks that nobody leads an election any more.
func vacant(t *testing.T, ctx context.Context, url, id string) {
	t.Helper()
	b, err := open.Backend(ctx, url, open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if st, err := b.Status(ctx, id); err != nil || st.Status != election.Vacant {
		t.Errorf("when all workers have ended: %+v %v", st, err)
	}
}
