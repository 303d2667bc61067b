package respclients

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A cliMode is a way to call redis-cli.
type cliMode struct {
	args  []string
	stdin string
	has   string // what it prints when it does what it is for
	sort  bool   // in the order of the server's tables
}

// progress is what redis-cli prints of how far it has come, and what depends on the moment.
var progress = regexp.MustCompile(`(?m)^\[[\d.]+%\] |\d+\.\d+ seconds`)

func (m cliMode) run(t *testing.T, ctx context.Context, p place) string {
	t.Helper()
	out := progress.ReplaceAllString(p.runCLI(t, ctx, m.stdin, m.args...), "")
	if m.sort {
		out = strings.Join(slices.Sorted(strings.Lines(out)), "")
	}
	return fmt.Sprintf("%v\n%s", m.args, out)
}

// redis-cli's modes do and print what they do and print beside the proxy.
func TestRedisCLIModes(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "rediscli2")
	c := s.lead(t, ctx, "redis-cli")
	script := filepath.Join(t.TempDir(), "script.lua")
	if err := os.WriteFile(script, []byte("redis.call('INCRBY', KEYS[1], ARGV[1]) return {redis.call('GET', KEYS[1]), KEYS[2]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var long, inline strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&long, "*3\r\n$5\r\nRPUSH\r\n$7\r\n{k}:all\r\n$%d\r\n%d\r\n", len(fmt.Sprint(i)), i)
	}
	for i := range 300 {
		fmt.Fprintf(&inline, "SET {k}:some:%d %d\r\n", i, i)
	}
	writes := []cliMode{
		{args: []string{"--pipe"}, stdin: long.String(), has: "errors: 0, replies: 20000"},
		{args: []string{"--pipe"}, stdin: inline.String(), has: "errors: 0, replies: 300"},
		{args: []string{"--pipe"}, stdin: "SET {k}:s x\r\nLPUSH {k}:s 1\r\nPING\r\n", has: "errors: 1, replies: 3"},
		{args: []string{"--eval", script, "{k}:e", "{k}:f", ",", "7"}, has: "{k}:f"},
		{args: []string{"-x", "SET", "{k}:x"}, stdin: "from a pipe", has: "OK"},
		{args: []string{"-X", "it", "SET", "{k}:it", "it"}, stdin: "from a pipe", has: "OK"},
		{args: []string{"-r", "5", "-i", "0.01", "INCR", "{k}:r"}, has: "5\n"},
		{args: []string{"-n", "1", "SET", "x", "1"}, has: "OK"},
		{args: []string{"-r", "1"}, stdin: "SET {k}:last 1\nGET {k}:last\n", has: "OK\n1\n"},
	}
	reads := []cliMode{
		{args: []string{"-e", "GET", "{k}:x"}, has: "from a pipe"},
		{args: []string{"--quoted-input", "GET", `"{k}\x3ax"`}, has: "from a pipe"},
		{args: []string{"--scan", "--pattern", "{k}:some:1*"}, sort: true, has: "{k}:some:123\n"},
		{args: []string{"--bigkeys"}, has: `list found '"{k}:all"' has 20000 items`},
		{args: []string{"--memkeys"}, has: `list found '"{k}:all"' has`},
		{args: []string{"-r", "3", "-i", "0.01", "PING"}, has: "PONG\nPONG\n"},
		{args: []string{"-d", ",", "MGET", "{k}:x", "{k}:r"}, has: "from a pipe,5"},
	}
	all := func(p place) string {
		s.fresh(t, ctx)
		var b strings.Builder
		for _, m := range writes {
			out := m.run(t, ctx, p)
			testenv.Holds(t, "writes", out, m.has)
			b.WriteString(out)
		}
		return b.String() + s.state(t, ctx)
	}
	want := all(s.direct())
	testenv.Same(t, "as leader", all(s.leader(c)), want)
	for _, m := range reads {
		want := m.run(t, ctx, s.direct())
		testenv.Holds(t, "reads", want, m.has)
		testenv.Same(t, "as reader", m.run(t, ctx, s.reader()), want)
		testenv.Same(t, "as leader", m.run(t, ctx, s.leader(c)), want)
	}
	// What copies the server's data is administration: nobody may.
	for _, args := range [][]string{{"--rdb", "/dev/null"}, {"--replica"}, {"--functions-rdb", "/dev/null"}} {
		if out, err := s.leader(c).cli(t, ctx, args...).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("NOPERM")) {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
}

// state is what is in the server, but for the fence.
func (s *stage) state(t *testing.T, ctx context.Context) string {
	t.Helper()
	var b strings.Builder
	keys := s.do(t, ctx, "EVAL", "local k = redis.call('KEYS', '*') table.sort(k) return k", 0).([]any)
	for _, k := range keys {
		if key := k.(string); !strings.HasPrefix(key, "fenceproxy:") {
			fmt.Fprintf(&b, "%s %s %x\n", key, s.do(t, ctx, "TYPE", key), sha256.Sum256([]byte(s.do(t, ctx, "DUMP", key).(string))))
		}
	}
	return b.String()
}
