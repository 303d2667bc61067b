package policy

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

func lines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var l []string
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if text := s.Text(); text != "" && !strings.HasPrefix(text, "# ") {
			l = append(l, text)
		}
	}
	if len(l) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return l
}

func TestSQLReads(t *testing.T) {
	s := NewSQL(0)
	for _, text := range lines(t, "testdata/sql_reads.txt") {
		if v := s.Inspect([]byte(text)); v.Reason != SQLReads {
			t.Errorf("%s\n\trefused: reason %d, %s", text, v.Reason, v.What)
		}
	}
}

func TestSQLRefused(t *testing.T) {
	reasons := map[string]SQLReason{"write": SQLWrite, "function": SQLFunction, "locks": SQLLocks,
		"leaves": SQLLeavesReadOnly, "setting": SQLSetting, "unparsed": SQLUnparsed}
	s := NewSQL(0)
	for _, line := range lines(t, "testdata/sql_refused.txt") {
		f := strings.SplitN(line, "|", 3)
		reason, what, text := strings.TrimSpace(f[0]), strings.TrimSpace(f[1]), strings.TrimSpace(f[2])
		want, ok := reasons[reason]
		if !ok {
			t.Fatalf("no reason %q", reason)
		}
		for range 2 { // the second time from the cache
			if v := s.Inspect([]byte(text)); v.Reason != want || v.What != what {
				t.Errorf("%s\n\treason %d %q, want %d %q", text, v.Reason, v.What, want, what)
			}
		}
	}
}

