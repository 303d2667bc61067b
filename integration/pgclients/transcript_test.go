package pgclients

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A script is a program that uses one client library and prints what came back. Its
// argument says what to do:
//
//	session  all that the client can do
//	read     what a reader may do, on the tables that session left
//	refused  writes in many ways, one line each: what, the client's exception, SQLSTATE
//	ways     the ways to present a token, one line each, with SHOW fence.status
//	loss     see losing
type script struct {
	name    string
	command func(ctx context.Context, p place, mode string) *exec.Cmd
}

// patience is how long a script may take on a busy machine.
const patience = 3 * time.Minute

func (c *script) run(t *testing.T, ctx context.Context, p place, mode string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := c.command(ctx, p, mode)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s\n%s", c.name, mode, err, out, complaints.String())
	}
	return string(out)
}

// transcripts runs a script directly and through the proxy. session must print the same
// as leader, read the same as reader, and each write of a reader must be refused.
func (c *script) transcripts(t *testing.T, ctx context.Context, s *stage, expected ...string) {
	t.Helper()
	leader := s.leader(s.lead(t, ctx, c.name))
	want := c.run(t, ctx, s.direct(), "session")
	testenv.Holds(t, "session", want, append(expected, "\ndone\n")...)
	s.fresh(t, ctx)
	testenv.Same(t, "session", c.run(t, ctx, leader, "session"), want)

	want = c.run(t, ctx, s.direct(), "read")
	testenv.Holds(t, "read", want, "\ndone\n")
	testenv.Same(t, "read, as reader", c.run(t, ctx, s.reader(), "read"), want)
	testenv.Same(t, "read, as leader", c.run(t, ctx, leader, "read"), want)

	refused := c.run(t, ctx, s.reader(), "refused")
	testenv.Holds(t, "refused", refused, "\ndone\n")
	tried := 0
	for line := range strings.Lines(refused) {
		if line = strings.TrimSpace(line); line == "done" {
			break
		}
		tried++
		if !strings.Contains(line, "write refused: this session has no live token of election \""+s.name+"\"") ||
			!strings.Contains(line, " 25006 ") && !strings.Contains(line, " no SQLSTATE ") {
			t.Errorf("refused: %s", line)
		}
	}
	if tried < 5 {
		t.Errorf("refused: only %d writes were tried", tried)
	}
	t.Logf("%s refused:\n%s", c.name, refused)

	c.checkWays(t, s, c.run(t, ctx, leader, "ways"))
}

// checkWays checks that each way to present a token binds.
func (c *script) checkWays(t *testing.T, s *stage, ways string) {
	t.Helper()
	testenv.Holds(t, "ways", ways, "\nnone: reader\n", "\ndone\n")
	for line := range strings.Lines(ways) {
		if line = strings.TrimSpace(line); !strings.HasSuffix(line, ": bound "+s.name) && line != "none: reader" && line != "done" {
			t.Errorf("ways: %s", line)
		}
	}
}

// losing runs a script that loses leadership in mid-transaction. The script, for each of
// the ways to notice, connects with its token, begins a transaction and inserts into
// written the text 'lost …'. Then it prints
//
//	@written   and waits for a line: another leads by then
//	@sleeping  and runs select pg_sleep(600) in that transaction: another takes over meanwhile
//	@again     and waits for a line, a new token that it shall use from then on
//
// It prints what the client sees of the loss in lines that begin with "lost", and of its
// recovery in lines that begin with "again": it reads on a connection of the same pool, is
// refused a write of 'stale …' there, and with its new token writes 'kept …'.
//
// Directly, an administrator ends the session in the server instead. What the client sees
// of that must be the same but for the SQLSTATE and the text.
func (c *script) losing(t *testing.T, ctx context.Context, s *stage) string {
	t.Helper()
	s.fresh(t, ctx)
	want := lost(c.lose(t, ctx, s, false))
	s.fresh(t, ctx)
	got := c.lose(t, ctx, s, true)
	testenv.Same(t, "the client's view of the loss, beside pg_terminate_backend's", lost(got), want)
	t.Logf("%s loses:\n%s", c.name, got)

	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "lost") && strings.Contains(line, "57P01") || strings.Contains(line, "ok but should not") {
			t.Errorf("loss: %s", line)
		}
	}
	conn := connect(t, ctx, s.server.DSN("app", s.name))
	rows, err := conn.Query(ctx, "select what from written order by what")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	kept, others := 0, 0
	for rows.Next() {
		var what string
		if err := rows.Scan(&what); err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(what, "kept"):
			kept++
		case what == "other":
			others++
		default:
			t.Errorf("a write of the old leader landed: %s", what)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if reads, writes := strings.Count(got, "again reads"), strings.Count(got, "again writes"); kept == 0 || others != kept || reads != kept || writes != kept {
		t.Errorf("%d recoveries that read and %d that wrote, %d writes of them, %d takeovers", reads, writes, kept, others)
	}
	return got
}

