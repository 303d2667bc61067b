package pg

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// program runs a Postgres client program, with more environment.
func (r *rig) program(name string, env []string, args ...string) (string, error) {
	r.t.Helper()
	pg, err := servers.FindPostgres()
	if err != nil {
		r.t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(r.addr)
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(filepath.Dir(pg), name), args...)
	cmd.Env = append(os.Environ(), "PGHOST="+host, "PGPORT="+port, "PGUSER=app", "PGDATABASE="+r.db, "PGCONNECT_TIMEOUT=20", "LC_ALL=C")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestPsql(t *testing.T) {
	r := newRig(t, nil)
	token := r.guard.lead().Reveal()
	for _, c := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, []string{"-Atc", "SELECT 1"}, "1\n"},
		{nil, []string{"-c", "INSERT INTO t VALUES (1)"},
			"ERROR:  write refused: this session has no live token of election \"orders\"\n" +
				"DETAIL:  Refused: INSERT.\n" +
				"HINT:  Present the live token: SET fence.token = '...', or options=-c fence.token=... at connect.\n"},
		{[]string{"PGOPTIONS=-c fence.election=orders -c fence.token=" + token}, []string{"-Atc", "INSERT INTO t VALUES (1) RETURNING a"}, "1\nINSERT 0 1\n"},
		{nil, []string{"-Atc", "SET fence.election = 'orders'; SET fence.token = '" + token + "'", "-c", "INSERT INTO t VALUES (2)", "-c", "SHOW fence.status"},
			"SET\nSET\nINSERT 0 1\nbound\n"},
		{nil, []string{"-Atc", "SET fence.token TO '" + token + "'", "-c", "DISCARD ALL", "-c", "INSERT INTO t VALUES (3)"}, "SET\nDISCARD ALL\nINSERT 0 1\n"},
		{[]string{"PGOPTIONS=-c fence.token=" + token + " -c work_mem=2MB"}, []string{"-Atc", "SHOW work_mem; COPY t FROM STDIN"}, "2MB\nCOPY 0\n"},
		{[]string{"PGOPTIONS=-c fence.token=0123456789abcdefghij"}, []string{"-Atc", "SELECT 1"},
			"WARNING:  stale leader refused: election \"orders\" is ruled by number 1; this session may only read\n" +
				"DETAIL:  Election \"orders\": this session holds number 1; number 1 rules, held by \"w2\".\n" +
				"HINT:  Stop writing, acquire the election again and connect with the new token; reading works without one.\n1\n"},
	} {
		out, _ := r.program("psql", c.env, append([]string{"-X"}, c.args...)...)
		if out != c.want {
			t.Errorf("%v\nsays\n%s\nshould say\n%s", c.args, out, c.want)
		}
	}
	// libpq finds the leader, and a reader, by itself.
	for params, want := range map[string]string{
		"target_session_attrs=read-write options='-c fence.token=" + token + "'": "bound\n",
		"target_session_attrs=read-only":                                         "reader\n",
	} {
		if out, err := r.program("psql", nil, "-XAtc", "SHOW fence.status", params); err != nil || out != want {
			t.Errorf("%s: %v %s", params, err, out)
		}
	}
	if out, err := r.program("psql", nil, "-XAtc", "SELECT 1", "target_session_attrs=read-write"); err == nil {
		t.Errorf("a reader counts as read-write: %s", out)
	}
}

