package respclients

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A script is a program that uses one client library and prints what came back. Its mode
// says what to do:
//
//	session  all that the client can do
//	read     what a reader may do, on the keys that session left
//	refused  writes in many ways, one line each: what, and the client's exception
//	ways     the ways to present a token, one line each, with the state of FENCE STATUS
//	loss     see losing
type script struct {
	name string
	// protocols are those that the client speaks, as place.resp.
	protocols []int
	// run runs it to its end. It leaves nothing behind.
	run func(ctx context.Context, p place, mode string, in io.Reader, out io.Writer) error
}

// external is a script that is a program of its own.
func external(name string, protocols []int, command func(ctx context.Context, p place, mode string) *exec.Cmd) *script {
	return &script{name: name, protocols: protocols, run: func(ctx context.Context, p place, mode string, in io.Reader, out io.Writer) error {
		cmd := command(ctx, p, mode)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		var complaints strings.Builder
		cmd.Stdout, cmd.Stderr = out, &complaints
		if err := cmd.Start(); err != nil {
			return err
		}
		go func() { // ends with in, which whoever runs it closes
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
		}()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, complaints.String())
		}
		if complaints.Len() > 0 {
			return fmt.Errorf("complaints: %s", complaints.String())
		}
		return nil
	}}
}

// patience is how long a script may take on a busy machine.
const patience = 3 * time.Minute

func (c *script) transcript(t *testing.T, ctx context.Context, p place, mode string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out strings.Builder
	err := c.run(ctx, p, mode, strings.NewReader(""), &out)
	if err != nil || !strings.HasSuffix(out.String(), "\ndone\n") {
		t.Fatalf("%s %s: %v\n%s", c.name, mode, err, out.String())
	}
	return out.String()
}

// transcripts runs a script directly and through the proxy, in each protocol. session must
// print the same as leader, read the same as reader, and each write of a reader must be
// refused.
func (c *script) transcripts(t *testing.T, ctx context.Context, s *stage, expected ...string) {
	t.Helper()
	lead := s.lead(t, ctx, c.name)
	defer s.resign(t, ctx, lead)
	for i, resp := range c.protocols {
		what := func(mode string) string { return fmt.Sprintf("%s, RESP %d", mode, resp) }
		s.fresh(t, ctx)
		want := c.transcript(t, ctx, s.direct().in(resp), "session")
		testenv.Holds(t, what("session"), want, expected...)
		if i == 0 {
			t.Logf("%s session:\n%s", c.name, want)
		}
		for _, leader := range []place{s.binding(lead), s.leader(lead)} {
			s.fresh(t, ctx)
			testenv.Same(t, what("session"), c.transcript(t, ctx, leader.in(resp), "session"), want)
		}
		want = c.transcript(t, ctx, s.direct().in(resp), "read")
		testenv.Same(t, what("read, as reader"), c.transcript(t, ctx, s.reader().in(resp), "read"), want)
		testenv.Same(t, what("read, as leader"), c.transcript(t, ctx, s.leader(lead).in(resp), "read"), want)
		s.checkRefused(t, ctx, c.transcript(t, ctx, s.reader().in(resp), "refused"))
		checkWays(t, c.transcript(t, ctx, s.leader(lead).in(resp), "ways"))
	}
}

// libraries are the scripts of all libraries, each in one protocol, with what they say of a
// connection that the server closed.
func libraries(t *testing.T, ctx context.Context) map[*script]string {
	t.Helper()
	goRedis := goRedis()
	goRedis.protocols = []int{3}
	return map[*script]string{goRedis: goClosed, node(t, "ioredis", 2): nodeClosed, node(t, "noderedis", 3): nodeClosed, redisPy(t, ctx): pyClosed}
}

// briefly runs a script as leader, as reader, and losing leadership.
func (c *script) briefly(t *testing.T, ctx context.Context, s *stage, closed string) {
	t.Helper()
	lead := s.lead(t, ctx, c.name)
	resp := c.protocols[0]
	s.fresh(t, ctx)
	want := c.transcript(t, ctx, s.direct().in(resp), "session")
	s.fresh(t, ctx)
	testenv.Same(t, "session", c.transcript(t, ctx, s.leader(lead).in(resp), "session"), want)
	testenv.Same(t, "read", c.transcript(t, ctx, s.reader().in(resp), "read"), c.transcript(t, ctx, s.direct().in(resp), "read"))
	s.resign(t, ctx, lead)
	c.losing(t, ctx, s, func(c guard.Credential) place { return s.leader(c).in(resp) }, closed)
}

// checkRefused checks that each write of a reader was refused, and that none was applied.
func (s *stage) checkRefused(t *testing.T, ctx context.Context, refused string) {
	t.Helper()
	tried := 0
	for line := range strings.Lines(refused) {
		if line = strings.TrimSpace(line); line == "done" {
			break
		}
		tried++
		if !strings.Contains(line, "FENCED write refused: this session has no live token of election \""+s.name+"\"") {
			t.Errorf("refused: %s", line)
		}
	}
	if tried < 5 {
		t.Errorf("refused: only %d writes were tried", tried)
	}
	t.Logf("refused, of %d:\n%.300s", tried, refused)
	if late := s.do(t, ctx, "KEYS", "*late*").([]any); len(late) > 0 {
		t.Errorf("refused writes that were applied: %v", late)
	}
}

// checkWays checks that each way to present a token binds.
func checkWays(t *testing.T, ways string) {
	t.Helper()
	testenv.Holds(t, "ways", ways, "none: reader\n")
	n := 0
	for line := range strings.Lines(ways) {
		if line = strings.TrimSpace(line); strings.HasSuffix(line, ": bound") {
			n++
		} else if line != "none: reader" && line != "done" {
			t.Errorf("ways: %s", line)
		}
	}
	if n < 3 {
		t.Errorf("only %d ways:\n%s", n, ways)
	}
}
