package policy_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/policy"
)

// samples are arguments by type. Of another type, an argument is NULL, and a strict
// function is not run.
var samples = map[string]string{
	"bool": "true", "int2": "1::int2", "int4": "1", "int8": "1::int8", "float4": "0.5::float4", "float8": "0.5::float8", "numeric": "1.5",
	"text": "'a'", "varchar": "'a'::varchar", "bpchar": "'a'::bpchar", "name": "'t'::name", "cstring": "'1'::cstring", "char": `'a'::"char"`,
	"bytea": `'\x6162'::bytea`, "oid": "'t'::regclass::oid", "regclass": "'t'::regclass", "regtype": "'int4'::regtype", "regproc": "'now'::regproc",
	"date": "'2020-01-01'::date", "time": "'12:00'::time", "timetz": "'12:00+01'::timetz", "timestamp": "'2020-01-01'::timestamp",
	"timestamptz": "'2020-01-01'::timestamptz", "interval": "'1 day'::interval", "json": `'{"a":[1]}'::json`, "jsonb": `'{"a":[1]}'::jsonb`,
	"jsonpath": "'$.a'::jsonpath", "xml": "'<a>b</a>'::xml", "uuid": "'00000000-0000-0000-0000-000000000001'::uuid", "inet": "'10.0.0.1'::inet",
	"cidr": "'10.0.0.0/8'::cidr", "macaddr": "'08:00:2b:01:02:03'::macaddr", "macaddr8": "'08:00:2b:01:02:03:04:05'::macaddr8", "bit": "B'1'", "varbit": "B'101'::varbit",
	"point": "'(1,2)'::point", "box": "'(1,2),(3,4)'::box", "circle": "'<(1,2),3>'::circle", "line": "'{1,2,3}'::line", "lseg": "'[(1,2),(3,4)]'::lseg",
	"path": "'((1,2),(3,4))'::path", "polygon": "'((1,2),(3,4),(5,6))'::polygon", "tsvector": "'a:1'::tsvector", "tsquery": "'a'::tsquery",
	"regconfig": "'simple'::regconfig", "regdictionary": "'simple'::regdictionary", "money": "'1'::money", "pg_lsn": "'0/1'::pg_lsn", "tid": "'(0,1)'::tid",
	"xid": "'3'::xid", "xid8": "'3'::xid8", "cid": "'1'::cid", "txid_snapshot": "'1:2:'::txid_snapshot", "pg_snapshot": "'1:2:'::pg_snapshot", "aclitem": "'postgres=r/postgres'::aclitem",
	"int4range": "'[1,3)'::int4range", "numrange": "'[1,3)'::numrange", "anyelement": "1", "anynonarray": "1", "anycompatible": "1", "anycompatiblenonarray": "1", "any": "1",
	"anyarray": "ARRAY[1,2]", "anycompatiblearray": "ARRAY[1,2]", "_int4": "ARRAY[1,2]", "_text": "ARRAY['a','b']", "_float8": "ARRAY[1.0,2.0]::float8[]",
	"_int8": "ARRAY[1,2]::int8[]", "_oid": "ARRAY[1,2]::oid[]", "_name": "ARRAY['a','b']::name[]", "anyrange": "'[1,3)'::int4range", "anyenum": "NULL", "refcursor": "'c'::refcursor",
	"int4multirange": "'{[1,3)}'::int4multirange", "anymultirange": "'{[1,3)}'::int4multirange", "hstore": "'a=>b'::hstore", "ltree": "'a.b'::ltree", "record": "ROW(1, 2)",
}

// builtinsLeaveNoTrace: what a reader may call by name, or reaches without a name, through
// an operator, a cast, a type or a view, leaves no trace. Every function that is not
// volatile is called, every view of the server read, and what has no name is not volatile.
func (l *lab) builtinsLeaveNoTrace(table *sqlTable) {
	var explained []string
	for _, p := range table.parts {
		for _, c := range p.cases {
			if c.has("why") {
				explained = append(explained, strings.Fields(p.heading)...)
			}
		}
	}
	s := policy.NewSQL(0)
	l.exec(l.admin, "VACUUM FREEZE")
	l.exec(l.admin, "CHECKPOINT")
	var calls []string
	for _, f := range l.functions() {
		if f.Volatile == "v" || slices.Contains(explained, f.Name) {
			continue
		}
		call := f.call()
		if s.Inspect([]byte(call)).Reason == policy.SQLReads {
			calls = append(calls, call)
		}
	}
	views := l.column(`SELECT format('SELECT * FROM %s LIMIT 3', c.oid::regclass) FROM pg_class c
		WHERE relkind = 'v' AND relnamespace IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
			AND relname <> 'pg_sequences' -- see pg_sequence_last_value in the table
		ORDER BY 1`)
	for _, view := range views {
		if got := said(s.Inspect([]byte(view))); got != "read" {
			l.t.Errorf("%s\n\t%s", view, got)
		}
	}
	if ran := l.quiet(calls, 200); ran < len(calls)/2 {
		l.t.Errorf("only %d of %d calls succeeded", ran, len(calls))
	}
	if ran := l.quiet(views, 20); ran < len(views)-10 {
		l.t.Errorf("only %d of %d views could be read", ran, len(views))
	}
	for _, f := range l.column(nameless) {
		if got := said(s.Inspect([]byte("SELECT " + f + "()"))); got != "read" {
			l.t.Errorf("%s is volatile, has another way than its name, and is said to be %s", f, got)
		}
	}
}

