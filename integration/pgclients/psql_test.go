package pgclients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// psqlVaries is what psql prints of ports, process numbers, ciphers and the time.
var psqlVaries = regexp.MustCompile(`at port "\d+"|with PID \d+|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}|lo_(un)?(import|link) \d+|cipher: \w+`)

func psql(t *testing.T, ctx context.Context, p place, script string) string {
	t.Helper()
	file := testenv.Testdata(t, "psql/"+script)
	cmd := p.command(ctx, testenv.Tool(t, "psql"), "-X", "-f", file)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	lines := strings.ReplaceAll(string(out), "psql:"+file+":", "line ")
	return psqlVaries.ReplaceAllString(lines, "…")
}

// psql prints to the letter what it prints beside the proxy: as leader all, as reader what
// only reads.
func TestPsql(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "psql")
	leader := s.leader(s.lead(t, ctx, "psql"))
	want := psql(t, ctx, s.direct(), "session.sql")
	testenv.Holds(t, "session", want, "\ndone\n", "COPY 22", "after discard all", "cannot execute UPDATE in a read-only transaction",
		"Asynchronous notification", "ERROR:  22012: division by zero", "ERROR:  22P02: invalid input syntax for type integer",
		"\n a file\n", "NOTICE:  00000: a notice", "reconnected", "every 0.05s")
	s.fresh(t, ctx)
	testenv.Same(t, "session", psql(t, ctx, leader, "session.sql"), want)
	want = psql(t, ctx, s.direct(), "read.sql")
	testenv.Holds(t, "read", want, "\ndone\n")
	testenv.Same(t, "read, as reader", psql(t, ctx, s.reader(), "read.sql"), want)
	testenv.Same(t, "read, as leader", psql(t, ctx, leader, "read.sql"), want)
}

