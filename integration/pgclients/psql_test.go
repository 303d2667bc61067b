package pgclients

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// psqlVaries is what psql prints of ports, process numbers, ciphers and the time.
var psqlVaries = regexp.MustCompile(`at port "\d+"|with PID \d+|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}|lo_(un)?(import|link) \d+|cipher: \w+`)

func psql(t *testing.T, ctx context.Context, p place, script string) string {
	t.Helper()
	file := testdata(t, "psql/"+script)
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
	holds(t, "session", want, "\ndone\n", "COPY 22", "after discard all", "cannot execute UPDATE in a read-only transaction",
		"Asynchronous notification", "ERROR:  22012: division by zero", "ERROR:  22P02: invalid input syntax for type integer",
		"\n a file\n", "NOTICE:  00000: a notice", "reconnected", "every 0.05s")
	s.fresh(t, ctx)
	same(t, "session", psql(t, ctx, leader, "session.sql"), want)
	want = psql(t, ctx, s.direct(), "read.sql")
	holds(t, "read", want, "\ndone\n")
	same(t, "read, as reader", psql(t, ctx, s.reader(), "read.sql"), want)
	same(t, "read, as leader", psql(t, ctx, leader, "read.sql"), want)
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

// A terminal is a psql that somebody types into.
type terminal struct {
	t   *testing.T
	cmd *exec.Cmd
	pty *os.File
	wg  sync.WaitGroup

	mu   sync.Mutex
	said bytes.Buffer
	read int // how much of it await has passed
}

func openPsql(t *testing.T, ctx context.Context, p place) *terminal {
	t.Helper()
	x := &terminal{t: t, cmd: p.command(ctx, testenv.Tool(t, "psql"), "-X", "-n", "-P", "pager=off", "--set=PROMPT1=ready> ", "--set=PROMPT2=more> ")}
	x.cmd.Env = append(x.cmd.Env, "TERM=dumb")
	f, err := pty.Start(x.cmd)
	if err != nil {
		t.Fatal(err)
	}
	x.pty = f
	x.wg.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := f.Read(b)
			x.mu.Lock()
			x.said.Write(bytes.ReplaceAll(b[:n], []byte("\r"), nil))
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		_ = x.cmd.Wait()
		f.Close()
		x.wg.Wait()
		if t.Failed() {
			t.Logf("the terminal showed:\n%s", x.said.String())
		}
	})
	x.await("ready> ")
	return x
}

// await waits for a text and returns what was said up to it.
func (x *terminal) await(text string) (said string) {
	x.t.Helper()
	testenv.Eventually(x.t, "psql says "+text, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		rest := x.said.Bytes()[x.read:]
		i := bytes.Index(rest, []byte(text))
		if i < 0 {
			return false
		}
		said = string(rest[:i])
		x.read += i + len(text)
		return true
	})
	return said
}

func (x *terminal) types(text string) {
	x.t.Helper()
	if _, err := x.pty.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

const ctrlC = "\x03"

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
			x.types("select pg_sleep(600);\n")
			s.waitForSleep(t, ctx)
			x.types(ctrlC)
			x.await("canceling statement due to user request")
			x.await("ready> ")
			x.types("select 'next', 1 + 1;\n")
			x.await("next     |        2")
			x.await("ready> ")
		}
		x.types("begin;\n")
		x.await("ready> ")
		x.types(write + "\n")
		x.await("ready> ")
		x.types("select pg_sleep(600);\n")
		s.waitForSleep(t, ctx)
		x.types(ctrlC)
		x.await("canceling statement due to user request")
		x.await("ready> ")
		x.types("select 1;\n")
		x.await("current transaction is aborted")
		x.await("ready> ")
		x.types("rollback;\n")
		x.await("ready> ")
		x.types("select 'watched' as w \\watch 0.01\n")
		x.await("watched")
		x.await("watched")
		x.types(ctrlC)
		x.await("ready> ")
		x.types("\\copy (select repeat('x', 100) from generate_series(1, 1000000000)) to '/dev/null'\n")
		s.waitForActive(t, ctx, "COPY")
		x.types(ctrlC)
		x.await("canceling statement due to user request")
		x.await("ready> ")
		x.types("unfinished\n")
		x.await("more> ")
		x.types(ctrlC)
		x.await("ready> ")
		x.mu.Lock()
		defer x.mu.Unlock()
		x.types("\\q\n")
		if err := x.cmd.Wait(); err != nil {
			t.Error(err)
		}
		return watched.ReplaceAllString(psqlVaries.ReplaceAllString(x.said.String(), "…"), "watched")
	}
	want := session(s.direct(), "insert into written values ('canceled');")
	same(t, "as leader", session(leader, "insert into written values ('canceled');"), want)
	want = session(s.direct(), "select count(*) from written;")
	same(t, "as reader", session(s.reader(), "select count(*) from written;"), want)
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
		x.types("\\set VERBOSITY verbose\nbegin;\n")
		x.await("BEGIN")
		x.types("insert into written values ('lost');\n")
		x.await("INSERT 0 1")
		x.await("ready> ")
		if sleeping {
			x.types("select pg_sleep(600);\n")
			s.waitForSleep(t, ctx)
		}
		s.resign(t, ctx, c)
		other := s.lead(t, ctx, "other")
		s.write(t, ctx, other, "other")
		if !sleeping {
			x.types("commit;\n")
		}
		x.await("FATAL:  FP001: stale leader refused: election \"psqlloss\" is ruled by number")
		x.await("The connection to the server was lost. Attempting reset: ")
		x.await("WARNING:  FP001: stale leader refused")
		x.await("Succeeded.")
		x.await("ready> ")
		x.types("select what from written;\n")
		x.await("other")
		x.await("ready> ")
		x.types("insert into written values ('stale');\n")
		x.await("ERROR:  FP001: stale leader refused")
		x.await("ready> ")
		s.resign(t, ctx, other)
		c = s.lead(t, ctx, "psql")
		x.types("SET fence.token = '" + c.Token.Reveal() + "';\n")
		x.await("SET\n")
		x.types("insert into written values ('kept');\n")
		x.await("INSERT 0 1")
		x.await("ready> ")
		x.types("\\q\n")
		if err := x.cmd.Wait(); err != nil {
			t.Error(err)
		}
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