// nameless are the volatile functions that a statement runs without naming them.
const nameless = `SELECT DISTINCT proname FROM pg_proc p WHERE provolatile = 'v' AND oid IN (
	SELECT oprcode FROM pg_operator UNION SELECT oprrest FROM pg_operator UNION SELECT oprjoin FROM pg_operator
	UNION SELECT castfunc FROM pg_cast
	UNION SELECT unnest(ARRAY[typinput, typoutput, typreceive, typsend, typmodin, typmodout, typanalyze]) FROM pg_type
	UNION SELECT aggtransfn FROM pg_aggregate UNION SELECT aggfinalfn FROM pg_aggregate UNION SELECT aggcombinefn FROM pg_aggregate
	UNION SELECT amproc FROM pg_amproc UNION SELECT prosupport FROM pg_proc UNION SELECT conproc FROM pg_conversion
	UNION SELECT rngcanonical FROM pg_range UNION SELECT rngsubdiff FROM pg_range)`

// quiet runs reads, some of them at once in a transaction, looks whether they leave a
// trace, and says how many succeeded.
func (l *lab) quiet(reads []string, atOnce int) int {
	l.t.Helper()
	ran := 0
	for len(reads) > 0 {
		n := min(len(reads), atOnce)
		ok, seen := l.batch(reads[:n])
		// The server's own background work may be seen once, not every time.
		for try := 0; seen != "" && try < 3; try++ {
			ok, seen = l.batch(reads[:n])
		}
		if seen != "" && n == 1 {
			l.t.Errorf("%s\n\tis let through, and leaves a trace: %s", reads[0], seen)
		} else if seen != "" {
			ok = l.quiet(reads[:n], (n+1)/2)
		}
		ran += ok
		reads = reads[n:]
	}
	return ran
}

func (l *lab) batch(reads []string) (ran int, seen string) {
	l.t.Helper()
	r := l.reader("postgres")
	defer func() { _ = r.Close(l.t.Context()) }()
	before := l.look()
	l.exec(r, "SET statement_timeout = '5s'; BEGIN; SAVEPOINT a")
	for _, sql := range reads {
		switch code := sqlstate(r, sql); {
		case code == "ok":
			ran++
		case len(code) != 5:
			l.t.Fatalf("%s: %s", sql, code)
		case code == "25006":
			l.t.Errorf("%s\n\tis let through, and the server says that it writes", sql)
		}
		if r.PgConn().TxStatus() == 'E' {
			l.exec(r, "ROLLBACK TO a")
		} else {
			l.exec(r, "RELEASE a; SAVEPOINT a") // some effects come with the commit
		}
	}
	effects := changed(before, l.look())
	if l.scalar(r, "SELECT pg_current_xact_id_if_assigned()") != "" {
		effects["xid"] = true
	}
	l.exec(r, "COMMIT")
	for e := range changed(before, l.look()) {
		effects[e] = true
	}
	if len(effects) == 0 {
		return ran, ""
	}
	return ran, outcome{"", effects}.String()
}

type builtin struct {
	Name, Volatile string
	Args           []string
	Set            bool
}

// functions are those that a statement can call, of the server and its modules.
func (l *lab) functions() []builtin {
	l.t.Helper()
	rows, err := l.admin.Query(l.t.Context(), `SELECT proname, provolatile::text, ARRAY(SELECT typname::text FROM unnest(proargtypes) WITH ORDINALITY u(o, i)
			JOIN pg_type ty ON ty.oid = o ORDER BY i), proretset
		FROM pg_proc p WHERE prokind IN ('f', 'a') AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
			AND NOT 'internal'::regtype = ANY(proargtypes) AND proname NOT IN ('f', 'writes') ORDER BY oid`)
	if err != nil {
		l.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[builtin])
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

func (f builtin) call() string {
	args := make([]string, len(f.Args))
	for i, typ := range f.Args {
		args[i] = samples[typ]
		if args[i] == "" {
			args[i] = fmt.Sprintf("NULL::%q", typ)
		}
	}
	limit := ""
	if f.Set {
		limit = " LIMIT 3"
	}
	return fmt.Sprintf("SELECT %q(%s)%s", f.Name, strings.Join(args, ", "), limit)
}

// column is the first column of a query's rows.
func (l *lab) column(sql string) []string {
	l.t.Helper()
	r, err := l.admin.PgConn().Exec(l.t.Context(), sql).ReadAll()
	if err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	var all []string
	for _, row := range r[0].Rows {
		all = append(all, string(row[0]))
	}
	return all
}
