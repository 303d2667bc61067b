package policy_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	pg_query "github.com/pganalyze/pg_query_go/v6"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
)

const statementsFile = "testdata/sql/statements.txt"

var updateSQL = flag.Bool("update-sql", false, "rewrite what the policy and the servers say in testdata/sql")

// A table holds cases below headings. A heading's line begins with ==, a case's attributes
// follow it, one a line, indented by a tab:
//
//	policy  read, or the reason of the refusal and what it is about
//	server  what the server says in a read-only session: ok or the SQLSTATE, and what a
//	        statement left behind for others to see. Where an ordinary role (app) is told
//	        another thing than a superuser, both; where versions differ, all
//	why     why it is refused where the server allows it and nothing is seen, or let
//	        through where something is
//	setup   statements that an administrator runs before it
//	pre     statements that go before it in its session
//	bare    it runs outside a transaction block
//	none    below a heading: why there is no case
//	policy  below a heading that names functions: what is said to a call of each
type sqlTable struct {
	file  string
	parts []*tablePart
}

type tablePart struct {
	heading string
	policy  string // to what the heading names, where it names functions
	none    string
	cases   []*sqlCase
}

type sqlCase struct {
	sql  string
	attr map[string]string
	at   string   // file and line
	said []string // by each server
}

func (c *sqlCase) has(name string) bool { _, ok := c.attr[name]; return ok }

func readTable(t *testing.T, file string) *sqlTable {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	table := &sqlTable{file: file}
	var part *tablePart
	for i, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if heading, ok := strings.CutPrefix(line, "== "); ok {
			part = &tablePart{heading: heading}
			table.parts = append(table.parts, part)
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "\t"), ":")
		value = strings.TrimSpace(value)
		switch {
		case part == nil || line == "":
			t.Fatalf("%s:%d: before the first heading, or empty", file, i+1)
		case line[0] != '\t':
			part.cases = append(part.cases, &sqlCase{sql: line, attr: map[string]string{}, at: fmt.Sprintf("%s:%d", file, i+1)})
		case !ok:
			t.Fatalf("%s:%d: no attribute", file, i+1)
		case name == "none" && len(part.cases) == 0:
			part.none = value
		case name == "policy" && len(part.cases) == 0:
			part.policy = value
		case len(part.cases) > 0 && slices.Contains(attributes, name):
			part.cases[len(part.cases)-1].attr[name] = value
		default:
			t.Fatalf("%s:%d: no attribute %q here", file, i+1, name)
		}
	}
	return table
}

var attributes = []string{"setup", "pre", "bare", "policy", "server", "why"}