// A call is found wherever the grammar takes an expression.
func TestSQLCallsAreFoundEverywhere(t *testing.T) {
	s := NewSQL(0)
	for _, place := range []string{
		"SELECT %s", "SELECT DISTINCT ON (%s) 1", "SELECT 1 FROM %s", "SELECT 1 FROM ROWS FROM (%s, now()) WITH ORDINALITY", "SELECT 1 FROM a, LATERAL %s x",
		"SELECT 1 FROM a JOIN b ON %s", "SELECT 1 FROM a TABLESAMPLE bernoulli (%s) REPEATABLE (1)", "SELECT 1 FROM a TABLESAMPLE bernoulli (1) REPEATABLE (%s)", "SELECT 1 WHERE %s IS NULL",
		"SELECT 1 GROUP BY ROLLUP (%s)", "SELECT 1 GROUP BY GROUPING SETS ((%s), ())", "SELECT 1 HAVING %s IS NULL", "SELECT 1 ORDER BY %s USING <", "SELECT 1 LIMIT %s", "SELECT 1 OFFSET %s",
		"SELECT 1 ORDER BY 1 FETCH FIRST (%s) ROWS WITH TIES", "SELECT f() OVER (PARTITION BY %s)", "SELECT f() OVER (ORDER BY a ROWS %s PRECEDING)", "SELECT f() OVER w FROM a WINDOW w AS (ORDER BY %s)",
		"SELECT f() FILTER (WHERE %s IS NULL)", "SELECT f() WITHIN GROUP (ORDER BY %s)", "SELECT f(VARIADIC %s)", "SELECT f(a => %s)", "SELECT f(a ORDER BY %s)", "SELECT (%s).a", "SELECT (%s)[1]", "SELECT a[%s]", "SELECT a[1:%s]",
		"SELECT ARRAY[%s]", "SELECT ARRAY(SELECT %s)", "SELECT ROW(1, %s)", "SELECT (1, %s) = (2, 3)", "SELECT CASE %s WHEN 1 THEN 2 END", "SELECT CASE WHEN true THEN 1 ELSE %s END", "SELECT COALESCE(NULL, %s)",
		"SELECT GREATEST(1, %s)", "SELECT NULLIF(1, %s)", "SELECT a IN (1, %s)", "SELECT a = ANY (%s)", "SELECT a BETWEEN 1 AND %s", "SELECT a LIKE 'b' ESCAPE %s", "SELECT a AT TIME ZONE %s", "SELECT CAST(%s AS int)",
		"SELECT %s::int", "SELECT %s COLLATE \"C\"", "SELECT - %s", "SELECT a OPERATOR(pg_catalog.+) %s", "SELECT a IS DISTINCT FROM %s", "SELECT (%s) IS TRUE", "SELECT (1, 2) OVERLAPS (3, %s)", "SELECT EXTRACT(year FROM %s)",
		"SELECT OVERLAY(a PLACING %s FROM 1)", "SELECT TRIM(%s FROM a)", "SELECT XMLELEMENT(NAME a, XMLATTRIBUTES(%s AS b))", "SELECT XMLFOREST(%s AS a)", "SELECT XMLPARSE(CONTENT %s)", "SELECT XMLSERIALIZE(CONTENT %s AS text)",
		"SELECT XMLROOT(%s, VERSION NO VALUE)", "SELECT XMLPI(NAME a, %s)", "SELECT XMLEXISTS('a' PASSING %s)", "SELECT 1 FROM XMLTABLE(%s PASSING a COLUMNS b int)",
		"SELECT 1 FROM XMLTABLE(XMLNAMESPACES(%s AS x), 'a' PASSING b COLUMNS c int)", "SELECT 1 FROM XMLTABLE('a' PASSING b COLUMNS c int PATH 'd' DEFAULT %s)",
		"SELECT JSON_OBJECT('a': %s)", "SELECT JSON_ARRAY(%s)", "SELECT JSON_ARRAY(SELECT %s)", "SELECT JSON_OBJECTAGG('a': %s)", "SELECT JSON_ARRAYAGG(%s ORDER BY 1)", "SELECT JSON(%s)", "SELECT JSON_SCALAR(%s)", "SELECT JSON_SERIALIZE(%s)",
		"SELECT JSON_VALUE(%s, '$')", "SELECT JSON_VALUE(a, '$' DEFAULT %s ON EMPTY)", "SELECT JSON_QUERY(a, '$' PASSING %s AS x)", "SELECT JSON_EXISTS(a, '$' DEFAULT %s ON ERROR)", "SELECT (%s) IS JSON",
		"SELECT 1 FROM JSON_TABLE(%s, '$' COLUMNS (a int PATH '$'))", "SELECT 1 FROM JSON_TABLE(a, '$' PASSING %s AS x COLUMNS (a int PATH '$'))", "SELECT 1 FROM JSON_TABLE(a, '$' COLUMNS (b int PATH '$' DEFAULT %s ON EMPTY))",
		"SELECT 1 FROM JSON_TABLE(a, '$' COLUMNS (NESTED PATH '$' COLUMNS (b int PATH '$' DEFAULT %s ON ERROR)))", "VALUES (1), (%s)", "SELECT 1 UNION SELECT %s", "(SELECT 1) ORDER BY %s",
		"WITH a AS (SELECT %s) SELECT 1", "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT %s FROM a) SEARCH DEPTH FIRST BY b SET c SELECT 1", "SELECT EXISTS (SELECT %s)", "SELECT 1 FROM (VALUES (%s)) x", "COPY (SELECT %s) TO STDOUT",
		"EXPLAIN SELECT %s", "EXPLAIN INSERT INTO t VALUES (%s)", "EXPLAIN INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = %s", "EXPLAIN UPDATE t SET a = %s", "EXPLAIN UPDATE t SET (a, b) = (SELECT 1, %s)",
		"EXPLAIN DELETE FROM t WHERE %s IS NULL RETURNING 1", "EXPLAIN DELETE FROM t RETURNING %s", "EXPLAIN MERGE INTO t USING s ON %s IS NULL WHEN MATCHED THEN DELETE", "EXPLAIN CREATE TABLE n AS SELECT %s", "EXPLAIN CREATE TABLE n AS EXECUTE q(%s)",
		"EXPLAIN DECLARE c CURSOR FOR SELECT %s", "EXPLAIN EXECUTE q(%s)", "PREPARE q AS SELECT %s", "EXECUTE q(1, %s)", "DECLARE c CURSOR FOR SELECT %s",
	} {
		read := strings.Replace(place, "%s", "f(1)", 1)
		if v := s.Inspect([]byte(read)); v.Reason != SQLReads {
			t.Errorf("%s: %+v", read, v)
		}
		for call, what := range map[string]string{"pg_notify('a', 'b')": "pg_notify", "f(a.nextval)": "nextval", "lo.lo_unlink(1)": "lo_unlink"} {
			if text := strings.Replace(place, "%s", call, 1); s.Inspect([]byte(text)).What != what {
				t.Errorf("%s: %+v", text, s.Inspect([]byte(text)))
			}
		}
	}
}