// Each write of a reader's psql is refused in the same words, also those that psql itself makes.
func TestPsqlRefused(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "psqlrefused")
	const writes = `insert into written values ('stale')
create table x (i int)
begin \; insert into written values ('stale') \; commit
copy written from stdin
select 1 \; delete from written
\copy written from '/dev/null'
select pg_notify('l', 'x')
set transaction_read_only = off
\lo_import /dev/null
vacuum
do $$ begin end $$`
	for _, w := range strings.Split(writes, "\n") {
		script := "\\set VERBOSITY verbose\nselect 'before' as psql;\n" + w
		if !strings.HasPrefix(w, `\`) {
			script += ";"
		}
		script += "\nrollback;\nselect 'after' as psql;\nshow transaction_read_only;\n"
		out := s.reader().run(t, ctx, script, testenv.Tool(t, "psql"), "-XAt")
		errors := 0
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "ERROR:  25006: write refused: this session has no live token of election \"psqlrefused\"") {
				errors++
			} else if strings.HasPrefix(line, "ERROR") {
				t.Errorf("%s: %s", w, line)
			}
		}
		if errors != 1 || !strings.Contains(out, "\nafter\non\n") {
			t.Errorf("%s:\n%s", w, out)
		}
	}
}

// Tokens may stand in PGOPTIONS, in the connection string, in a service file, and in SET.
func TestPsqlPresentsToken(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "psqltoken")
	leader := s.leader(s.lead(t, ctx, "psql"))
	service := filepath.Join(t.TempDir(), "service.conf")
	if err := os.WriteFile(service, []byte("[shop]\noptions="+leader.options()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := "SET fence.token = '" + leader.token + "'"
	for _, c := range []struct {
		args []string
		p    place
		want string
	}{
		{nil, leader, "bound\n"},
		{nil, s.reader(), "reader\n"},
		{[]string{"options='" + leader.options() + "'"}, s.reader(), "bound\n"},
		{[]string{"options='-c fence.election=psqltoken " + leader.options() + "' target_session_attrs=read-write"}, s.reader(), "bound\n"},
		{[]string{"target_session_attrs=read-only"}, s.reader(), "reader\n"},
		{[]string{"postgresql:///?options=-c%20fence.token%3D" + leader.token}, s.reader(), "bound\n"},
		{[]string{"service=shop"}, s.reader(), "bound\n"},
		{[]string{"-c", set}, s.reader(), "SET\nbound\n"},
		{[]string{"-c", "SET fence.election = 'psqltoken'; " + set}, s.reader(), "SET\nSET\nbound\n"},
	} {
		cmd := c.p.command(ctx, testenv.Tool(t, "psql"), append([]string{"-XAt"}, append(c.args, "-c", "show fence.status")...)...)
		cmd.Env = append(cmd.Env, "PGSERVICEFILE="+service)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%v: %v %s", c.args, err, out)
		}
	}
}

func openPsql(t *testing.T, ctx context.Context, p place) *testenv.Terminal {
	t.Helper()
	cmd := p.command(ctx, testenv.Tool(t, "psql"), "-X", "-n", "-P", "pager=off", "--set=PROMPT1=ready> ", "--set=PROMPT2=more> ")
	cmd.Env = append(cmd.Env, "TERM=dumb")
	x := testenv.OpenTerminal(t, cmd)
	x.Await("ready> ")
	return x
}

// watched is a \watch that Ctrl-C ended, during its query or between two.
var watched = regexp.MustCompile(`(?s)select 'watched'.*?ready> `)

// Ctrl-C cancels what runs, and only that: as leader, as reader, in \watch, in \copy, in
// a transaction and twice in a row.
func TestPsqlCtrlC(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "psqlcancel")
	leader := s.leader(s.lead(t, ctx, "psql"))
	session := func(p place, write string) string {
		x := openPsql(t, ctx, p)
		for range 2 {
			x.Type("select pg_sleep(600);\n")
			s.waitForSleep(t, ctx)
			x.Type(testenv.CtrlC)
			x.Await("canceling statement due to user request")
			x.Await("ready> ")
			x.Type("select 'next', 1 + 1;\n")
			x.Await("next     |        2")
			x.Await("ready> ")
		}
		x.Type("begin;\n")
		x.Await("ready> ")
		x.Type(write + "\n")
		x.Await("ready> ")
		x.Type("select pg_sleep(600);\n")
		s.waitForSleep(t, ctx)
		x.Type(testenv.CtrlC)
		x.Await("canceling statement due to user request")
		x.Await("ready> ")
		x.Type("select 1;\n")
		x.Await("current transaction is aborted")
		x.Await("ready> ")
		x.Type("rollback;\n")
		x.Await("ready> ")
		x.Type("select 'watched' as w \\watch 0.01\n")
		x.Await("watched")
		x.Await("watched")
		x.Type(testenv.CtrlC)
		x.Await("ready> ")
		x.Type("\\copy (select repeat('x', 100) from generate_series(1, 1000000000)) to '/dev/null'\n")
		s.waitForActive(t, ctx, "COPY")
		x.Type(testenv.CtrlC)
		x.Await("canceling statement due to user request")
		x.Await("ready> ")
		x.Type("unfinished\n")
		x.Await("more> ")
		x.Type(testenv.CtrlC)
		x.Await("ready> ")
		return watched.ReplaceAllString(psqlVaries.ReplaceAllString(x.Leave("\\q\n"), "…"), "watched")
	}
	want := session(s.direct(), "insert into written values ('canceled');")
	testenv.Same(t, "as leader", session(leader, "insert into written values ('canceled');"), want)
	want = session(s.direct(), "select count(*) from written;")
	testenv.Same(t, "as reader", session(s.reader(), "select count(*) from written;"), want)
}

// waitForActive waits until a query of the database that begins so is busy.
func (s *stage) waitForActive(t *testing.T, ctx context.Context, begins string) {
	t.Helper()
	testenv.Eventually(t, begins+" runs", func() bool {
		var n int
		err := s.admin.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = $1 and state = 'active' and query like $2 || '%'", s.name, begins).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
}

// psql loses leadership in mid-transaction, at its prompt and while a query runs: one FATAL,
// then it connects again by itself, as a reader.
func TestPsqlLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "psqlloss")
	for _, sleeping := range []bool{false, true} {
		c := s.lead(t, ctx, "psql")
		x := openPsql(t, ctx, s.leader(c))
		x.Type("\\set VERBOSITY verbose\nbegin;\n")
		x.Await("BEGIN")
		x.Type("insert into written values ('lost');\n")
		x.Await("INSERT 0 1")
		x.Await("ready> ")
		if sleeping {
			x.Type("select pg_sleep(600);\n")
			s.waitForSleep(t, ctx)
		}
		s.resign(t, ctx, c)
		other := s.lead(t, ctx, "other")
		s.write(t, ctx, other, "other")
		if !sleeping {
			x.Type("commit;\n")
		}
		x.Await("FATAL:  FP001: stale leader refused: election \"psqlloss\" is ruled by number")
		x.Await("The connection to the server was lost. Attempting reset: ")
		x.Await("WARNING:  FP001: stale leader refused")
		x.Await("Succeeded.")
		x.Await("ready> ")
		x.Type("select what from written;\n")
		x.Await("other")
		x.Await("ready> ")
		x.Type("insert into written values ('stale');\n")
		x.Await("ERROR:  FP001: stale leader refused")
		x.Await("ready> ")
		s.resign(t, ctx, other)
		c = s.lead(t, ctx, "psql")
		x.Type("SET fence.token = '" + c.Token.Reveal() + "';\n")
		x.Await("SET\n")
		x.Type("insert into written values ('kept');\n")
		x.Await("INSERT 0 1")
		x.Await("ready> ")
		x.Leave("\\q\n")
		s.resign(t, ctx, c)
	}
	var all string
	if err := connect(t, ctx, s.server.DSN("app", s.name)).QueryRow(ctx, "select string_agg(what, ',' order by what) from written").Scan(&all); err != nil || all != "kept,kept,other,other" {
		t.Errorf("%s %v", all, err)
	}
}

// A psql that is not at a terminal ends with the server's FATAL and status 2.
func TestPsqlScriptLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "psqlscript")
	c := s.lead(t, ctx, "psql")
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := s.leader(c).try(ctx, "\\set VERBOSITY verbose\nbegin;\ninsert into written values ('lost');\nselect pg_sleep(600);\ncommit;\n", testenv.Tool(t, "psql"), "-XAt")
		done <- result{out, err}
	}()
	s.waitForSleep(t, ctx)
	s.resign(t, ctx, c)
	s.write(t, ctx, s.lead(t, ctx, "other"), "other")
	select {
	case r := <-done:
		exit, _ := r.err.(*exec.ExitError)
		if exit == nil || exit.ExitCode() != 2 || strings.Count(r.out, "FATAL:  FP001: stale leader refused") != 1 || !strings.Contains(r.out, "HINT:  Stop writing") {
			t.Errorf("%v\n%s", r.err, r.out)
		}
	case <-time.After(time.Minute):
		t.Fatal("psql does not end")
	}
}
