package pgclients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// pgbenchVaries is what pgbench prints of times.
var pgbenchVaries = regexp.MustCompile(`(?m)^(latency|initial connection time|average connection time|tps) .*\n|elapsed .*|\d+\.\d+ s \(.*\)`)

func pgbench(t *testing.T, ctx context.Context, p place, args ...string) string {
	t.Helper()
	out := p.run(t, ctx, "", testenv.Tool(t, "pgbench"), args...)
	return pgbenchVaries.ReplaceAllString(out, "")
}

// balances is the state that the transactions of pgbench left.
func (s *stage) balances(t *testing.T, ctx context.Context) string {
	t.Helper()
	var sum string
	err := connect(t, ctx, s.server.DSN("app", s.name)).QueryRow(ctx, `select concat_ws(' ',
		(select sum(hashtext(aid || ' ' || abalance)::bigint) from pgbench_accounts), (select sum(tbalance * tid) from pgbench_tellers),
		(select sum(bbalance) from pgbench_branches), (select count(*) from pgbench_history))`).Scan(&sum)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// pgbench prints and leaves the same through the proxy in each of its query modes, with
// pipelines and with a connection a transaction.
func TestPgbench(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "pgbench")
	leader := s.leader(s.lead(t, ctx, "pgbench"))
	pipeline := filepath.Join(t.TempDir(), "pipeline.sql")
	const script = `\set aid random(1, 100000)
\startpipeline
begin;
update pgbench_accounts set abalance = abalance + 1 where aid = :aid;
select abalance from pgbench_accounts where aid = :aid;
insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, :aid, 1, '2020-01-01');
end;
\endpipeline
select abalance from pgbench_accounts where aid = :aid \gset
`
	if err := os.WriteFile(pipeline, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	runs := [][]string{{"-f", pipeline, "-M", "extended"}, {"-f", pipeline, "-M", "prepared"}, {"-C", "-N"}}
	for _, mode := range []string{"simple", "extended", "prepared"} {
		runs = append(runs, []string{"-M", mode}, []string{"-M", mode, "-N"}, []string{"-M", mode, "-S"})
	}
	both := func(p place) (said string) {
		s.fresh(t, ctx)
		said = pgbench(t, ctx, p, "-i", "-q", "--foreign-keys")
		for _, args := range runs {
			said += pgbench(t, ctx, p, append([]string{"-n", "-c1", "-t50", "--random-seed=7"}, args...)...)
		}
		said += s.balances(t, ctx) + "\n"
		return said + pgbench(t, ctx, p, "-n", "-c4", "-j2", "-t50", "-M", "prepared")
	}
	want := both(s.direct())
	testenv.Same(t, "pgbench", both(leader), want)
	testenv.Holds(t, "pgbench", want, "number of transactions actually processed: 200/200")
	left := s.balances(t, ctx)
	if !strings.HasSuffix(left, " 650") {
		t.Errorf("left: %s", left)
	}
	for _, mode := range []string{"simple", "extended", "prepared"} {
		args := []string{"-n", "-S", "-c4", "-j2", "-t50", "-M", mode}
		testenv.Same(t, "as reader", pgbench(t, ctx, s.reader(), args...), pgbench(t, ctx, s.direct(), args...))
		out, err := s.reader().try(ctx, "", testenv.Tool(t, "pgbench"), "-n", "-t1", "-M", mode)
		if err == nil || !strings.Contains(out, "write refused: this session has no live token of election \"pgbench\"") {
			t.Errorf("%s: %v %s", mode, err, out)
		}
	}
	if now := s.balances(t, ctx); now != left {
		t.Errorf("a reader's pgbench left %s, want %s", now, left)
	}
	if out, err := s.reader().try(ctx, "", testenv.Tool(t, "pgbench"), "-i", "-q"); err == nil || !strings.Contains(out, "write refused") {
		t.Errorf("%v %s", err, out)
	}
}

// A pgbench that loses leadership ends with errors, and not one transaction of it lands
// behind the takeover.
func TestPgbenchLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "pgbenchloss")
	pgbench(t, ctx, s.direct(), "-i", "-q")
	own := connect(t, ctx, s.server.DSN("app", s.name))
	history := func() (n int) {
		if err := own.QueryRow(ctx, "select count(*) from pgbench_history").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, mode := range []string{"simple", "extended", "prepared"} {
		c := s.lead(t, ctx, "pgbench")
		before := history()
		type result struct {
			out string
			err error
		}
		done := make(chan result, 1)
		go func() {
			out, err := s.leader(c).try(ctx, "", testenv.Tool(t, "pgbench"), "-n", "-c4", "-j2", "-T600", "-M", mode)
			done <- result{out, err}
		}()
		testenv.Eventually(t, "pgbench writes", func() bool { return history() > before+50 })
		s.resign(t, ctx, c)
		other := s.lead(t, ctx, "other")
		s.write(t, ctx, other, "other")
		at := history()
		r := <-done
		exit, _ := r.err.(*exec.ExitError)
		if exit == nil || exit.ExitCode() != 2 || !strings.Contains(r.out, "stale leader refused: election \"pgbenchloss\"") {
			t.Errorf("%s: %v\n%s", mode, r.err, r.out)
		}
		if now := history(); now != at {
			t.Errorf("%s: %d transactions landed behind the takeover", mode, now-at)
		}
		s.resign(t, ctx, other)
	}
}