func TestSQLFence(t *testing.T) {
	s := NewSQL(0)
	for _, c := range []struct {
		text string
		use  FenceUse
		set  string
	}{
		{"SELECT 1", FenceUnused, "[]"},
		{"SHOW fence.status", FenceUnused, "[]"},
		{"SET fence.token = 'abc'", FenceSets, "[{true abc}]"},
		{"set session FENCE . Token to abc", FenceSets, "[{true abc}]"},
		{`SET "fence"."election" = 'a/B'; SET fence.token = 'x';`, FenceSets, "[{false a/B} {true x}]"},
		{`SET U&"\0066ence"."token" = 'x'`, FenceSets, "[{true x}]"},
		{"SET fence.election = 42", FenceSets, "[{false 42}]"},
		{"SET fence.token = 'x'; SELECT 1", FenceMixed, "[]"},
		{"BEGIN; SET fence.token = 'x'", FenceMixed, "[]"},
		{"SET LOCAL fence.token = 'x'", FenceMisused, "[]"},
		{"SET fence.token = 'x', 'y'", FenceMisused, "[]"},
		{"SET fence.tokn = 'x'", FenceMisused, "[]"},
		{"SET fence.token TO DEFAULT", FenceMisused, "[]"},
		{"RESET fence.token", FenceMisused, "[]"},
		{"SELECT set_config('fence.token', 'x', false)", FenceMisused, "[]"},
		{"INSERT INTO t SELECT set_config('Fence.Token', 'x', false)", FenceMisused, "[]"},
		{"ALTER ROLE app SET fence.token = 'x'", FenceMisused, "[]"},
		{"ALTER ROLE app IN DATABASE d RESET Fence.Token", FenceMisused, "[]"},
		{"ALTER DATABASE d SET fence.token = 'x'", FenceMisused, "[]"},
		{"ALTER SYSTEM SET fence.token = 'x'", FenceMisused, "[]"},
		{"ALTER FUNCTION f() SET fence.token = 'x'", FenceMisused, "[]"},
		{"CREATE FUNCTION f() RETURNS int LANGUAGE sql SET fence.token = 'x' AS 'SELECT 1'", FenceMisused, "[]"},
		{"DO $$ BEGIN SET Fence.Token = 'x'; END $$", FenceMisused, "[]"},
		{"DO $$ BEGIN PERFORM current_setting('fence.number'); END $$", FenceUnused, "[]"},
		{"SET fence.token = 'x'; ALTER ROLE app SET fence.token = 'x'", FenceMisused, "[]"},
	} {
		v := s.Inspect([]byte(c.text))
		if got := fmt.Sprint(v.Set); v.Fence != c.use || got != c.set {
			t.Errorf("%s\n\tuse %d %s, want %d %s", c.text, v.Fence, got, c.use, c.set)
		}
		if strings.Contains(strings.ToLower(c.text), "token") {
			if _, kept := s.cache.get([]byte(c.text)); kept {
				t.Errorf("%s\n\tkept in the cache", c.text)
			}
		}
	}
}

