package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
)

// Patterns mean to the server what they mean to the proxy's rules.
func TestProtectionsMatchAsRulesDo(t *testing.T) {
	d := newProtectedDB(t, shared(t))
	patterns := []string{
		"billing.*=b", "b?lling.x=b", "billing.invoice=i", "*.invoice=i", "tenant_{t}.*=tenant-{t}", "{a}_{b}.{c}=x:{b}/{a}.{c}", "*_{t}.*=t-{t}", "tenant_{t}.x{n}y=a{n}b{t}",
		`a\.b.*=dots`, `a\*.t=star`, `a\{x\}.*=braces`, "?.t=one", "a-b.c[d=odd", "s^.]x$=odd", "s.(a|b)+=odd", "é.*=accent", "{s}.{s2}=all-{s}-{s2}", "{s}.t_{d}_*=d{d}", "x.a*b*c=abc", "*.*=all",
	}
	names := [][2]string{
		{"billing", "invoice"}, {"billing", "x"}, {"bxlling", "x"}, {"Billing", "x"}, {"billing2", "invoice"}, {"tenant_7", "t"}, {"tenant_a_b", "x12y"}, {"tenant_", "t"},
		{"a.b", "t"}, {"a", "b.t"}, {"a*", "t"}, {"ab", "t"}, {"a{x}", "t"}, {"a", "t"}, {"a-b", "c[d"}, {"s^", "]x$"}, {"s", "(a|b)+"}, {"s", "aab"}, {"é", "accent"},
		{"x_y_z", "w"}, {"x", "abc"}, {"x", "a1b2c"}, {"x", "acb"}, {"s", "t_4_5"}, {"s", "t_4_5_6"}, {"s", "x.y"}, {"_", "t"}, {"a b", "t u"}, {`a"b`, `c'd`}, {`a\b`, "t"},
	}
	d.root("DROP SCHEMA billing CASCADE")
	made := map[string]bool{}
	for _, n := range names {
		if !made[n[0]] {
			d.root("CREATE SCHEMA " + pgx.Identifier{n[0]}.Sanitize())
		}
		made[n[0]] = true
		d.root("CREATE TABLE " + pgx.Identifier(n[:]).Sanitize() + " ()")
	}
	for _, s := range patterns {
		d.protect(s) // the first made the schema
		d.root("DELETE FROM fenceproxy.protection")
		p, err := pgfence.ParseProtection(s)
		must(t, err)
		rules, err := policy.NewRules([]policy.Rule{{Kind: policy.Table, Patterns: []string{p.Pattern}, Election: p.Election}}, "", func(string) error { return nil })
		must(t, err)
		match, becomes := p.Expression()
		for _, n := range names {
			var got string
			must(t, d.p.Tables.QueryRow(t.Context(), `SELECT CASE WHEN name ~ $2 THEN regexp_replace(name, $2, $3) ELSE '' END FROM (SELECT $1 || chr(1) || $4 AS name) x`,
				n[0], match, becomes, n[1]).Scan(&got))
			want := ""
			if ruled := rules.Decide([]policy.Target{{Kind: policy.Table, Schema: n[0], Name: n[1]}}); len(ruled.Elections) == 1 {
				want = ruled.Elections[0]
			}
			if got != want {
				t.Errorf("%s of %q: %q, the rules say %q", s, n, got, want)
			}
		}
	}
	for _, bad := range []string{"billing.*", "=x", "billing=x", ".t=x", "billing.*=", "billing.*=a b", "b{x.t=a", "a.{t}=x-{u}", "{t}.{t}=x", "a.b=x y", `a.b\=x`} {
		if _, err := pgfence.ParseProtection(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	if _, _, err := d.p.Protect(t.Context(), []pgfence.Protection{{Pattern: "x", Election: "y"}}); err == nil {
		t.Error("no error")
	}
}

// Rows reach a table also by way of the ones that it descends from.
func TestProtectPartitions(t *testing.T) { everyVersion(t, protectsPartitions) }

func protectsPartitions(t *testing.T, c *cluster) {
	d := newProtectedDB(t, c)
	a, b := testenv.Name(t, "a"), testenv.Name(t, "b")
	s := d.connect("app")
	d.do(s, `CREATE TABLE billing.event (id int, n int) PARTITION BY RANGE (id);
		CREATE TABLE public.event1 PARTITION OF billing.event FOR VALUES FROM (0) TO (10);
		CREATE TABLE billing.event2 PARTITION OF billing.event FOR VALUES FROM (10) TO (20) PARTITION BY LIST (n);
		CREATE TABLE public.event2a PARTITION OF billing.event2 FOR VALUES IN (1, 2);
		CREATE TABLE public.tenants (t int, n int) PARTITION BY LIST (t);
		CREATE TABLE public.tenant_1 PARTITION OF public.tenants FOR VALUES IN (1);
		CREATE TABLE public.tenant_2 PARTITION OF public.tenants FOR VALUES IN (2);
		CREATE TABLE public.tenant_3 PARTITION OF public.tenants FOR VALUES IN (3);
		CREATE TABLE public.old (n int); CREATE TABLE billing.heir () INHERITS (public.old); INSERT INTO billing.heir VALUES (1)`)
	d.protect("billing.*="+a, "public.tenant_1="+a, "public.tenant_2="+b)
	for _, sql := range []string{
		"INSERT INTO billing.event VALUES (1, 1)", "INSERT INTO public.event1 VALUES (1, 1)", "INSERT INTO billing.event2 VALUES (11, 1)", "INSERT INTO public.event2a VALUES (11, 1)",
		"INSERT INTO public.tenants VALUES (1, 1)", "INSERT INTO public.tenant_2 VALUES (2, 1)", "TRUNCATE public.tenants", "TRUNCATE billing.event",
		"INSERT INTO public.tenants VALUES (3, 1), (2, 1)", "UPDATE public.old SET n = 2", "DELETE FROM public.old", "TRUNCATE public.old",
	} {
		d.refused(s, sql)
	}
	d.do(s, "INSERT INTO public.tenants VALUES (3, 1); UPDATE public.tenants SET n = 2; UPDATE ONLY public.old SET n = 1")
	// Row triggers only where they are needed.
	var rows []string
	must(t, d.p.Tables.QueryRow(t.Context(), "SELECT array_agg(tgrelid::regclass::text ORDER BY 1) FROM pg_trigger WHERE tgname = 'fenceproxy_protect_row'").Scan(&rows))
	if got := fmt.Sprint(rows); !strings.Contains(got, "billing.heir") || !strings.Contains(got, "tenant_1") || !strings.Contains(got, "tenant_2") || len(rows) != 3 {
		t.Errorf("%v", rows)
	}
	leader := d.connect("app")
	d.do(leader, "SET fence.proof = '"+d.bind(leader, a)+"'")
	d.do(leader, `INSERT INTO billing.event VALUES (1, 1), (11, 2); UPDATE billing.event SET id = 12, n = 1; DELETE FROM public.event2a;
		INSERT INTO public.tenants VALUES (1, 1); UPDATE public.tenants SET n = 5 WHERE t = 1; DELETE FROM public.tenants WHERE t = 1; UPDATE public.old SET n = 7`)
	d.refused(leader, "INSERT INTO public.tenants VALUES (1, 1), (2, 1)", b)
	d.refused(leader, "UPDATE public.tenants SET t = 2 WHERE t = 3", b)
	// Both terms at once, as a session with rules may hold them.
	d.do(leader, "SET fence.proof = '"+d.bind(leader, a)+","+d.bind(leader, b)+"'")
	d.do(leader, "INSERT INTO public.tenants VALUES (1, 1), (2, 1)")
	if n := d.count("public.old WHERE n = 7"); n != 1 {
		t.Error(n)
	}
}

// What session_replication_role=replica lets through by default, and does not with Always.
func TestProtectAlways(t *testing.T) { oldestAndNewest(t, protectsAlways) }

func protectsAlways(t *testing.T, c *cluster) {
	d := newProtectedDB(t, c)
	e := testenv.Name(t, "billing")
	d.protect("billing.*=" + e)
	super := d.connect(servers.Superuser)
	d.do(super, "SET session_replication_role = replica")
	d.do(super, "INSERT INTO billing.invoice VALUES (1)")
	_, _, err := d.p.Protect(t.Context(), []pgfence.Protection{{Pattern: "billing.*", Election: e, Always: true}})
	must(t, err)
	d.refused(super, "INSERT INTO billing.invoice VALUES (2)")
	d.refused(super, "TRUNCATE billing.line")
	if n := c.count(t, "SELECT 1"); n != 1 || d.count("pg_trigger WHERE tgenabled = 'A' AND tgname LIKE 'fenceproxy%'") != 4 {
		t.Error("not always")
	}
	// And back.
	d.protect("billing.*=" + e)
	d.do(super, "INSERT INTO billing.invoice VALUES (3)")
}

func TestProtectNewTables(t *testing.T) { oldestAndNewest(t, protectsNewTables) }

func protectsNewTables(t *testing.T, c *cluster) {
	d := newProtectedDB(t, c)
	e := testenv.Name(t, "e")
	s := d.connect("app")
	d.do(s, "CREATE TABLE billing.hole (n int); CREATE SCHEMA shop; CREATE TABLE shop.event (n int) PARTITION BY LIST (n); CREATE TABLE part (n int)")
	d.p.NewTables = true
	d.protect("billing.*="+e, "shop.*="+e, "tenant_{t}.*="+e+"-{t}")
	d.do(s, "ALTER TABLE billing.hole DISABLE TRIGGER fenceproxy_protect")
	for _, sql := range []string{
		"CREATE TABLE billing.fresh (n int)", "CREATE TABLE billing.copied AS SELECT 1 AS n", "SELECT 1 AS n INTO billing.selected", "CREATE TABLE x (n int); ALTER TABLE x SET SCHEMA billing",
		"CREATE SCHEMA tenant_7 CREATE TABLE t (n int)", "CREATE SCHEMA y; CREATE TABLE y.z (n int); ALTER SCHEMA y RENAME TO tenant_8", "ALTER TABLE shop.event ATTACH PARTITION part FOR VALUES IN (1)",
		"CREATE TABLE w (n int); BEGIN; ALTER TABLE w RENAME TO w2; ALTER TABLE w2 SET SCHEMA shop; COMMIT", "CREATE TEMP TABLE fresh (n int); CREATE TABLE free (n int)",
	} {
		d.do(s, sql)
	}
	for _, table := range []string{"billing.fresh", "billing.copied", "billing.selected", "billing.x", "tenant_7.t", "tenant_8.z", "part", "shop.w2"} {
		d.refused(s, "INSERT INTO "+table+" VALUES (1)")
	}
	d.do(s, "INSERT INTO pg_temp.fresh VALUES (1); INSERT INTO free VALUES (1)")
	d.do(s, "INSERT INTO billing.hole VALUES (1)") // who owns a table may; check says so
	if ps := d.problems(); len(ps) != 1 || !strings.Contains(ps[0], "disabled") || !strings.Contains(ps[0], "billing.hole") {
		t.Errorf("%v", ps)
	}
}

// problems are what check says of the database.
func (d *protectedDB) problems() []string {
	d.t.Helper()
	var all []string
	for _, p := range d.f.Check(d.t.Context()) {
		if strings.Contains(p.What, d.name) {
			all = append(all, p.String())
		} else if strings.Contains(p.What, "protected") {
			d.t.Errorf("%v", p)
		}
	}
	return all
}

func TestCheckProtection(t *testing.T) {
	c := shared(t)
	d := newProtectedDB(t, c)
	e := testenv.Name(t, "e")
	s := d.connect("app")
	d.protect("billing.*="+e, "nothing.*="+e, "x{y}.t="+e+"-{y}")
	d.do(s, `CREATE SCHEMA "x "; CREATE TABLE "x ".t ()`)
	says := func(want ...string) {
		t.Helper()
		ps := d.problems()
		if len(ps) != len(want) {
			t.Fatalf("%q", ps)
		}
		for i, w := range want {
			if !strings.Contains(ps[i], w) {
				t.Errorf("%q is not in %q", w, ps[i])
			}
		}
	}
	says(`without the trigger, so that anybody with the right may write them: "x ".t`, "match no table: nothing.*", `that nobody can write`)
	for i := range 7 {
		d.do(s, fmt.Sprintf("CREATE TABLE billing.later%d ()", i))
	}
	d.do(s, `DROP SCHEMA "x " CASCADE; CREATE SCHEMA nothing; CREATE TABLE nothing.t ()`)
	fix := fmt.Sprintf(" --dsn 'postgres://postgres@%s/%s' --control-dsn 'postgres://postgres@%s/postgres')", c.p.Addr, d.name, c.p.Addr)
	says("billing.later4 and 3 more (run: fenceproxy install --protect 'billing.*="+e+"'"+fix, "match no table: x{y}.t")
	d.protect("billing.*=" + e)
	says("match no table: x{y}.t")
	_, err := d.p.Unprotect(t.Context(), []string{"x{y}.t"})
	must(t, err)
	says()
	// Somebody made holes.
	d.do(s, "DROP TRIGGER fenceproxy_protect ON billing.invoice; ALTER TABLE billing.line DISABLE TRIGGER USER")
	d.root("GRANT USAGE ON ALL SEQUENCES IN SCHEMA fenceproxy TO app; GRANT SELECT ON fenceproxy.proof_key TO PUBLIC; UPDATE fenceproxy.proof_key SET key = sha256('x')")
	says("key is not that of the control database", "without the trigger", "disabled", "may forge proofs")
	d.protect("billing.*=" + e)
	says()
	d.refused(s, "INSERT INTO billing.line VALUES (1)")
	d.root("DROP VIEW fenceproxy.protected_table")
	says("cannot be looked into")
	d.protect("billing.*=" + e)
	d.root("REVOKE CONNECT ON DATABASE " + d.name + " FROM PUBLIC, fenceproxy")
	says("cannot be looked into")
	for _, s := range []session{s, {d.p.Tables}} {
		must(t, s.Close(t.Context()))
	}
	c.exec(t, "DROP DATABASE "+d.name+" (FORCE)")
	says("is gone")
}

func TestUnprotect(t *testing.T) { oldestAndNewest(t, unprotects) }

func unprotects(t *testing.T, c *cluster) {
	d := newProtectedDB(t, c)
	e := testenv.Name(t, "e")
	s := d.connect("app")
	if left, err := d.p.Unprotect(t.Context(), nil); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
	if _, err := d.p.Unprotect(t.Context(), []string{"billing.*"}); !errors.Is(err, pgfence.ErrUnprotected) {
		t.Error(err)
	}
	d.p.NewTables = true
	d.protect("billing.line="+e, "billing.*="+e+"2")
	_, err := d.p.Unprotect(t.Context(), []string{"billing.line", "billing.x"})
	if !errors.Is(err, pgfence.ErrUnprotected) {
		t.Error(err)
	}
	d.refused(s, "INSERT INTO billing.line VALUES (NULL)", e+`"`)
	left, err := d.p.Unprotect(t.Context(), []string{"billing.line"})
	must(t, err)
	if len(left) != 2 {
		t.Errorf("%v", left)
	}
	d.refused(s, "INSERT INTO billing.line VALUES (NULL)", e+"2")
	d.protect("billing.line=" + e) // comes last now
	left, err = d.p.Unprotect(t.Context(), []string{"billing.*"})
	must(t, err)
	if fmt.Sprint(left) != fmt.Sprintf("[{billing.line %s}]", e) {
		t.Errorf("%v", left)
	}
	d.do(s, "INSERT INTO billing.invoice VALUES (1)")
	d.refused(s, "INSERT INTO billing.line VALUES (1)", e)
	left, err = d.p.Unprotect(t.Context(), nil)
	if err != nil || len(left) != 0 {
		t.Error(left, err)
	}
	d.do(s, "INSERT INTO billing.line VALUES (1); CREATE TABLE billing.more ()")
	if n := d.count("pg_namespace WHERE nspname = 'fenceproxy'") + d.count("pg_trigger WHERE tgname LIKE 'fenceproxy%'") + d.count("pg_event_trigger"); n != 0 {
		t.Errorf("%d things are left", n)
	}
	if n := c.count(t, "SELECT count(*) FROM fenceproxy.protected_database WHERE name = $1", d.name); n != 0 {
		t.Error("still noted down")
	}
	if left, err := d.p.Unprotect(t.Context(), nil); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
}

// Where the control database is the protected one, removing leaves the fence.
func TestProtectTheControlDatabase(t *testing.T) {
	c := install(t, testenv.Postgres(t, servers.PostgresOptions{Settings: []string{"log_statement=all", "log_min_duration_statement=0", "log_parameter_max_length=-1"}}))
	logged := func() {
		t.Helper()
		var key string
		must(t, c.admin.QueryRow(t.Context(), "SELECT encode(key, 'hex') FROM fenceproxy.proof_key").Scan(&key))
		if log := c.p.Log(); !strings.Contains(log, "proof_key") || strings.Contains(log, key) || strings.Contains(log, key[:32]) {
			t.Error("the key is in the server's log")
		}
	}
	d := &protectedDB{t: t, c: c, name: "postgres", f: c.fence(t, pgfence.DefaultRole)}
	d.p = pgfence.Protector{Control: c.admin, Tables: c.connect(t, servers.Superuser)}
	s := d.connect("app")
	for range 2 {
		add := []pgfence.Protection{{Pattern: "public.writes", Election: "w"}}
		for i := range 2 {
			if _, rebind, err := d.p.Protect(t.Context(), add); err != nil || rebind != (i == 0) {
				t.Fatal(rebind, err)
			}
		}
		logged()
		d.refused(s, "INSERT INTO writes VALUES (1)")
		leader := d.connect("app")
		d.do(leader, "SET fence.proof = '"+d.bind(leader, "w")+"'; INSERT INTO writes VALUES (1)")
		if ps := d.f.Check(t.Context()); len(ps) != 0 {
			t.Errorf("%v", ps)
		}
		if _, err := d.p.Unprotect(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		d.do(s, "INSERT INTO writes VALUES (1)")
		if ps := d.f.Check(t.Context()); len(ps) != 0 {
			t.Errorf("%v", ps)
		}
	}
	newProtectedDB(t, c).protect("billing.*=w") // where the key is copied to
	logged()
}

// A control database of another cluster, or without a fence, is refused, and nothing changes.
func TestProtectRefuses(t *testing.T) {
	c := shared(t)
	d := newProtectedDB(t, c)
	add := []pgfence.Protection{{Pattern: "billing.*", Election: "e"}}
	p := d.p
	p.Control = d.p.Tables
	if _, _, err := p.Protect(t.Context(), add); !errors.Is(err, pgfence.ErrSchema) {
		t.Error(err)
	}
	other := testenv.SharedPostgresVersion(t, 18)
	conn, err := pgx.Connect(t.Context(), other.DSN(servers.Superuser, "postgres"))
	must(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	p.Control = conn
	if _, _, err := p.Protect(t.Context(), add); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Error(err)
	}
	p = d.p
	p.Tables = d.connect("app").Conn // neither a superuser nor in pg_read_all_stats
	if _, _, err := p.Protect(t.Context(), add); err == nil || !strings.Contains(err.Error(), "pg_read_all_stats") {
		t.Error(err)
	}
	if n := d.count("pg_namespace WHERE nspname = 'fenceproxy'"); n != 0 {
		t.Error("half installed")
	}
	// What somebody left in the schema is not taken for ours.
	d.root("CREATE SCHEMA fenceproxy; GRANT ALL ON SCHEMA fenceproxy TO app; SET ROLE app; CREATE FUNCTION fenceproxy.prove(election text, memory text, relation oid) RETURNS void LANGUAGE sql AS ''; RESET ROLE")
	if _, _, err := d.p.Protect(t.Context(), add); err == nil || !strings.Contains(err.Error(), "prove() exists already and belongs to role app") {
		t.Error(err)
	}
	d.root("DROP SCHEMA fenceproxy CASCADE")
	if n := c.count(t, "SELECT count(*) FROM fenceproxy.protected_database WHERE name = $1", d.name); n != 0 {
		t.Error("noted down, though it failed")
	}
	// Who is no superuser can, if it may see the start of processes.
	c.exec(t, "DO $$ BEGIN IF to_regrole('dba') IS NULL THEN CREATE ROLE dba LOGIN; END IF; END $$; GRANT pg_read_all_stats, app TO dba; GRANT CREATE ON DATABASE "+d.name+" TO dba")
	p.Tables = d.connect("dba").Conn
	if _, _, err := p.Protect(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	s := d.connect("app")
	d.refused(s, "INSERT INTO billing.line VALUES (NULL)")
	d.do(s, "SET fence.proof = '"+d.bind(s, "e")+"'; INSERT INTO billing.line VALUES (NULL)")
}
