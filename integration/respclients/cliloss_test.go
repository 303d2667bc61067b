package respclients

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// openCLI is a redis-cli that somebody types into.
func openCLI(t *testing.T, ctx context.Context, p place) *testenv.Terminal {
	t.Helper()
	x := testenv.OpenTerminal(t, p.cli(t, ctx))
	x.Await(prompt(p))
	return x
}

// identity is the number that the server gave the connection.
var identity = regexp.MustCompile(`"id"( =>|\n 8\)) \(integer\) \d+`)

func prompt(p place) string { return p.addr + "> " }

// What one types into redis-cli at a terminal is answered as beside the proxy.
func TestRedisCLITerminal(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "rediscliterm")
	c := s.lead(t, ctx, "redis-cli")
	session := func(p place) string {
		s.fresh(t, ctx)
		x := openCLI(t, ctx, p)
		if p.bind {
			x.Type("FENCE BIND " + c.Token.Reveal() + "\n")
			x.Await("OK\n" + prompt(p))
		}
		var b strings.Builder
		for _, line := range []string{"SET {k}:s \"a\\x00b\"", "GET {k}:s", "HSET {k}:h a 1 b 2", "HGETALL {k}:h", "LPUSH {k}:s x", "3 INCR {k}:n", "HELLO 3", "HGETALL {k}:h",
			"ZADD {k}:z 1.5 m", "ZRANGE {k}:z 0 -1 WITHSCORES", "HELLO 2", "CLIENT SETNAME me", "CLIENT GETNAME", "NOSUCH", "BLPOP {k}:none 0.01"} {
			x.Type(line + "\n")
			fmt.Fprintf(&b, "%s\n%s", line, strings.ReplaceAll(x.Await("\n"+prompt(p)), line+"\n", "")+"\n")
		}
		tx := p.addr + "(TX)> "
		x.Type("MULTI\n")
		x.Await(tx)
		x.Type("INCR {k}:n\n")
		b.WriteString(x.Await(tx))
		x.Type("EXEC\n")
		b.WriteString(x.Await(prompt(p)))
		x.Type("SELECT 1\n")
		x.Await(p.addr + "[1]> ")
		x.Type("SELECT 0\n")
		x.Await(prompt(p))
		x.Type("SUBSCRIBE {k}:channel\n")
		x.Await("3) (integer) 1")
		s.do(t, ctx, "PUBLISH", "{k}:channel", "hello")
		b.WriteString(x.Await(`3) "hello"`))
		x.Type(testenv.CtrlC) // which ends this version of it
		return identity.ReplaceAllString(b.String(), "…")
	}
	want := session(s.direct())
	testenv.Holds(t, "session", want, `"a\x00b"`, "WRONGTYPE", "3\n", `"me"`, "1) (integer) 4", "QUEUED")
	testenv.Same(t, "as leader", session(s.leader(c)), want)
	testenv.Same(t, "after FENCE BIND", session(s.binding(c)), want)

	// --stat, until somebody ends it.
	for _, p := range []place{s.reader(), s.leader(c)} {
		x := testenv.OpenTerminal(t, p.cli(t, ctx, "--stat", "-i", "0.01"))
		x.Await("keys")
		for range 3 {
			x.Await("(+")
		}
		x.Type(testenv.CtrlC)
	}
}

// redis-cli loses leadership at its prompt, in a command that blocks, and between MULTI or
// WATCH and EXEC. It connects again by itself and says what is the matter.
func TestRedisCLILosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "rediscliloss")
	s.block(t, ctx)
	for _, way := range []struct {
		name  string
		typed string
		until string // what it shows then; nothing: it blocks
		after string // typed when another leads
		shows string
	}{
		{name: "prompt", typed: "PING", until: "PONG\n", after: "SET {k}:late 1", shows: "Error: Server closed the connection\nnot connected> "},
		{name: "watch", typed: "WATCH {k}:w", until: "OK\n", after: "MULTI", shows: "Error: Server closed the connection\nnot connected> "},
		{name: "transaction", typed: "MULTI\nSET {k}:late 1", until: "QUEUED\n", after: "EXEC", shows: "Error: Server closed the connection\nnot connected> "},
		{name: "blpop", typed: "BLPOP " + queue + " 0", shows: "(error) FENCED stale leader refused: election \"rediscliloss\" is ruled by number"},
		{name: "xreadgroup", typed: "XREADGROUP GROUP g c BLOCK 0 STREAMS " + stream + " >", shows: "(error) FENCED stale leader refused: election \"rediscliloss\" is ruled by number"},
		{name: "subscribed", typed: "SUBSCRIBE a", until: "(integer) 1\n", shows: "Error: Server closed the connection"},
	} {
		l := &loss{stage: s, holder: s.lead(t, ctx, "redis-cli"), name: "redis-cli"}
		p := s.leader(l.holder)
		x := openCLI(t, ctx, p)
		x.Type(way.typed + "\n")
		if way.until == "" {
			l.waitForBlocked(t, ctx, 1)
		} else {
			x.Await(way.until)
		}
		l.takeOver(t, ctx)
		if way.after != "" {
			x.Type(way.after + "\n")
		}
		x.Await(way.shows)
		if way.until == "" {
			x.Await(prompt(p))
			x.Type("PING\n") // and the connection is closed
			x.Await("Error: ")
			x.Await("not connected> ")
		}
		if way.name != "subscribed" { // where this version of it has no prompt any more
			x.Type("GET {k}:then\n")
			x.Await("\"0\"\n" + p.addr)
			x.Await("> ") // still "(TX)>" in this version of it, where a transaction was lost
			x.Type("SET {k}:late 1\n")
			x.Await("(error) FENCED stale leader refused")
			x.Await("> ")
		}
		l.checkState(t, ctx)
		s.resign(t, ctx, l.holder)
		if way.name == "subscribed" {
			continue
		}
		c := s.lead(t, ctx, "redis-cli")
		x.Type("FENCE BIND " + c.Token.Reveal() + "\n")
		x.Await("OK\n" + p.addr)
		x.Await("> ")
		x.Type("INCR {k}:kept\n")
		x.Await("(integer)")
		x.Leave("exit\n")
		s.resign(t, ctx, c)
	}
}

// redis-cli --pipe loses leadership in the middle of its stream.
func TestRedisCLIPipeLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "rediscliploss")
	s.block(t, ctx)
	l := &loss{stage: s, holder: s.lead(t, ctx, "redis-cli"), name: "redis-cli"}
	cmd := s.leader(l.holder).cli(t, ctx, "--pipe")
	in, w := io.Pipe()
	cmd.Stdin = in
	ended := make(chan string, 1)
	go func() {
		out, err := cmd.CombinedOutput()
		_ = in.Close()
		ended <- fmt.Sprintf("%s%v", out, err)
	}()
	go func() {
		for {
			if _, err := io.WriteString(w, strings.Repeat("INCR "+flood+"\r\n", 100)); err != nil {
				return // in was closed
			}
		}
	}()
	l.event(t, ctx, "@flooding")
	out := <-ended
	t.Log(out)
	// The reason is there unless the connection broke in the middle of a reply.
	if !strings.HasSuffix(out, "exit status 1") || strings.Contains(out, "errors: 0") {
		t.Errorf("it ends with %s", out)
	}
	l.checkState(t, ctx)
}
