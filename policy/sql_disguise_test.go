package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	pg_query "github.com/pganalyze/pg_query_go/v6"
	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/policy"
)

// A disguise writes a text in another way that means the same to the server.
type disguise struct {
	t        *rapid.T
	encoding string // of comments
}

// pick draws one of several ways.
func (d *disguise) pick(ways ...string) string { return rapid.SampledFrom(ways).Draw(d.t, "way") }

func (d *disguise) number(most int) int { return rapid.IntRange(0, most).Draw(d.t, "n") }

// gap is what may stand between two tokens.
func (d *disguise) gap() string {
	var b strings.Builder
	b.WriteString(d.pick(" ", "\n", "\t", "\r", "\f", " \r\n "))
	foreign := map[string]string{"UTF8": "é\u2028İ", "LATIN1": "\xe9\xff\xa7", "EUC_JP": "\xa4\xa2\xb0\xa1", "WIN1251": "\xcf\xf0"}[d.encoding]
	for range d.number(2) {
		b.WriteString(d.pick("/* */", "/*/* nested ' */ $$ */", "--\n", "-- ' /* "+foreign+"\n", "/* "+foreign+"' \" \\ ; */", "/* -- */", "/***/", "--'\r"))
		b.WriteString(d.pick(" ", "\n"))
	}
	return b.String()
}

