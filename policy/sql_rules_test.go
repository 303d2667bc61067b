package policy_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/policy"
)

const rulesFile = "testdata/sql/rules.txt"

// tableRules are the rules of the table.
func tableRules(t testing.TB, more ...policy.Rule) *policy.Rules {
	t.Helper()
	r, err := policy.NewRules(append([]policy.Rule{
		{Kind: policy.Table, Patterns: []string{"billing.*"}, Election: "billing"},
		{Kind: policy.Table, Patterns: []string{"invoices.*"}, Election: "invoices"},
		{Kind: policy.Table, Patterns: []string{"tenant_{t}.*"}, Election: "tenant-{t}"},
		{Kind: policy.Function, Patterns: []string{"billing.*"}, Election: "billing"},
		{Kind: policy.Table, Patterns: []string{"scratch.*"}, Access: policy.Open},
		{Kind: policy.Table, Patterns: []string{"secret.*"}, Access: policy.Deny},
	}, more...), "", election.CheckID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A ruledCase is a line of the table.
type ruledCase struct {
	at         string
	path       string
	before     string // statements of the session, which are not judged
	want       string
	less, away bool // the servers may say less; they are not asked
	locks      bool // it takes locks, and writes nothing
	since      int  // the first major version that has the statement
	sql        string
}

func ruledCases(t testing.TB) []ruledCase {
	t.Helper()
	b, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var all []ruledCase
	path, before := "", ""
	for i, line := range strings.Split(string(b), "\n") {
		at := fmt.Sprintf("%s:%d", rulesFile, i+1)
		switch {
		case line == "" || line[0] == '#':
			continue
		case strings.HasPrefix(line, "path "):
			path = line[len("path "):]
			continue
		case strings.HasPrefix(line, "^ "):
			before = line[2:]
			continue
		}
		want, sql, ok := strings.Cut(line, " | ")
		if !ok {
			t.Fatalf("%s: %q", at, line)
		}
		c := ruledCase{at: at, path: path, before: before, want: want, sql: sql}
		before = ""
		c.want, c.less = strings.CutSuffix(want, "+")
		c.want, c.locks = strings.CutSuffix(c.want, "~")
		c.sql, c.away = strings.CutSuffix(sql, "!")
		if text, since, ok := strings.Cut(c.sql, " @"); ok {
			c.sql = text
			if c.since, err = strconv.Atoi(since); err != nil {
				t.Fatalf("%s: %v", at, err)
			}
		}
		all = append(all, c)
	}
	if len(all) < 90 {
		t.Fatalf("only %d statements", len(all))
	}
	return all
}

func (c ruledCase) targets(t testing.TB, s *policy.SQL, r *policy.Rules) []policy.Target {
	t.Helper()
	schemas, ok := policy.ParseSearchPath(c.path)
	if !ok {
		t.Fatalf("%s: path %q", c.at, c.path)
	}
	return s.Targets([]byte(c.sql)).Writing(policy.SearchPath{Known: true, Schemas: schemas, User: "app"}, r)
}

func needed(targets []policy.Target, d policy.Decision) string {
	switch {
	case d.Deny:
		return "deny"
	case len(targets) == 0:
		return "-"
	case d.Open:
		return "open"
	}
	e := slices.Sorted(slices.Values(d.Elections))
	return strings.Join(e, ",")
}

// Each statement of the table needs the elections that stand before it.
func TestSQLRules(t *testing.T) {
	s, r := policy.NewSQL(0), tableRules(t)
	for _, c := range ruledCases(t) {
		for range 2 { // the second time from the cache
			targets := c.targets(t, s, r)
			d := r.Decide(targets)
			if got := needed(targets, d); got != c.want {
				t.Errorf("%s: %s\n\tneeds %s, want %s\n\t%v %s", c.at, c.sql, got, c.want, targets, d.Why)
			}
		}
	}
}

const rulesSchema = `
CREATE SCHEMA billing;
CREATE SCHEMA invoices;
CREATE SCHEMA tenant_a;
CREATE SCHEMA tenant_b;
CREATE SCHEMA scratch;
CREATE SCHEMA secret;
CREATE TABLE billing.invoice (a int PRIMARY KEY DEFAULT 99, b text);
INSERT INTO billing.invoice VALUES (1, 'one'), (2, 'two');
CREATE TABLE billing.other (a int);
CREATE INDEX other_a ON billing.other (a);
CREATE TABLE billing.serial (a serial, b text);
CREATE SEQUENCE billing.counted;
CREATE VIEW billing.view AS SELECT * FROM billing.invoice;
CREATE MATERIALIZED VIEW billing.kept AS SELECT 1 AS a;
CREATE TABLE billing.parted (a int, b text) PARTITION BY LIST (a);
CREATE TABLE billing.parted_1 PARTITION OF billing.parted FOR VALUES IN (1);
CREATE TABLE invoices.line (a int UNIQUE, b text);
CREATE TABLE invoices.extra (a int, b text);
INSERT INTO invoices.line VALUES (1, 'one'), (2, 'two');
CREATE TABLE invoices.other (a int);
CREATE TABLE tenant_a.orders (a int, b text);
CREATE TABLE tenant_b.orders (a int, b text);
INSERT INTO tenant_b.orders VALUES (1, 'one');
CREATE TABLE scratch.pad (a int, b text);
CREATE TABLE secret.key (a int, b text);
CREATE TABLE public.loose (a int, b text);
CREATE FUNCTION billing.writes() RETURNS int LANGUAGE plpgsql AS $$ BEGIN UPDATE billing.invoice SET b = 'f'; RETURN 1; END $$;
CREATE FUNCTION billing.harmless(a int) RETURNS int LANGUAGE sql AS 'SELECT a';
CREATE FUNCTION billing.fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE FUNCTION public.fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE PROCEDURE billing.does() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO billing.invoice VALUES (70); END $$;
CREATE FUNCTION invoices.unruled() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO secret.key VALUES (70); RETURN 1; END $$`

// relationsNow are the relations of the schemas that the rules know, with those that an
// index is of.
const relationsNow = `SELECT c.oid, n.nspname, coalesce(t.relname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	LEFT JOIN pg_index i ON i.indexrelid = c.oid LEFT JOIN pg_class t ON t.oid = i.indrelid
	WHERE n.nspname IN ('billing', 'invoices', 'tenant_a', 'tenant_b', 'scratch', 'secret', 'public')`

// touched are the relations that the transaction holds locks on beyond those of a reader,
// or that the session has written rows of: the number grows.
const touched = `SELECT id, sum(n)::int FROM (
	SELECT relation, 1000000 FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND granted AND mode <> 'AccessShareLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	UNION ALL SELECT relid, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_xact_user_tables) x (id, n) WHERE n > 0 GROUP BY id`

const aLock = 1000000

// rulesSeeWhatIsWritten holds the table against the server: each statement is run, and the
// server asked what was written, made or locked by then. All of it has to be ruled by the
// elections that the statement was said to need; and, but for the marked ones, those by some
// of it.
func (l *lab) rulesSeeWhatIsWritten() {
	l.t.Helper()
	l.exec(l.admin, "CREATE DATABASE rules")
	c := l.connectConfig(servers.Superuser, func(c *pgx.ConnConfig) { c.Database = "rules" })
	defer func() {
		_ = c.Close(l.t.Context())
		l.exec(l.admin, "DROP DATABASE rules WITH (FORCE)")
	}()
	for sql := range strings.SplitSeq(rulesSchema, ";\n") {
		l.exec(c, sql)
	}
	s, r := policy.NewSQL(0), tableRules(l.t)
	compared := 0
	for _, one := range ruledCases(l.t) {
		if one.away || one.since > l.major {
			continue
		}
		compared++
		targets := one.targets(l.t, s, r)
		d := r.Decide(targets)
		names := l.relations(c)
		l.exec(c, "BEGIN; SET LOCAL search_path = "+one.path)
		if one.before != "" {
			l.exec(c, one.before)
		}
		before := l.touched(c)
		if _, err := c.PgConn().Exec(l.t.Context(), one.sql).ReadAll(); err != nil {
			l.t.Errorf("%s: %s\n\t%v", one.at, one.sql, err)
			l.exec(c, "ROLLBACK")
			continue
		}
		var written []policy.Target
		for id, n := range l.touched(c) {
			if t, ok := names[id]; ok && n > before[id] && (!one.locks || n < aLock) {
				written = append(written, t)
			}
		}
		for id, t := range l.relations(c) {
			if names[id] != t {
				written = append(written, t) // it is new, or is called so now
			}
		}
		l.exec(c, "ROLLBACK")
		did := r.Decide(written)
		switch {
		case d.Deny:
		case did.Deny:
			l.t.Errorf("%s: %s\n\tmay be sent with %v, and wrote %v: %s", one.at, one.sql, d.Elections, written, did.Why)
		case slices.ContainsFunc(did.Elections, func(e string) bool { return !slices.Contains(d.Elections, e) }):
			l.t.Errorf("%s: %s\n\tmay be sent with %v, and wrote %v", one.at, one.sql, d.Elections, written)
		case !one.less && needed(written, did) != one.want:
			l.t.Errorf("%s: %s\n\tneeds %s, and wrote %v only", one.at, one.sql, one.want, written)
		}
	}
	if compared < 90 {
		l.t.Errorf("only %d statements were compared", compared)
	}
}

func (l *lab) relations(c *pgx.Conn) map[uint32]policy.Target {
	l.t.Helper()
	names := make(map[uint32]policy.Target)
	rows, err := c.Query(l.t.Context(), relationsNow)
	if err != nil {
		l.t.Fatal(err)
	}
	var id uint32
	var schema, name string
	if _, err := pgx.ForEachRow(rows, []any{&id, &schema, &name}, func() error {
		names[id] = policy.Target{Kind: policy.Table, Schema: schema, Name: name}
		return nil
	}); err != nil {
		l.t.Fatal(err)
	}
	return names
}

func (l *lab) touched(c *pgx.Conn) map[uint32]int {
	l.t.Helper()
	all := make(map[uint32]int)
	rows, err := c.Query(l.t.Context(), touched)
	if err != nil {
		l.t.Fatal(err)
	}
	var id uint32
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error { all[id] = n; return nil }); err != nil {
		l.t.Fatal(err)
	}
	return all
}
