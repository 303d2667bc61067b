package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/policy"
)

const functionsFile = "testdata/sql/functions.txt"

// functionsSchema is what the calls of the functions' table need.
const functionsSchema = `
CREATE TABLE tb (a int);
CREATE INDEX ON tb USING brin (a);
INSERT INTO tb SELECT generate_series(1, 100000);
CREATE TABLE tg_t (a int[]);
CREATE INDEX tg ON tg_t USING gin (a);
INSERT INTO tg_t VALUES ('{1}');
CREATE INDEX th ON t USING hash (a);
CREATE TABLE tk (a int);
INSERT INTO tk VALUES (1);
VACUUM FREEZE;
CHECKPOINT`

// contrib are the modules that come with the server and hold functions. Those that
// hold a language of its own need libraries that a server may lack.
const contrib = `adminpack amcheck autoinc bloom btree_gin btree_gist citext cube dblink dict_int dict_xsyn earthdistance file_fdw fuzzystrmatch
	hstore insert_username intagg intarray isn lo ltree moddatetime old_snapshot pageinspect pg_buffercache pg_freespacemap pg_logicalinspect pg_prewarm
	pg_stat_statements pg_surgery pg_trgm pg_visibility pg_walinspect pgcrypto pgrowlocks pgstattuple pltcl pltclu postgres_fdw refint seg sslinfo tablefunc
	tcn tsm_system_rows tsm_system_time unaccent uuid-ossp xml2`

// extend installs every module that the server has.
func (l *lab) extend() {
	l.t.Helper()
	for name := range strings.FieldsSeq(contrib) {
		if l.scalar(l.admin, "SELECT count(*) FROM pg_available_extensions WHERE name='"+name+"'") == "1" {
			if code := sqlstate(l.admin, `CREATE EXTENSION IF NOT EXISTS "`+name+`"`); code != "ok" && !strings.HasPrefix(name, "pltcl") {
				l.t.Fatalf("CREATE EXTENSION %s: %s", name, code)
			}
		}
	}
}

// prepareFunctions readies the lab for the calls of the functions' table.
func (l *lab) prepareFunctions() {
	l.t.Helper()
	l.extend()
	for sql := range strings.SplitSeq(functionsSchema, ";\n") {
		l.exec(l.admin, sql)
	}
}

// The policy says to each function of the table what the table says, and to its calls.
func TestSQLFunctions(t *testing.T) {
	table := readTable(t, functionsFile)
	s := policy.NewSQL(0)
	named := make(map[string]bool)
	for _, p := range table.parts {
		for name := range strings.FieldsSeq(p.heading) {
			if named[name] {
				t.Errorf("%s: %s is there twice", functionsFile, name)
			}
			named[name] = true
			got, _, _ := strings.Cut(said(s.Inspect([]byte("SELECT "+name+"()"))), ":")
			if *updateSQL {
				p.policy = got
			}
			if got != p.policy {
				t.Errorf("%s: %s\n\tpolicy: %s, want %s", functionsFile, name, got, p.policy)
			}
		}
		if (p.none == "") == (len(p.cases) == 0) {
			t.Errorf("%s: %s has neither a case nor a reason for having none", functionsFile, p.heading)
		}
	}
	table.policy(t)
	if *updateSQL {
		table.write(t)
	}
}

// volatileFunctionsAreNamed: every volatile function that comes with a server or its
// modules was looked at.
func (l *lab) volatileFunctionsAreNamed(table *sqlTable) {
	named := make(map[string]bool)
	for _, p := range table.parts {
		for name := range strings.FieldsSeq(p.heading) {
			named[name] = true
		}
	}
	rows, err := l.admin.Query(l.t.Context(), `SELECT DISTINCT p.proname, coalesce(e.extname, 'the server') FROM pg_proc p
		LEFT JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' LEFT JOIN pg_extension e ON e.oid = d.refobjid
		WHERE provolatile = 'v' AND (p.oid < 16384 OR e.oid IS NOT NULL)`)
	if err != nil {
		l.t.Fatal(err)
	}
	type function struct{ Name, Of string }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[function])
	if err != nil {
		l.t.Fatal(err)
	}
	s := policy.NewSQL(0)
	for _, f := range all {
		if !named[f.Name] {
			l.t.Errorf("PostgreSQL %d has the volatile function %s (of %s), which %s says nothing of: look at what it does, then let it through in sql_system.go or refuse it. Now it is %s.",
				l.major, f.Name, f.Of, functionsFile, said(s.Inspect(fmt.Appendf(nil, "SELECT %s()", f.Name))))
		}
	}
}