func TestSQLEffects(t *testing.T) {
	s := NewSQL(0)
	for text, want := range map[string]SQLVerdict{
		"DISCARD ALL":                                          {Resets: true},
		"RESET ALL":                                            {Resets: true},
		"RESET default_transaction_read_only":                  {Resets: true},
		"SET default_transaction_read_only = on":               {SetsReadOnly: true, AsksReadOnly: true},
		"SET LOCAL default_transaction_read_only = on":         {SetsReadOnly: true},
		"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY": {SetsReadOnly: true, AsksReadOnly: true},
		"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE": {SetsReadOnly: true},
		"SELECT set_config('default_transaction_read_only','on',true)":            {SetsReadOnly: true},
		"PREPARE TRANSACTION 'x'": {Prepares2PC: true, Reason: SQLWrite, What: "prepare_transaction"},
	} {
		if v := s.Inspect([]byte(text)); fmt.Sprint(v) != fmt.Sprint(want) {
			t.Errorf("%s\n\t%+v, want %+v", text, v, want)
		}
	}
}

// The parser recurses in C, where an overflow ends the process: every way to nest
// must be refused before it is tried. Taking the check out crashes this test.
func TestSQLNestingIsBounded(t *testing.T) {
	s := NewSQL(0)
	for name, c := range map[string]struct{ head, unit, tail string }{
		"operators":    {"SELECT 1", "+1", ""},
		"minus":        {"SELECT ", "- ", "1"},
		"not":          {"SELECT ", "NOT ", "true"},
		"casts":        {"SELECT 1", "::int", ""},
		"unions":       {"SELECT 1", " UNION SELECT 1", ""},
		"joins":        {"SELECT * FROM a", " CROSS JOIN b", ""},
		"natural":      {"SELECT * FROM a", " NATURAL JOIN b", ""},
		"is":           {"SELECT 1", " IS NULL", ""},
		"isnull":       {"SELECT 1", " ISNULL", ""},
		"collate":      {"SELECT 'a'", ` COLLATE "C"`, ""},
		"at time zone": {"SELECT a", " AT TIME ZONE b", ""},
		"at local":     {"SELECT a", " AT LOCAL", ""},
		"like":         {"SELECT a", " LIKE b", ""},
		"operator()":   {"SELECT a", " OPERATOR(+) b", ""},
		"parentheses":  {"SELECT ", "(", "1"},
		"subqueries":   {"", "SELECT (", "1"},
		"mixed":        {"SELECT ", "(1+", "1"},
		"subscripts":   {"SELECT a", "[1]", ""},
		"arrays":       {"SELECT ", "ARRAY[", "1"},
		"case":         {"SELECT ", "CASE WHEN ", "1"},
		"calls":        {"SELECT ", "f(", "1"},
		"in":           {"SELECT a", " IN (1)", ""},
		"dots":         {"SELECT a", ".b", ""},
		"except":       {"SELECT 1", " EXCEPT SELECT 1", ""},
		"quoted":       {"SELECT a", `||'`, "'"},
		"escape":       {`SELECT E'\''`, `||E'\''`, ""},
		"cast":         {"SELECT ", "CAST(", "1"},
		"with":         {"", "WITH a AS (", "SELECT 1"},
		"statements":   {"SELECT 1", ";SELECT 1", ""},
		"list":         {"SELECT 1", ",1", ""},
		"from":         {"SELECT 1 FROM ", "(SELECT * FROM ", "a"},
		"typed":        {"SELECT ", "date ", "'a'"},
		"json":         {"SELECT a", " IS JSON", ""},
		"between":      {"SELECT ", "a BETWEEN b AND ", "1"},
		"row":          {"SELECT ", "ROW(", "1"},
		"over":         {"SELECT f()", " OVER ()", ""},
		"wide unions":  {"SELECT 1,2", " UNION SELECT 1,2", ""},
		"wide joins":   {"SELECT 1 FROM a", " JOIN b ON f(1,2)", ""},
		"commas":       {"SELECT ", "f(1,1+", "1"},
	} {
		for _, n := range []int{1_000, 2_900, 6_000, 30_000} {
			text := c.head + strings.Repeat(c.unit, n) + c.tail
			if d := strings.Count(c.unit, "(") - strings.Count(c.unit, ")"); d > 0 {
				text += strings.Repeat(")", d*n)
			}
			if len(text) <= MaxSQLText {
				s.Inspect([]byte(text))
			}
		}
		_ = name
	}
}