var ended = regexp.MustCompile(`57P01|FP001|terminating connection due to administrator command|stale leader refused: election "\w+" is ruled by number \d+`)

// lost is the lines of the loss, without what must differ.
func lost(transcript string) string {
	var b strings.Builder
	for line := range strings.Lines(transcript) {
		if strings.HasPrefix(line, "lost") {
			b.WriteString(ended.ReplaceAllString(line, "*"))
		}
	}
	return b.String()
}

// lose runs the script's loss, through the proxy or directly, and returns what it printed.
func (c *script) lose(t *testing.T, ctx context.Context, s *stage, proxied bool) string {
	t.Helper()
	var holder guard.Credential
	at := s.direct()
	if proxied {
		holder = s.lead(t, ctx, c.name)
		at = s.leader(holder)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := c.command(ctx, at, "loss")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	var complaints strings.Builder
	cmd.Stdout, cmd.Stderr = w, &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		ended <- err
		w.CloseWithError(io.EOF)
	}()

	var all strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		switch line := lines.Text(); line {
		case "@written", "@sleeping":
			if line == "@sleeping" {
				s.waitForSleep(t, ctx)
			}
			if !proxied {
				s.terminate(t, ctx)
			} else {
				s.resign(t, ctx, holder)
				holder = s.lead(t, ctx, "other")
				s.write(t, ctx, holder, "other")
			}
			if line == "@written" {
				fmt.Fprintln(in, "go")
			}
		case "@again":
			token := ""
			if proxied {
				s.resign(t, ctx, holder)
				holder = s.lead(t, ctx, c.name)
				token = holder.Token.Reveal()
			}
			fmt.Fprintln(in, token)
		default:
			fmt.Fprintln(&all, line)
		}
	}
	if err := <-ended; err != nil {
		t.Fatalf("%s: %v\n%s\n%s", c.name, err, all.String(), complaints.String())
	}
	if proxied {
		s.resign(t, ctx, holder)
	}
	return all.String()
}

// terminate ends every session of the database, as an administrator may.
func (s *stage) terminate(t *testing.T, ctx context.Context) {
	t.Helper()
	const ours = "from pg_stat_activity where datname = $1 and usename = 'app'"
	var pids []int32
	if err := s.admin.QueryRow(ctx, "select array_agg(pid) filter (where pg_terminate_backend(pid)) "+ours, s.name).Scan(&pids); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the sessions end", func() bool {
		var n int
		if err := s.admin.QueryRow(ctx, "select count(*) "+ours+" and pid = any($2)", s.name, pids).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// waitForSleep waits until a session of the database sleeps in a query.
func (s *stage) waitForSleep(t *testing.T, ctx context.Context) {
	t.Helper()
	testenv.Eventually(t, "a query sleeps", func() bool {
		var n int
		err := s.admin.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = $1 and wait_event = 'PgSleep'", s.name).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
}

// write writes through the proxy, as a leader.
func (s *stage) write(t *testing.T, ctx context.Context, c guard.Credential, what string) {
	t.Helper()
	conn := connect(t, ctx, fmt.Sprintf("postgres://app@%s/%s?sslmode=disable&fence.token=%s", s.proxy, s.name, c.Token.Reveal()))
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "insert into written values ($1)", what); err != nil {
		t.Fatal(err)
	}
}