func TestPgbench(t *testing.T) {
	r := newRig(t, nil)
	env := []string{"PGOPTIONS=-c fence.token=" + r.guard.lead().Reveal()}
	if out, err := r.program("pgbench", env, "-i", "-q"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, mode := range []string{"simple", "extended", "prepared"} {
		out, err := r.program("pgbench", env, "-n", "-M", mode, "-c", "4", "-t", "50")
		if err != nil || !strings.Contains(out, "number of transactions actually processed: 200/200") {
			t.Errorf("%s: %v %s", mode, err, out)
		}
		// Readers: only reads, and those without a hitch.
		out, err = r.program("pgbench", nil, "-n", "-S", "-M", mode, "-c", "4", "-t", "50")
		if err != nil || !strings.Contains(out, "number of transactions actually processed: 200/200") {
			t.Errorf("%s, reading: %v %s", mode, err, out)
		}
		if out, err = r.program("pgbench", nil, "-n", "-M", mode, "-t", "1"); err == nil || !strings.Contains(out, "write refused") {
			t.Errorf("%s: %v %s", mode, err, out)
		}
	}
	pipeline := filepath.Join(t.TempDir(), "pipeline.sql")
	if err := os.WriteFile(pipeline, []byte("\\startpipeline\nSELECT 1;\nUPDATE pgbench_branches SET bbalance = 1;\nSELECT 2;\n\\endpipeline\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := r.program("pgbench", env, "-n", "-M", "extended", "-f", pipeline, "-t", "50"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	if got := queryString(t, r.admin, "SELECT count(*)::text FROM pgbench_history"); got != "600" {
		t.Errorf("%s transactions", got)
	}
}

// A reader can take a backup.
func TestPgDumpReads(t *testing.T) {
	r := newRig(t, nil)
	mustExec(t, r.admin, "INSERT INTO t VALUES (1, 'one')")
	mustExec(t, r.admin, "CREATE VIEW v AS SELECT * FROM t; GRANT SELECT ON v TO app")
	direct := *r
	direct.addr = r.pg.Addr
	want, err := direct.program("pg_dump", nil)
	if err != nil {
		t.Fatalf("%v %s", err, want)
	}
	got, err := r.program("pg_dump", nil)
	// A dump holds a random key in two lines.
	plain := func(s string) string {
		return regexp.MustCompile(`(?m)^\\(un)?restrict .*$`).ReplaceAllString(s, "")
	}
	if err != nil || plain(got) != plain(want) {
		t.Errorf("%v\n%s", err, got)
	}
	if out, err := r.program("pg_dump", nil, "-Fd", "-j2", "-f", filepath.Join(t.TempDir(), "dump")); err != nil {
		t.Errorf("%v %s", err, out)
	}
}

func TestPgxBatchesAndCopy(t *testing.T) {
	r := newRig(t, nil)
	c := r.leader()
	n, err := c.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"a", "b"}, pgx.CopyFromSlice(5000, func(i int) ([]any, error) {
		return []any{i, strings.Repeat("x", 100)}, nil
	}))
	if err != nil || n != 5000 {
		t.Fatal(n, err)
	}
	if _, err := c.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"a"}, pgx.CopyFromRows([][]any{{6000}, {1}})); err == nil {
		t.Error("a duplicate key went in")
	}
	var b pgx.Batch
	for i := range 100 {
		b.Queue("UPDATE t SET b = $1 WHERE a = $2", fmt.Sprint(i), i)
		b.Queue("SELECT b FROM t WHERE a = $1", i)
	}
	if err := c.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if _, err := c.PgConn().CopyTo(t.Context(), &out, "COPY (SELECT b FROM t WHERE a = 99) TO STDOUT"); err != nil || out.String() != "99\n" {
		t.Errorf("%q %v", out.String(), err)
	}
	// A refused write in a reader's batch fails the batch, and the session goes on.
	reader := r.connect("")
	b = pgx.Batch{}
	b.Queue("SELECT 1")
	b.Queue("DELETE FROM t WHERE a = $1", 1)
	b.Queue("SELECT 2")
	wantError(t, reader.SendBatch(t.Context(), &b).Close(), "25006", "DELETE")
	if got := queryString(t, reader, "SELECT count(*)::text FROM t"); got != "5000" {
		t.Error(got)
	}
	wantError(t, second(reader.CopyFrom(t.Context(), pgx.Identifier{"t"}, []string{"a"}, pgx.CopyFromRows([][]any{{7000}}))), "25006")
	// A pipeline of pgconn's, with several Syncs.
	p := c.PgConn().StartPipeline(t.Context())
	for i := range 50 {
		p.SendQueryParams("INSERT INTO t VALUES ($1)", [][]byte{fmt.Append(nil, 10000+i)}, nil, nil, nil)
		if err := p.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got := queryString(t, c, "SELECT count(*)::text FROM t"); got != "5050" {
		t.Error(got)
	}
}

func second(_ int64, err error) error { return err }