func TestSQLLongLiteralsAreNotNesting(t *testing.T) {
	s := NewSQL(0)
	text := "SELECT * FROM t WHERE d IN ('2024-01-01'" + strings.Repeat(",'2024-01-01'", 20000) + ")"
	if v := s.Inspect([]byte(text)); v.Reason != SQLReads {
		t.Errorf("refused: %+v", v)
	}
	text = "SELECT * FROM t WHERE d IN ('a'::uuid" + strings.Repeat(",'a'::uuid", 20000) + ")"
	if v := s.Inspect([]byte(text)); v.Reason != SQLReads {
		t.Errorf("refused: %+v", v)
	}
	if v := s.Inspect([]byte("SELECT '" + strings.Repeat("x", MaxSQLText) + "'")); v.Reason != SQLTooComplex {
		t.Errorf("not refused: %+v", v)
	}
}

func TestSQLOtherEncodings(t *testing.T) {
	s := NewSQL(0)
	if v := s.Inspect([]byte("SELECT '\xe9t\xe9', \xe9t\xe9 FROM t")); v.Reason != SQLReads {
		t.Errorf("LATIN1: %+v", v)
	}
	if v := s.Inspect([]byte("DELETE FROM \xe9t\xe9")); v.Reason != SQLWrite {
		t.Errorf("LATIN1: %+v", v)
	}
	for _, e := range []string{"SJIS", "Shift_JIS_2004", "big5", "GB18030", "gbk", "UHC", "JOHAB", "win-949"} {
		if !UnsafeEncoding(e) {
			t.Errorf("%s is taken for safe", e)
		}
	}
	for _, e := range []string{"UTF8", "utf-8", "LATIN1", "EUC_JP", "WIN1252", "SQL_ASCII"} {
		if UnsafeEncoding(e) {
			t.Errorf("%s is taken for unsafe", e)
		}
	}
}

// Tags that differ here may be equal to the server, and the other way round.
func TestSQLForeignTags(t *testing.T) {
	s := NewSQL(0)
	for text, want := range map[string]SQLReason{
		"SELECT $\xe9$ x $\xe8$ , $\xe9$ ; NOTIFY a; -- $\xe9$":            SQLUnparsed,
		"SELECT $\xc4\xe3$ x $\x8e\xa1\xc4\xe3$ ; NOTIFY a; -- $\xc4\xe3$": SQLUnparsed,
		"SELECT $é$ x $é$": SQLUnparsed,
		"SELECT $a1é_$ x":  SQLUnparsed,
		"SELECT $$é$$, 'é$', $a$ é $b$ é $a$, é, $1": SQLReads,
	} {
		if v := s.Inspect([]byte(text)); v.Reason != want {
			t.Errorf("%q: %+v, want %d", text, v, want)
		}
	}
}

func FuzzSQL(f *testing.F) {
	for _, s := range []string{"SELECT 1", "SET fence.token='x'", "BEGIN READ WRITE", "SELECT U&'\\0041'", "\xff"} {
		f.Add([]byte(s))
	}
	s := NewSQL(0)
	f.Fuzz(func(t *testing.T, text []byte) {
		v := s.Inspect(text)
		if len(v.What) > 24 || v.Fence == FenceSets && len(v.Set) == 0 {
			t.Errorf("%+v", v)
		}
		s.Targets(text)
	})
}
