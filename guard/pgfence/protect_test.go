package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A protectedDB is a database of a cluster's whose tables can be protected.
type protectedDB struct {
	t    *testing.T
	c    *cluster
	name string
	p    pgfence.Protector
	f    *pgfence.Fence
}

func newProtectedDB(t *testing.T, c *cluster) *protectedDB {
	t.Helper()
	d := &protectedDB{t: t, c: c, name: testenv.Name(t, "db"), f: c.fence(t, pgfence.DefaultRole)}
	c.exec(t, "CREATE DATABASE "+d.name)
	t.Cleanup(func() { // so that its patterns trouble no other test's check
		_, _ = c.admin.Exec(context.Background(), "DELETE FROM fenceproxy.protected_database WHERE name = $1", d.name)
	})
	d.p = pgfence.Protector{Control: c.admin, Tables: d.connect(servers.Superuser).Conn}
	d.root(`GRANT CREATE ON DATABASE ` + d.name + ` TO app; CREATE SCHEMA billing AUTHORIZATION app; GRANT ALL ON SCHEMA public TO app;
		SET ROLE app; CREATE TABLE billing.invoice (id int PRIMARY KEY, note text);
		CREATE TABLE billing.line (id int REFERENCES billing.invoice ON DELETE CASCADE, n int); RESET ROLE`)
	return d
}

func (d *protectedDB) connect(user string) session {
	d.t.Helper()
	conn, err := pgx.Connect(d.t.Context(), d.c.p.DSN(user, d.name))
	must(d.t, err)
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return session{conn}
}

func (d *protectedDB) root(sql string) {
	d.t.Helper()
	_, err := d.p.Tables.PgConn().Exec(d.t.Context(), sql).ReadAll()
	must(d.t, err)
}

func (d *protectedDB) protect(all ...string) []pgfence.ProtectedTable {
	d.t.Helper()
	var add []pgfence.Protection
	for _, s := range all {
		a, err := pgfence.ParseProtection(s)
		must(d.t, err)
		add = append(add, a)
	}
	tables, _, err := d.p.Protect(d.t.Context(), add)
	must(d.t, err)
	return tables
}

// oldestAndNewest runs a test on two versions, where it is about catalogs more than about
// behaviour.
func oldestAndNewest(t *testing.T, test func(*testing.T, *cluster)) {
	for _, major := range []int{14, 18} {
		t.Run(testenv.PostgresVersion(t, major).String(), func(t *testing.T) { test(t, install(t, testenv.SharedPostgresVersion(t, major))) })
	}
}

// bind binds a session to a first term of an election and gives its proof, not set.
func (d *protectedDB) bind(s session, election string) string {
	d.t.Helper()
	x, _ := guardtest.Term(election, 7)
	r := guardtest.Record(x, guard.Severed, 1)
	_, err := d.c.admin.Exec(d.t.Context(), "DELETE FROM fenceproxy.fence WHERE election = $1", election)
	must(d.t, err)
	must(d.t, d.f.Swap(d.t.Context(), election, guard.Record{}, r))
	b, err := d.f.Bind(d.t.Context(), s.backend(), x, r)
	must(d.t, err)
	if b.Proof == "" {
		d.t.Fatal("no proof")
	}
	return b.Proof
}