func (table *sqlTable) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for _, p := range table.parts {
		fmt.Fprintf(&b, "== %s\n", p.heading)
		if p.policy != "" {
			fmt.Fprintf(&b, "\tpolicy: %s\n", p.policy)
		}
		if p.none != "" {
			fmt.Fprintf(&b, "\tnone: %s\n", p.none)
		}
		for _, c := range p.cases {
			fmt.Fprintln(&b, c.sql)
			for _, name := range attributes {
				if v, ok := c.attr[name]; ok {
					fmt.Fprintln(&b, strings.TrimSpace("\t"+name+": "+v), "")
				}
			}
		}
	}
	text := strings.ReplaceAll(b.String(), " \n", "\n")
	for _, name := range attributes {
		text = strings.ReplaceAll(text, "\n"+name+":", "\n\t"+name+":")
	}
	if err := os.WriteFile(table.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

var reasonNames = map[policy.SQLReason]string{policy.SQLReads: "read", policy.SQLWrite: "write", policy.SQLFunction: "function",
	policy.SQLLocks: "locks", policy.SQLLeavesReadOnly: "leaves read-only", policy.SQLSetting: "setting",
	policy.SQLUnparsed: "unparsed", policy.SQLTooComplex: "too complex"}

// said is what the policy says to a text, in a table's words.
func said(v policy.SQLVerdict) string {
	return strings.TrimSuffix(reasonNames[v.Reason]+": "+v.What, ": ")
}

// policy compares what the policy says to a table's cases with what the table says.
func (table *sqlTable) policy(t *testing.T) {
	t.Helper()
	s := policy.NewSQL(0)
	for _, c := range table.cases() {
		got := said(s.Inspect(fillAny(c.sql)))
		if *updateSQL {
			c.attr["policy"] = got
		} else if got != c.attr["policy"] {
			t.Errorf("%s: %s\n\tpolicy: %s, want %s", c.at, c.sql, got, c.attr["policy"])
		}
	}
}

func (table *sqlTable) cases() []*sqlCase {
	var all []*sqlCase
	for _, p := range table.parts {
		all = append(all, p.cases...)
	}
	return all
}

// run has one server say its word to a table's cases.
func (table *sqlTable) run(l *lab) {
	for _, c := range table.cases() {
		c.said = append(c.said, l.both(c, expected(c.attr["server"], l.major)))
	}
}

// servers compares what all servers said with what the table says, and checks that the
// table explains what is not plain.
func (table *sqlTable) servers(t *testing.T, versions []testenv.Version) {
	t.Helper()
	for _, c := range table.cases() {
		if len(c.said) == len(versions) {
			got := join(versions, c.said)
			if *updateSQL {
				c.attr["server"] = got
			} else if got != c.attr["server"] {
				t.Errorf("%s: %s\n\tserver: %s, want %s", c.at, c.sql, got, c.attr["server"])
			}
		}
		c.plain(t, versions)
	}
	if *updateSQL {
		table.write(t)
	}
}

// plain reports what a case does not explain.
func (c *sqlCase) plain(t *testing.T, versions []testenv.Version) {
	t.Helper()
	allowed, seen := false, false
	for _, v := range versions {
		for one := range strings.SplitSeq(expected(c.attr["server"], v.Major), " / ") {
			code, effects, _ := strings.Cut(strings.TrimPrefix(one, "app: "), " ")
			allowed = allowed || code == "ok"
			seen = seen || effects != ""
		}
	}
	reads := c.attr["policy"] == "read"
	switch {
	case c.attr["why"] != "":
	case reads && seen:
		t.Errorf("%s: %s\n\tis a read, and leaves traces on the server: %s. Why?", c.at, c.sql, c.attr["server"])
	case !reads && allowed && !seen:
		t.Errorf("%s: %s\n\tis refused, though the server allows it and nothing is seen. Why?", c.at, c.sql)
	}
}

// both runs a case as a superuser and as an ordinary role. Background work of the server
// may be seen beside a statement's, so what is not expected is looked at again.
func (l *lab) both(c *sqlCase, want string) string {
	l.t.Helper()
	for try, last := 0, ""; ; try++ {
		super := l.once(c, c.attr["pre"], "postgres")
		got := super
		// Who may do everything was told that it is read-only: anybody is.
		if super != "25006" && super != "42601" {
			if app := l.once(c, c.attr["pre"], "app"); app != super {
				got += " / app: " + app
			}
		}
		if got == want || got == last && *updateSQL || try == 3 {
			return got
		}
		last = got
	}
}

func (l *lab) once(c *sqlCase, pre, user string) string {
	l.t.Helper()
	if setup := c.attr["setup"]; setup != "" {
		l.exec(l.admin, setup)
		l.last = nil
	}
	r := l.readers[user]
	if r == nil {
		r = l.reader(user)
		l.readers[user] = r
	}
	if pre != "" {
		l.exec(r, pre)
	}
	o := l.try(r, l.fill(c.sql), c.has("bare"))
	if r.IsClosed() || len(o.effects) > 0 || sqlstate(r, "DISCARD ALL") != "ok" {
		_ = r.Close(context.Background())
		delete(l.readers, user)
		for l.scalar(l.admin, fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE pid = %d", r.PgConn().PID())) != "0" {
			// Its locks go with it.
		}
		l.last = nil
	}
	if len(o.effects) > 0 || c.has("setup") {
		l.restore()
	}
	return o.String()
}

// join writes down what the versions said, those together that said the same.
func join(versions []testenv.Version, results []string) string {
	var groups []string
	for i := 0; i < len(results); {
		j := i
		for j < len(results) && results[j] == results[i] {
			j++
		}
		name := fmt.Sprint(versions[i].Major)
		if j-1 > i {
			name += fmt.Sprintf("-%d", versions[j-1].Major)
		}
		groups = append(groups, name+": "+results[i])
		i = j
	}
	if len(groups) == 1 {
		return results[0]
	}
	return strings.Join(groups, "; ")
}

// expected is what a version is expected to say.
func expected(server string, major int) string {
	for group := range strings.SplitSeq(server, "; ") {
		var from, to int
		name, result, ok := strings.Cut(group, ": ")
		if n, _ := fmt.Sscanf(name, "%d-%d", &from, &to); n == 1 {
			to = from
		} else if n == 0 {
			continue
		}
		if ok && from <= major && major <= to {
			return result
		}
	}
	return server
}

// Every statement of the grammar has its case, and the policy says to it what the table
// says.
func TestSQLStatements(t *testing.T) {
	table := readTable(t, statementsFile)
	has := make(map[string]bool)
	for _, p := range table.parts {
		has[p.heading] = true
		if (p.none == "") == (len(p.cases) == 0) {
			t.Errorf("%s has neither a case nor a reason for having none", p.heading)
		}
		for _, c := range p.cases {
			if kind := kindOf(c.sql); kind != p.heading {
				t.Errorf("%s: %s\n\tis %s, not %s", c.at, c.sql, kind, p.heading)
			}
		}
	}
	fields := (&pg_query.Node{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if m := fields.Get(i).Message(); m != nil && strings.HasSuffix(string(m.Name()), "Stmt") && !has[string(m.Name())] {
			t.Errorf("The grammar has %s, which %s says nothing of.", m.Name(), statementsFile)
		}
	}
	table.policy(t)
}

// kindOf is the parser's name of a statement.
func kindOf(sql string) string {
	tree, err := pg_query.Parse(sql)
	switch {
	case err != nil:
		return "not parsed"
	case len(tree.GetStmts()) != 1:
		return "several statements"
	}
	n := tree.GetStmts()[0].GetStmt().ProtoReflect()
	return string(n.WhichOneof(n.Descriptor().Oneofs().Get(0)).Message().Name())
}