// Authentication passes through untouched, whatever it is.
func TestAuthentication(t *testing.T) {
	p := testenv.Postgres(t, servers.PostgresOptions{HBA: `local all all trust
host all postgres 127.0.0.1/32 trust
host all scram 127.0.0.1/32 scram-sha-256
host all md5 127.0.0.1/32 md5
host all clear 127.0.0.1/32 password
host all all 127.0.0.1/32 reject
`})
	admin := connect(t, p.DSN(servers.Superuser, "postgres"))
	for _, sql := range []string{"CREATE ROLE scram LOGIN PASSWORD 'secret'", "CREATE ROLE clear LOGIN PASSWORD 'secret'",
		"SET password_encryption = md5", "CREATE ROLE md5 LOGIN PASSWORD 'secret'",
		"CREATE TABLE t (a int); GRANT ALL ON t TO PUBLIC"} {
		mustExec(t, admin, sql)
	}
	r := &rig{t: t, pg: p, db: "postgres", guard: &fakeGuard{}}
	r.serve(nil)
	token := r.guard.lead().Reveal()
	for _, role := range []string{"scram", "md5", "clear"} {
		c := connect(t, fmt.Sprintf("postgres://%s:secret@%s/postgres?sslmode=prefer&fence.token=%s", role, r.addr, token))
		mustExec(t, c, "INSERT INTO t VALUES (1)")
		_, err := pgx.Connect(t.Context(), fmt.Sprintf("postgres://%s:wrong@%s/postgres?sslmode=disable", role, r.addr))
		wantError(t, err, "28P01")
		out, err := r.program("psql", []string{"PGPASSWORD=secret", "PGUSER=" + role, "PGSSLMODE=prefer"}, "-XAtc", "SELECT current_user")
		if err != nil || strings.TrimSpace(out) != role {
			t.Errorf("%s: %v %s", role, err, out)
		}
	}
	_, err := pgx.Connect(t.Context(), fmt.Sprintf("postgres://other@%s/postgres?sslmode=disable", r.addr))
	wantError(t, err, "28000")
}

// No token reaches the server's log of statements, or ours.
func TestTokensAreNotLogged(t *testing.T) {
	p := testenv.Postgres(t, servers.PostgresOptions{Settings: []string{"log_statement=all", "log_min_messages=debug1", "log_connections=on", "log_min_duration_statement=0"}})
	r := &rig{t: t, pg: p, db: "postgres", guard: &fakeGuard{}}
	var ours testenv.Buffer
	r.serve(func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&ours, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	token := r.guard.lead().Reveal()
	dsn := fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", r.addr)
	for _, params := range []string{"", "&default_query_exec_mode=simple_protocol", "&default_query_exec_mode=exec"} {
		c := connect(t, dsn+params)
		for _, sql := range []string{"SET LOCAL fence.token='" + token + "'", "SET fence.tok='" + token + "'", "SET fence.token='" + token + "' NONSENSE",
			"SELECT set_config('fence.token','" + token + "',false)", "SET fence.token='" + token + "'; SELECT 1", "SET fence.token='" + token + "'",
			"SET fence.token='" + token + "' NONSENSE", "SELECT set_config('fence.token','" + token + "',false)"} {
			_ = try(t, c, sql)
		}
		mustExec(t, c, "SELECT 1")
	}
	mustExec(t, connect(t, dsn+"&fence.token="+token), "SELECT 'last words'")
	mustExec(t, connect(t, p.DSN("postgres", "postgres")), "SELECT 1")
	r.stop()
	for name, log := range map[string]string{"the server's": p.Log(), "ours": ours.String()} {
		if strings.Contains(log, token) {
			t.Errorf("the token is in %s log:\n%s", name, log)
		}
	}
	if !strings.Contains(p.Log(), "last words") {
		t.Error("the server logged nothing")
	}
	if !strings.Contains(ours.String(), "session bound") {
		t.Errorf("we logged %q", ours.String())
	}
}

// PREPARE TRANSACTION by a leader is refused, unless it is allowed.
func TestPrepareTransaction(t *testing.T) {
	r := newRig(t, nil)
	c := r.leader()
	for _, sql := range []string{"PREPARE TRANSACTION 'x'", "prepare\n/* /* */ */ transaction -- x\n 'x'", "SELECT 1; PREPARE TRANSACTION 'x'"} {
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "INSERT INTO t VALUES (1)")
		wantError(t, try(t, c, sql), "FP009", "PREPARE TRANSACTION")
		mustExec(t, c, "ROLLBACK")
	}
	if got := queryString(t, r.admin, "SELECT count(*)::text FROM pg_prepared_xacts WHERE gid='x'"); got != "0" {
		t.Error(got)
	}
	r.stop()
	r.serve(func(c *Config) { c.AllowPreparedTransactions = true })
	c = r.leader()
	mustExec(t, c, "BEGIN")
	mustExec(t, c, "INSERT INTO t VALUES (1)")
	mustExec(t, c, "PREPARE TRANSACTION 'x'")
	mustExec(t, c, "ROLLBACK PREPARED 'x'")
}
