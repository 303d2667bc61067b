package respclients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// cli is redis-cli at a place.
func (p place) cli(t *testing.T, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	base := []string{"-h", p.host(), "-p", p.port(), "--user", p.username(), "--no-auth-warning"}
	if p.ca != "" {
		base = append(base, "--tls", "--cacert", p.ca)
	}
	if p.resp != 0 {
		base = append(base, "-"+strconv.Itoa(p.resp))
	}
	cmd := p.command(ctx, testenv.Tool(t, "redis-cli"), append(base, args...)...)
	cmd.Env = append(cmd.Env, "REDISCLI_AUTH="+password, "REDISCLI_HISTFILE=/dev/null", "TERM=dumb")
	return cmd
}

// runCLI runs redis-cli and returns what it printed, and how it ended if not well.
func (p place) runCLI(t *testing.T, ctx context.Context, stdin string, args ...string) string {
	t.Helper()
	cmd := p.cli(t, ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); exited {
		return fmt.Sprintf("%s%v\n", out, err)
	} else if err != nil {
		t.Fatalf("redis-cli %v: %v: %s", args, err, out)
	}
	return string(out)
}

// typed is the commands of commands.json as one types them into redis-cli.
func typed(t *testing.T, which string) string {
	t.Helper()
	text, err := os.ReadFile(testenv.Testdata(t, "commands.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][][]string
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, args := range all[which] {
		for _, a := range args {
			b.WriteString(strconv.Quote(a) + " ")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

const cliSession = `MULTI
SET {k}:tx 1
PING
LPUSH {k}:tx 1
EXEC
WATCH {k}:tx
MULTI
SET {k}:tx 2
DISCARD
MULTI
SET {k}:tx
EXEC
CLIENT SETNAME me
CLIENT GETNAME
3 INCR {k}:three
SELECT 1
SET x 1
FLUSHDB
SELECT 0
AUTH app secret
ACL WHOAMI
HELLO 3 AUTH app wrong
LOLWUT VERSION 1
`

// redis-cli prints to the letter what it prints beside the proxy, fed by a pipe, in each
// protocol and form of output.
func TestRedisCLI(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "rediscli")
	c := s.lead(t, ctx, "redis-cli")
	session, read := typed(t, "session")+cliSession+typed(t, "read"), typed(t, "read")
	for _, form := range [][]string{{"-2"}, {"-3"}, {"-3", "--json"}, {"-2", "--csv"}, {"--no-raw"}} {
		run := func(p place, stdin string) string { return p.runCLI(t, ctx, stdin, form...) }
		s.fresh(t, ctx)
		want := run(s.direct(), session)
		testenv.Holds(t, "session", want, "by a function", "MY error", "EXECABORT", "WRONGPASS")
		s.fresh(t, ctx)
		testenv.Same(t, fmt.Sprint("session ", form), run(s.leader(c), session), want)
		s.fresh(t, ctx)
		bind := "FENCE BIND " + c.Election + " " + c.Token.Reveal() + "\n"
		if _, got, _ := strings.Cut(run(s.reader(), bind+session), "\n"); len(form) == 1 && form[0] == "-2" {
			testenv.Same(t, fmt.Sprint("session after FENCE BIND ", form), got, want)
		}
		want = run(s.direct(), read)
		testenv.Same(t, fmt.Sprint("read, as reader ", form), run(s.reader(), read), want)
	}
	out := s.reader().runCLI(t, ctx, "SET {k}:late 1\nGET {k}:tx\nMULTI\nSET {k}:late 1\nEXEC\n")
	if strings.Count(out, "FENCED write refused") != 2 || !strings.Contains(out, "\n1\n") || !strings.Contains(out, "EXECABORT") {
		t.Errorf("refused: %s", out)
	}
}
