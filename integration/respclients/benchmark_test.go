package respclients

import (
	"context"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// benchmark is redis-benchmark at a place.
func (p place) benchmark(t *testing.T, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	base := []string{"-h", p.host(), "-p", p.port(), "--user", p.username(), "-a", password}
	if p.ca != "" {
		base = append(base, "--tls", "--cacert", p.ca)
	}
	return p.command(ctx, testenv.Tool(t, "redis-benchmark"), append(base, args...)...)
}

// figures are what redis-benchmark measured.
var figures = regexp.MustCompile(`(?m)"[\d.]+"|^.*rps=.*\r`)

// redis-benchmark runs every test and leaves the same in the server as beside the proxy.
func TestRedisBenchmark(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "benchmark")
	c := s.lead(t, ctx, "redis-benchmark")
	for _, args := range [][]string{
		{"-n", "500", "-c", "10"},
		{"-n", "1600", "-c", "10", "-P", "16", "-3"},
		{"-n", "500", "-c", "20", "--threads", "2", "-t", "set,get,incr,mset", "-d", "20000"},
		{"-n", "200", "-k", "0", "-t", "set,get"},
	} {
		run := func(p place) string {
			s.fresh(t, ctx)
			out, err := p.benchmark(t, ctx, append([]string{"--csv", "--dbnum", "0"}, args...)...).CombinedOutput()
			if err != nil {
				t.Errorf("%v: %v", args, err)
			}
			return figures.ReplaceAllString(string(out), "…") + s.state(t, ctx)
		}
		want := run(s.direct())
		testenv.Holds(t, "benchmark", want, `"SET"`, `"GET"`)
		testenv.Same(t, strings.Join(args, " "), run(s.leader(c)), want)
	}
	// A reader may measure what reads.
	out, err := s.reader().benchmark(t, ctx, "-n", "500", "-q", "-t", "ping,get").CombinedOutput()
	if err != nil || strings.Contains(string(out), "FENCED") {
		t.Errorf("as reader: %v %s", err, out)
	}
	if out, err := s.reader().benchmark(t, ctx, "-n", "500", "-q", "-t", "set").CombinedOutput(); err == nil || !strings.Contains(string(out), "FENCED write refused") {
		t.Errorf("a reader's SET: %v %s", err, out)
	}
}

// redis-benchmark ends when it loses leadership.
func TestRedisBenchmarkLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "benchmarkloss")
	for _, args := range [][]string{{"-c", "5"}, {"-c", "5", "-P", "20", "-3"}} {
		s.block(t, ctx)
		l := &loss{stage: s, holder: s.lead(t, ctx, "redis-benchmark"), name: "redis-benchmark"}
		cmd := s.leader(l.holder).benchmark(t, ctx, append(args, "-q", "-n", "100000000", "INCR", flood)...)
		var out testenv.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		l.event(t, ctx, "@flooding")
		err := cmd.Wait()
		said := out.String()
		said = said[max(0, len(said)-500):]
		t.Logf("%v: %s", err, said)
		if err == nil || !strings.Contains(said, "FENCED stale leader refused") && !strings.Contains(said, "Server closed the connection") && !strings.Contains(said, "Connection reset") {
			t.Errorf("%v: %s", err, said)
		}
		l.checkState(t, ctx)
		s.resign(t, ctx, l.holder)
	}
}
