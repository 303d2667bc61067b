package main

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// check --explain says which rules and elections decide.
func TestExplain(t *testing.T) {
	p := testenv.SharedRedis(t)
	file := configFile(t, `elections: {backend: "redis://%[1]s"}
listeners:
  - name: db
    protocol: postgres
    listen: 127.0.0.1:0
    upstream: 127.0.0.1:1
    control: postgres://fenceproxy@127.0.0.1:1/postgres
    election: rest
    rules:
      - {tables: scratch.*, access: open}
      - {tables: secret.*, access: deny}
      - {tables: [billing.*, invoices.*], election: billing}
      - {tables: "tenant_{t}.*", election: "tenant-{t}"}
      - {functions: billing.*, election: billing}
  - name: cache
    protocol: redis
    listen: 127.0.0.1:0
    upstream: %[1]s
    control: redis://%[1]s
    election_commands: {}
    rules:
      - {keys: "orders:{shard}:*", election: "orders-{shard}"}
      - {keys: "open:*", access: open}
  - name: other
    protocol: redis
    listen: 127.0.0.1:0
    upstream: %[1]s
    control: redis://%[1]s
    rules: [{keys: "a", election: a}]
  - name: plain
    protocol: redis
    listen: 127.0.0.1:0
    upstream: %[1]s
    control: redis://%[1]s
`, p.Addr)
	const anyToken = "needs the live token of any election that the listener serves"
	for _, c := range []struct {
		listener, text string
		code           int
		want           string // parts of the answer, with | between
	}{
		{"db", "INSERT INTO billing.a SELECT * FROM tenant_7.b", exitOK, `listener db (postgres)|writes table billing.a|rule 3 (tables billing.*, invoices.*): election "billing"|needs the live token of billing`},
		{"db", "WITH x AS (DELETE FROM tenant_7.b RETURNING 1) UPDATE billing.a SET n = 1", exitOK, `rule 4 (tables tenant_{t}.*): election "tenant-{t}", here "tenant-7"|, and of `},
		{"db", "INSERT INTO scratch.a VALUES (1)", exitOK, "open to everybody|no election is needed"},
		{"db", "INSERT INTO scratch.a SELECT a FROM other.b", exitOK, "a session without a token cannot send it, because of table other.b|" + anyToken},
		{"db", "BEGIN; INSERT INTO scratch.a VALUES (1); COMMIT", exitOK, "each statement in a message of its own|" + anyToken},
		{"db", "CREATE TABLE scratch.zz (i int)", exitOK, "a session without a token cannot send it, because of create|" + anyToken},
		{"db", "DROP TABLE scratch.c", exitOK, "a session without a token cannot send it, because of drop|" + anyToken},
		{"db", "VACUUM scratch.s", exitOK, "a session without a token cannot send it, because of vacuum|" + anyToken},
		{"db", "TRUNCATE secret.a", exitNo, "denies writing table secret.a to everybody|nobody may send it"},
		{"db", "SELECT 1", exitOK, "it writes nothing: no election is needed"},
		{"db", "VACUUM", exitNo, "VACUUM or ANALYZE of all tables"},
		{"db", "INSERT INTO a VALUES (1)", exitOK, `no rule: the listener's election "rest"|search path public`},
		{"db", "DO $$ begin end $$", exitNo, "it cannot be told what DO writes"},
		{"db", "SELEC", exitNo, "it cannot be parsed"},
		{"cache", "SET orders:7:a 1", exitOK, `listener cache (redis)|writes key "orders:7:a"|here "orders-7"|needs the live token of orders-7`},
		{"cache", `RENAME "orders:7:a" orders:8:b`, exitOK, "needs the live token of orders-7, and of orders-8"},
		{"cache", "COPY orders:7:a open:b", exitOK, "it writes only what is open"},
		{"cache", "EVAL x 1 open:b", exitOK, "a script can write more"},
		{"cache", "GET orders:7:a", exitOK, "it writes nothing: no election is needed"},
		{"cache", "SET x 1", exitNo, "no rule matches key \"x\""},
		{"cache", "FLUSHALL", exitNo, "it cannot be told what FLUSHALL writes, and rule 1 "},
		{"cache", "NOSUCH a", exitNo, "a command that the server does not know"},
		{"cache", "MONITOR", exitOK, "sessions that hold a live token of any election"},
		{"cache", "CONFIG SET maxmemory 1", exitNo, "nobody may send it through the proxy"},
		{"cache", "SAVE", exitNo, "it administers the server"},
		{"cache", "SHUTDOWN", exitNo, "it administers the server"},
		{"cache", "SWAPDB 0 1", exitNo, "it administers the server"},
		{"cache", "DEBUG SLEEP 1", exitNo, "it administers the server"},
		{"cache", "CLIENT KILL ID 1", exitNo, "it administers the server"},
		{"cache", "ACL SETUSER a", exitNo, "it administers the server"},
		{"cache", "fence status", exitOK, "the proxy answers it itself, to everybody"},
		{"cache", "FENCE GATE LIST", exitNo, "not set up on this listener (gate_commands)"},
		{"cache", "ELECTION STATUS orders-7", exitOK, "the proxy answers it itself, to whom election_commands lets"},
		{"other", "ELECTION STATUS orders-7", exitNo, "not set up on this listener (election_commands)"},
		{"cache", " ", exitUsage, "--explain needs a statement or command"},
		{"db", "", exitUsage, "--explain needs a statement or command"},
		{"cache", "SET fenceproxy:{a}:fence 1", exitNo, "a fence's own key"},
		{"cache", `SET "a`, exitUsage, "quotes"},
		{"plain", "SET a 1", exitUsage, "listener plain has no rules"},
		{"none", "SET a 1", exitUsage, "has no listener none"},
		{"", "SET a 1", exitUsage, "several listeners have rules: say which is meant, with --listener db or cache or other"},
	} {
		args := []string{"check", "-c", file, "--explain", c.text}
		if c.listener != "" {
			args = append(args, "--listener", c.listener)
		}
		r := command(t, "", args...)
		if r.code != c.code {
			t.Errorf("%s: code %d, want %d\n%s%s", c.text, r.code, c.code, r.out, r.err)
		}
		for part := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(r.out+r.err, part) {
				t.Errorf("%s: got\n%s%swant %q", c.text, r.out, r.err, part)
			}
		}
	}
	r := command(t, "", "check", "-c", file, "--listener", "db", "--search-path", "billing, $user", "--explain", "DELETE FROM a")
	if r.code != exitOK || !strings.Contains(r.out, "table billing.a") {
		t.Errorf("%d %s%s", r.code, r.out, r.err)
	}
	for want, args := range map[string][]string{
		"go with --explain":             {"--listener", "db"},
		"--search-path go with":         {"--search-path", "a"},
		"--search-path is for Postgres": {"--listener", "cache", "--search-path", "a", "--explain", "GET a"},
	} {
		if r := command(t, "", append([]string{"check", "-c", file}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: %d %s%s", args, r.code, r.out, r.err)
		}
	}
}