// mixed writes a word in any case.
func (d *disguise) mixed(w string) string {
	b := []byte(w)
	for i, c := range b {
		if 'a' <= c && c <= 'z' && d.number(1) == 1 {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// name writes a name: in any case, in quotes, with escapes.
func (d *disguise) name(w string) string {
	w = strings.ToLower(w)
	switch d.number(3) {
	case 0:
		return d.mixed(w)
	case 1:
		return `"` + w + `"`
	default:
		return d.escaped(w, `"`)
	}
}

// escaped writes U&"…" or U&'…'.
func (d *disguise) escaped(w, quote string) string {
	esc, clause := `\`, ""
	if d.number(1) == 1 {
		esc = d.pick("!", "^", "z", "|")
		if strings.Contains(w, esc) {
			esc = `\`
		} else {
			// A comment here makes the parser give up, see the table.
			clause = " " + d.mixed("uescape") + "\n'" + esc + "'"
		}
	}
	var b strings.Builder
	b.WriteString(d.pick("U&", "u&") + quote)
	for _, r := range w {
		switch {
		case d.number(2) == 0:
			fmt.Fprintf(&b, "%s%04x", esc, r)
		case d.number(2) == 0:
			fmt.Fprintf(&b, "%s+%06X", esc, r)
		case string(r) == esc || string(r) == quote:
			b.WriteString(string(r) + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + quote + clause
}

// literal writes a string's value in any of the ways that SQL has.
func (d *disguise) literal(v string) string {
	switch d.number(5) {
	case 0:
		if tag := d.pick("", "a", "_x1", "A_b"); !strings.Contains(v, "$") {
			return "$" + tag + "$" + v + "$" + tag + "$"
		}
	case 1, 2:
		var b strings.Builder
		b.WriteString(d.pick("E'", "e'"))
		for _, r := range v {
			switch d.number(5) {
			case 0:
				fmt.Fprintf(&b, `\x%02x`, r)
			case 1:
				fmt.Fprintf(&b, `\%03o`, r)
			case 2:
				fmt.Fprintf(&b, `\u%04X`, r)
			case 3:
				fmt.Fprintf(&b, `\U%08x`, r)
			default:
				b.WriteString(strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(string(r)))
			}
		}
		return b.String() + "'"
	case 3:
		return d.escaped(v, "'")
	case 4:
		if n := len(v) / 2; n > 0 { // with a comment between, the parser gives up
			return "'" + double(v[:n]) + "'" + d.pick("\n", " \t\n\n ", "\r\n") + "'" + double(v[n:]) + "'"
		}
	}
	return "'" + double(v) + "'"
}

func double(v string) string { return strings.ReplaceAll(v, "'", "''") }

// looksAhead are the words that mean one thing or another by the next word. A comment
// between the two makes the parser give up, see the table.
func looksAhead(t pg_query.Token) bool {
	switch t {
	case pg_query.Token_NOT, pg_query.Token_NULLS_P, pg_query.Token_WITH, pg_query.Token_WITHOUT, pg_query.Token_FORMAT:
		return true
	}
	return false
}

// text disguises a text token by token.
func (d *disguise) text(sql string) string {
	r, err := pg_query.Scan(sql)
	if err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	var b strings.Builder
	for i, t := range r.Tokens {
		w := sql[t.Start:t.End]
		switch spaced := i > 0 && t.Start > r.Tokens[i-1].End; {
		case i > 0 && looksAhead(r.Tokens[i-1].Token):
			b.WriteString(" ")
		case spaced || i > 0 && d.number(2) == 0:
			b.WriteString(d.gap())
		}
		switch {
		case t.Token == pg_query.Token_SQL_COMMENT || t.Token == pg_query.Token_C_COMMENT:
		case t.KeywordKind != pg_query.KeywordKind_NO_KEYWORD:
			b.WriteString(d.mixed(strings.ToLower(w)))
		case t.Token == pg_query.Token_IDENT && w[0] != '"':
			b.WriteString(d.name(w))
		case t.Token == pg_query.Token_SCONST && w[0] == '\'':
			b.WriteString(d.literal(strings.ReplaceAll(w[1:len(w)-1], "''", "'")))
		case t.Token == pg_query.Token_SCONST && strings.HasPrefix(w, "$$"):
			b.WriteString(d.literal(w[2 : len(w)-2]))
		default:
			b.WriteString(w)
		}
	}
	return b.String()
}

// encode writes a text, all but comments in ASCII, as a client of the encoding sends it.
func (d *disguise) wrap(sql string) string {
	if d.number(3) == 0 {
		sql = d.gap() + sql
	}
	return sql + d.pick("", "", ";", " ;; ", " -- end", "/**/")
}

var disguiseEncodings = []string{"UTF8", "LATIN1", "EUC_JP", "WIN1251"}

// refusedCases are the tables' cases that can be taken apart into tokens, and are refused.
func refusedCases(t *testing.T) []*sqlCase {
	t.Helper()
	var all []*sqlCase
	for _, file := range []string{statementsFile, functionsFile} {
		for _, p := range readTable(t, file).parts {
			for _, c := range p.cases {
				if v := policy.NewSQL(0).Inspect(fillAny(c.sql)); v.Reason != policy.SQLReads && v.Reason != policy.SQLUnparsed && !strings.Contains(c.sql, "İ") {
					all = append(all, c)
				}
			}
		}
	}
	if len(all) < 200 {
		t.Fatalf("only %d", len(all))
	}
	return all
}

// No disguise gets a refused statement past the policy, nor a token past it unseen.
func TestSQLDisguises(t *testing.T) {
	cases := refusedCases(t)
	s := policy.NewSQL(0)
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(cases).Draw(t, "case")
		sql := string(fillAny(c.sql))
		d := &disguise{t: t, encoding: rapid.SampledFrom(disguiseEncodings).Draw(t, "encoding")}
		plain := s.Inspect([]byte(sql))
		text := d.wrap(d.text(sql))
		if v := s.Inspect([]byte(text)); said(v) != said(plain) {
			t.Fatalf("%s\n\tis %s; %q is %s", sql, said(plain), text, said(v))
		}
		for _, around := range []string{"SELECT 1; %s", "%s; SELECT 1", "BEGIN;%s;COMMIT", "SELECT $$;$$;;%s"} {
			several := strings.Replace(around, "%s", d.text(sql)+d.gap(), 1)
			if v := s.Inspect([]byte(several)); v.Reason == policy.SQLReads {
				t.Fatalf("%s\n\tis %s; %q is a read", sql, said(plain), several)
			}
		}
		if body, ok := strings.CutPrefix(sql, "SELECT "); ok {
			for _, around := range []string{"EXPLAIN ANALYZE SELECT %s", "PREPARE q AS SELECT %s", "DECLARE c CURSOR FOR SELECT %s", "COPY (SELECT %s) TO STDOUT",
				"WITH x AS MATERIALIZED (SELECT %s) SELECT * FROM x", "SELECT * FROM (SELECT %s) x", "VALUES ((SELECT %s))", "SELECT 1 WHERE EXISTS (SELECT %s)",
				"SELECT CASE WHEN true THEN (SELECT %s) END", "SELECT 1 UNION ALL (SELECT %s)", "SELECT ARRAY(SELECT %s)"} {
				if v := s.Inspect([]byte(strings.Replace(around, "%s", body+d.gap(), 1))); v.Reason == policy.SQLReads {
					t.Fatalf("%s\n\tis %s; in %s it is a read", sql, said(plain), around)
				}
			}
			explain := "EXPLAIN UPDATE t SET a = (SELECT " + body + ")"
			if v := s.Inspect([]byte(explain)); v.Reason == policy.SQLReads && plain.Reason == policy.SQLFunction {
				t.Fatalf("%s is a read", explain)
			}
		}
		set := d.wrap(d.text("SET fence.token = 'secret'"))
		if v := s.Inspect([]byte(set)); v.Fence != policy.FenceSets || len(v.Set) != 1 || v.Set[0].Value != "secret" {
			t.Fatalf("%q: %+v", set, v)
		}
	})
}

// disguisesAreReal: to the server a statement in disguise is the same statement, leaves
// the same traces behind in a read-only session, and writes in another.
func (l *lab) disguisesAreReal(cases []*sqlCase) {
	writer := l.connect("postgres")
	wrote := 0
	for k, c := range cases {
		want, _, _ := strings.Cut(expected(c.attr["server"], l.major), " / ")
		encoding := disguiseEncodings[(k+l.major)%len(disguiseEncodings)]
		pre := fmt.Sprintf("SET client_encoding = '%s';%s", encoding, c.attr["pre"])
		disguised := func() string {
			return rapid.Custom(func(t *rapid.T) string {
				d := &disguise{t: t, encoding: encoding}
				return d.wrap(d.text(l.fill(c.sql)))
			}).Example(k*10 + l.major)
		}
		l.hears = strings.Contains(want, "notify")
		for try := 0; ; try++ {
			text := disguised()
			got := l.once(&sqlCase{sql: text, attr: c.attr}, pre, "postgres")
			if got == want {
				break
			}
			if try == 3 {
				l.t.Errorf("%s: %s\n\t%q\n\tserver: %s, want %s", c.at, c.sql, text, got, want)
				break
			}
		}
		if want != "25006" || c.has("bare") || strings.Contains(c.sql, "STDIN") || strings.Contains(c.sql, "nextval") {
			continue
		}
		plain := l.write(writer, c.attr["pre"], l.fill(c.sql))
		if text := disguised(); plain == "ok xid" {
			wrote++
			if got := l.write(writer, pre, text); got != plain {
				l.t.Errorf("%s: %s\n\t%q\n\twhere writing is allowed: %s, want %s", c.at, c.sql, text, got, plain)
			}
		}
	}
	l.hears = false
	if wrote < 50 {
		l.t.Errorf("only %d of the statements write", wrote)
	}
}

// write runs a statement read-write, says whether it took a transaction number, and
// rolls it back.
func (l *lab) write(c *pgx.Conn, pre, sql string) string {
	l.t.Helper()
	l.exec(c, "DISCARD ALL")
	if pre != "" {
		l.exec(c, pre)
	}
	l.exec(c, "BEGIN")
	got := sqlstate(c, sql)
	if c.PgConn().TxStatus() == 'T' && l.scalar(c, "SELECT pg_current_xact_id_if_assigned()") != "" {
		got += " xid"
	}
	l.exec(c, "ROLLBACK")
	l.last = nil
	return got
}