// do runs statements of a session in one message.
func (d *protectedDB) do(s session, sql string) {
	d.t.Helper()
	if _, err := s.PgConn().Exec(d.t.Context(), sql).ReadAll(); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

// byTrigger is the trigger's refusal; nil for another error.
func byTrigger(err error) *pgconn.PgError {
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == "FP020" {
		return e
	}
	return nil
}

// refused says that the trigger refuses a statement.
func (d *protectedDB) refused(s session, sql string, words ...string) {
	d.t.Helper()
	_, err := s.PgConn().Exec(d.t.Context(), sql).ReadAll()
	e := byTrigger(err)
	if e == nil {
		d.t.Errorf("%s: %v, not refused by the trigger", sql, err)
		return
	}
	for _, w := range append(words, "not bound to election", "Connect through fenceproxy") {
		if all := e.Message + e.Detail + e.Hint; !strings.Contains(all, w) {
			d.t.Errorf("%s: no %q in %s", sql, w, all)
		}
	}
	if s.PgConn().TxStatus() != 'I' {
		d.do(s, "ROLLBACK")
	}
}

func (d *protectedDB) count(table string) int {
	d.t.Helper()
	var n int
	must(d.t, d.p.Tables.QueryRow(d.t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

// Every way to write a protected table is refused to who came without a proxy, also to a
// superuser, and open to the session that was bound.
func TestProtect(t *testing.T) { everyVersion(t, protects) }

func protects(t *testing.T, c *cluster) {
	d := newProtectedDB(t, c)
	e := testenv.Name(t, "billing")
	direct, super, leader := d.connect("app"), d.connect(servers.Superuser), d.connect("app")
	d.do(direct, `INSERT INTO billing.invoice VALUES (1), (2); INSERT INTO billing.line VALUES (1, 1);
		CREATE VIEW seen AS SELECT * FROM billing.invoice;
		CREATE TABLE public.parent (id int PRIMARY KEY); INSERT INTO public.parent VALUES (1);
		CREATE TABLE billing.child (id int REFERENCES public.parent ON DELETE CASCADE); INSERT INTO billing.child VALUES (1);
		CREATE FUNCTION pay() RETURNS void LANGUAGE sql AS 'INSERT INTO billing.invoice VALUES (9)';
		CREATE FUNCTION root() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN DELETE FROM billing.invoice; END'`)
	for range 2 { // again does no harm
		if got := d.protect("billing.*=" + e); len(got) != 3 || got[0] != (pgfence.ProtectedTable{Name: "billing.child", Election: e}) {
			t.Errorf("%v", got)
		}
	}
	writes := []string{
		"INSERT INTO billing.invoice VALUES (3)", "UPDATE billing.invoice SET note = 'x'", "DELETE FROM billing.invoice WHERE false",
		"TRUNCATE billing.line", "TRUNCATE billing.invoice CASCADE", "WITH x AS (DELETE FROM billing.line RETURNING 1) SELECT * FROM x",
		"INSERT INTO billing.invoice VALUES (1) ON CONFLICT DO NOTHING", "UPDATE seen SET note = 'x'", "DELETE FROM public.parent",
		"SELECT pay()", "SELECT root()", "DO 'BEGIN UPDATE billing.line SET n = 2; END'",
		"PREPARE w AS INSERT INTO billing.invoice VALUES (4); EXECUTE w", "BEGIN; SAVEPOINT s; INSERT INTO billing.line VALUES (2)",
		"COPY (SELECT 1) TO STDOUT; EXPLAIN ANALYZE DELETE FROM billing.line",
		"SET session_replication_role = origin; INSERT INTO billing.invoice VALUES (5)",
	}
	if c.count(t, "SELECT current_setting('server_version_num')::int") >= 150000 {
		writes = append(writes, "MERGE INTO billing.invoice i USING (VALUES (1)) v (id) ON i.id = v.id WHEN MATCHED THEN DELETE")
	}
	before := d.count("billing.invoice")
	for _, sql := range writes {
		if strings.Contains(sql, "session_replication_role") {
			d.refused(super, sql)
			continue
		}
		d.refused(direct, sql, e)
		d.refused(super, sql, e)
	}
	if _, err := direct.PgConn().CopyFrom(t.Context(), strings.NewReader("8\tx\n"), "COPY billing.invoice FROM STDIN"); byTrigger(err) == nil {
		t.Errorf("COPY: %v", err)
	}
	if after := d.count("billing.invoice"); after != before {
		t.Errorf("%d rows, were %d", after, before)
	}
	d.do(direct, "SELECT * FROM billing.invoice; INSERT INTO public.parent VALUES (2)")

	d.do(leader, "SET fence.proof = '"+d.bind(leader, e)+"'")
	d.do(leader, "INSERT INTO billing.invoice VALUES (3)")
	for _, sql := range []string{writes[0], "DELETE FROM billing.invoice WHERE id = 3", "SELECT pay()", "UPDATE seen SET note = 'y'", "TRUNCATE billing.line", "DELETE FROM public.parent WHERE id = 1"} {
		if sql == writes[0] {
			continue
		}
		d.do(leader, sql)
	}
	if _, err := leader.PgConn().CopyFrom(t.Context(), strings.NewReader("8\tx\n"), "COPY billing.invoice FROM STDIN"); err != nil {
		t.Error(err)
	}
}

// SAFETY: a proof is of one process and one election, and nobody makes one without the key.
func TestProofServesNobodyElse(t *testing.T) { everyVersion(t, proofServesNobodyElse) }

func proofServesNobodyElse(t *testing.T, c *cluster) {
	d := newProtectedDB(t, c)
	e, other := testenv.Name(t, "billing"), testenv.Name(t, "other")
	d.protect("billing.*="+e, "public.*="+other)
	leader, thief := d.connect("app"), d.connect("app")
	const write = "INSERT INTO billing.line VALUES (NULL)"
	proof := d.bind(leader, e)
	set := func(s session, p string) { t.Helper(); d.do(s, "SET fence.proof = '"+p+"'") }
	flip := func(s string) string { return s[:len(s)-1] + string("01"[strings.Count(s[len(s)-1:], "0")]) }

	set(thief, proof)
	d.refused(thief, write, "of another process")
	set(thief, d.bind(thief, other))
	d.refused(thief, write, "of another election")
	number, mac, _ := strings.Cut(proof, ":")
	for _, forged := range []string{"", ",", ":", "7", number + ":", ":" + mac, number + ":" + flip(mac), "8:" + mac, "0" + proof, proof + "0", mac,
		"7/x:" + mac, number + ":" + strings.ToUpper(mac) + "g", strings.Repeat("1:2,", 100), "99999999999999999999999:" + mac} {
		set(leader, forged)
		d.refused(leader, write)
	}
	d.refused(leader, "RESET fence.proof; "+write, "did not come through")
	// Nor one of the same pid, of a process that started at another time, or with another key.
	for _, as := range []string{"backend_start - interval '1 microsecond'|key", "backend_start|sha256(key)"} {
		start, key, _ := strings.Cut(as, "|")
		var past string
		must(t, d.p.Tables.QueryRow(t.Context(), "SELECT "+pgfence.MacSQL("a.pid", start, "'7'", "$1::text")+` FROM pg_stat_activity a,
			(SELECT `+key+` AS key FROM fenceproxy.proof_key) k WHERE pid = $2`, e, leader.PgConn().PID()).Scan(&past))
		set(leader, "7:"+past)
		d.refused(leader, write)
	}
	// Of several, one does.
	set(leader, "7:00,"+proof+",x")
	d.do(leader, write)

	// What a process has proven it need not prove again, also when its settings are gone.
	d.do(leader, "RESET fence.proof; RESET ALL")
	d.do(leader, write)
	d.do(leader, "BEGIN; SET LOCAL fence.proof = ''; "+write+"; ROLLBACK")
	// DISCARD takes both, and the proxy sets the proof again.
	d.do(leader, "DISCARD ALL")
	d.refused(leader, write)
	set(leader, proof)
	d.do(leader, write)
	d.do(leader, "DISCARD SEQUENCES")
	d.do(leader, write)
	// A transaction that is rolled back takes nothing with it.
	d.do(leader, "DISCARD SEQUENCES")
	d.do(leader, "BEGIN; "+write+"; ROLLBACK")
	d.do(leader, write)
}

// SAFETY: nobody but the owner reads the key, or makes a process remember what it has not
// proven, whatever the default privileges are.
func TestNobodyReadsTheKey(t *testing.T) {
	c := shared(t)
	d := newProtectedDB(t, c)
	e := testenv.Name(t, "billing")
	d.root(`ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app; ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO app;
		ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC; ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO app;
		ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO app`)
	d.protect("billing.*=" + e)
	s := d.connect("app")
	var seq, key uint32
	must(t, d.p.Tables.QueryRow(t.Context(), "SELECT substring(memory FROM 12)::text::regclass::oid, 'fenceproxy.proof_key'::regclass::oid FROM (SELECT 'fenceproxy.'||memory AS memory FROM fenceproxy.protected_table LIMIT 1) x").Scan(&seq, &key))
	for _, sql := range []string{
		"SELECT * FROM fenceproxy.proof_key", "TABLE fenceproxy.protection",
		fmt.Sprintf("SELECT nextval(%d::oid::regclass)", seq), fmt.Sprintf("SELECT setval(%d::oid::regclass, 1)", seq), fmt.Sprintf("SELECT currval(%d::oid::regclass)", seq),
		"SELECT fenceproxy.apply_protection(NULL)", "SELECT fenceproxy.prove('x', 'y', 1)",
		"CREATE TABLE public.mine (); CREATE TRIGGER t BEFORE INSERT ON public.mine EXECUTE FUNCTION fenceproxy.protect('" + e + "', 'x')",
		"CREATE TABLE fenceproxy.x ()", "UPDATE fenceproxy.protection SET election = 'x'",
	} {
		_, err := s.PgConn().Exec(t.Context(), sql).ReadAll()
		var pe *pgconn.PgError
		if !errors.As(err, &pe) || pe.Code != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// What the session looks like changes nothing.
	d.do(s, `CREATE SCHEMA trick; CREATE FUNCTION trick.currval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
		CREATE FUNCTION trick.eq(text, text) RETURNS bool LANGUAGE sql AS 'SELECT true'; CREATE OPERATOR trick.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trick.eq);
		CREATE FUNCTION trick.eq(bytea, bytea) RETURNS bool LANGUAGE sql AS 'SELECT true'; CREATE OPERATOR trick.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = trick.eq);
		CREATE FUNCTION trick.coalesce(text, text) RETURNS text LANGUAGE sql AS 'SELECT 1';
		CREATE DOMAIN trick.regclass AS text; CREATE TEMP TABLE proof_key (one bool, key bytea);
		SET search_path = trick, pg_temp, pg_catalog; SET standard_conforming_strings = off; SET bytea_output = escape; SET fence.proof = '1:x'`)
	d.refused(s, "INSERT INTO billing.line VALUES (1)")
}

// The same of the control database, whose fence would else be anybody's to change.
func TestInstallKeepsItsTablesPrivate(t *testing.T) {
	c := &cluster{p: testenv.Postgres(t, servers.PostgresOptions{})}
	c.admin = c.connect(t, servers.Superuser)
	c.exec(t, `CREATE ROLE app LOGIN; CREATE ROLE candidate LOGIN; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO app, PUBLIC; ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO app`)
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Login: true})
	must(t, err)
	c.exec(t, sql)
	c.exec(t, "CREATE TABLE fenceproxy.election (); GRANT USAGE ON SCHEMA fenceproxy TO candidate; GRANT ALL ON fenceproxy.election TO candidate")
	c.exec(t, sql)
	s := c.session(t, "app")
	for _, sql := range []string{"CREATE TABLE fenceproxy.x ()", "SELECT * FROM fenceproxy.fence", "DELETE FROM fenceproxy.session", "LOCK fenceproxy.gate IN ROW SHARE MODE", "TABLE fenceproxy.proof_key"} {
		if _, err := s.Exec(t.Context(), sql); err == nil {
			t.Errorf("anybody may %s", sql)
		}
	}
	if _, err := c.session(t, "candidate").Exec(t.Context(), "TABLE fenceproxy.election"); err != nil {
		t.Error(err)
	}
	if ps := c.fence(t, pgfence.DefaultRole).Check(t.Context()); len(ps) != 0 {
		t.Errorf("%v", ps)
	}
	// What somebody left there who could once create in it is not taken for ours.
	for _, of := range []string{"TABLE fenceproxy.fence", "TABLE fenceproxy.proof_key"} {
		c.exec(t, "ALTER "+of+" OWNER TO app")
		if _, err := c.admin.PgConn().Exec(t.Context(), sql).ReadAll(); err == nil || !strings.Contains(err.Error(), "belongs to role app") {
			t.Error(err)
		}
		if c.admin.PgConn().TxStatus() != 'I' {
			c.exec(t, "ROLLBACK")
		}
		c.exec(t, "ALTER "+of+" OWNER TO postgres")
	}
}