// check reports patterns that overlap.
func TestCheckReportsOverlaps(t *testing.T) {
	p := testenv.SharedRedis(t)
	r := checked(t, p.Addr, p.Addr, "redis://"+p.Addr, `, rules: [{keys: "a:*", election: a}, {keys: ["*:b", "*:b"], election: b}, {keys: "c", access: deny}]`)
	for _, want := range []string{
		`warn  db: rule 2: pattern "*:b" and rule 1 ("a:*") match some of the same names, which go to rule 1`,
		`warn  db: rule 2: pattern "*:b" never matches: rule 2 ("*:b"), which comes before it, takes all its names`,
		"ok    db: 3 rules; what none matches: nobody may write it",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
}

// check says what is hardly meant in a pattern, and what becomes of the rest.
func TestCheckDoubtsPatterns(t *testing.T) {
	file := configFile(t, `elections: {backend: "redis://127.0.0.1:1"}
listeners:
  - name: db
    protocol: postgres
    listen: 127.0.0.1:0
    upstream: 127.0.0.1:1
    control: postgres://fenceproxy@127.0.0.1:1/postgres
    rules: [{tables: Foo.Bar, election: a}]
`)
	r := command(t, "", "check", "-c", file)
	for _, want := range []string{
		`warn  db: rule 1: pattern "Foo.Bar" matches no name but one that was made in quotes`,
		"ok    db: 1 rule; what none matches: nobody may write it",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s%s", want, r.out, r.err)
		}
	}
}
