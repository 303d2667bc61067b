package resp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// ownCommands answer with their words, block until ctx ends at BLOCK and until they are let go at
// HOLD, and count what they are asked.
type ownCommands struct {
	begun, ended, blocked, cancelled atomic.Int64
	let                              chan struct{}
}

func (o *ownCommands) Begin(net.Addr) resp.Conversation {
	o.begun.Add(1)
	return o
}

func (o *ownCommands) Answer(ctx context.Context, args [][]byte, r *resp.Reply) {
	if len(args) > 0 && string(args[0]) == "BLOCK" {
		o.blocked.Add(1)
		<-ctx.Done()
		o.cancelled.Add(1)
		r.Error("STOPPED", "it ended")
		return
	}
	if len(args) > 0 && string(args[0]) == "HOLD" {
		o.blocked.Add(1)
		select {
		case <-o.let:
		case <-ctx.Done():
			o.cancelled.Add(1)
		}
	}
	r.Map(1)
	r.Text("words")
	r.Array(len(args))
	for _, a := range args {
		r.Text(string(a))
	}
}

func (o *ownCommands) End() { o.ended.Add(1) }

func newOwnRig(t *testing.T) (*rig, *ownCommands) {
	t.Helper()
	own := &ownCommands{let: make(chan struct{})}
	return newRig(t, rigOptions{config: func(c *resp.Config) { c.Own = map[string]resp.Commands{resp.OwnElection: own} }}), own
}

// Commands of the proxy's own are answered in their place, in the session's protocol, and
// never sent upstream.
func TestOwnCommands(t *testing.T) {
	r, own := newOwnRig(t)
	w := dial(t, r.addr)
	w.send("PING", "election a b", "PING", "ELECTION")
	for _, want := range []string{"+PONG\r\n", "*2\r\n$5\r\nwords\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n", "+PONG\r\n", "*2\r\n$5\r\nwords\r\n*0\r\n"} {
		if got := w.reply(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	w.wantPrefix("HELLO 3", "%")
	w.want("ELECTION a", "%1\r\n$5\r\nwords\r\n*1\r\n$1\r\na\r\n")
	// An earlier command that blocks is waited for.
	key := testenv.Name(t, "list")
	w.send("BLPOP "+key+" 0", "ELECTION a")
	other := dial(t, r.addr)
	other.want("ELECTION x", "*2\r\n$5\r\nwords\r\n*1\r\n$1\r\nx\r\n")
	if n := own.begun.Load(); n != 2 {
		t.Errorf("%d conversations of two sessions", n)
	}
	if err := r.control.RPush(t.Context(), key, "v").Err(); err != nil {
		t.Fatal(err)
	}
	w.reply()
	w.reply()
	// RESET begins anew.
	w.want("RESET", "+RESET\r\n")
	w.want("ELECTION", "*2\r\n$5\r\nwords\r\n*0\r\n")
	if n := own.ended.Load(); n != 1 || own.begun.Load() != 3 {
		t.Errorf("%d conversations ended by one RESET, of %d", n, own.begun.Load())
	}
	w.want("MULTI", "+OK\r\n")
	w.wantPrefix("ELECTION", "-ERR ELECTION is not allowed inside MULTI")
	w.wantPrefix("EXEC", "-EXECABORT")
	w.wantPrefix("FENCE GATE LIST", "-ERR FENCE GATE is not set up on this listener")
	_ = w.Close()
	_ = other.Close()
	eventually(t, "the ends", func() bool { return own.ended.Load() == 3 })
}

// What blocks is given up when the client leaves, when the session ends.
func TestOwnCommandsAreGivenUp(t *testing.T) {
	r, own := newOwnRig(t)
	gone := dial(t, r.addr)
	gone.send("ELECTION BLOCK", "PING")
	eventually(t, "it to block", func() bool { return own.blocked.Load() == 1 })
	_ = gone.Close()
	eventually(t, "it to be given up", func() bool { return own.cancelled.Load() == 1 && own.ended.Load() == 1 })

	// Half closed: the answer would still be read, but it does not come in time.
	half := dial(t, r.addr)
	half.send("ELECTION a", "ELECTION BLOCK")
	if err := half.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := half.rest(); !strings.HasPrefix(got, "*2\r\n$5\r\nwords") {
		t.Errorf("got %q", got)
	}

	leader := r.lead(t)
	bound := dial(t, r.addr)
	bound.want("FENCE BIND "+r.election+" "+leader.Token.Reveal(), "+OK\r\n")
	bound.want("SET "+testenv.Name(t, "k")+" 1", "+OK\r\n")
	blocked := own.blocked.Load()
	bound.send("ELECTION BLOCK")
	eventually(t, "it to block", func() bool { return own.blocked.Load() == blocked+1 })
	next := r.takeOver(t, leader)
	newer := dial(t, r.addr)
	newer.want("FENCE BIND "+r.election+" "+next.Token.Reveal(), "+OK\r\n")
	bound.wantEnd()
	eventually(t, "it to be given up", func() bool { return own.cancelled.Load() == own.blocked.Load() })
}

// What was done for a bound session is told to it even when it ends over that: the next leader's
// fence closes the connection of one who has just resigned, and may be faster than the answer.
func TestOwnCommandsAreAnsweredWhenTheSessionIsSevered(t *testing.T) {
	r, own := newOwnRig(t)
	leader := r.lead(t)
	old := dial(t, r.addr)
	old.want("FENCE BIND "+r.election+" "+leader.Token.Reveal(), "+OK\r\n")
	old.want("SET "+testenv.Name(t, "k")+" 1", "+OK\r\n")
	old.send("ELECTION HOLD")
	eventually(t, "it to be asked", func() bool { return own.blocked.Load() == 1 })
	next := r.takeOver(t, leader)
	newer := dial(t, r.addr)
	newer.want("FENCE BIND "+r.election+" "+next.Token.Reveal(), "+OK\r\n") // severed, when this comes
	close(own.let)
	if got, want := old.rest(), "*2\r\n$5\r\nwords\r\n*1\r\n$4\r\nHOLD\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if own.cancelled.Load() != 0 {
		t.Error("it was cancelled")
	}
}

// While the shell answers, the session drains in order: with the answer, if it comes soon.
func TestOwnCommandsWhenTheProxyStops(t *testing.T) {
	own := new(ownCommands)
	var c resp.Config
	newRig(t, rigOptions{config: func(made *resp.Config) { c = *made }})
	c.Own = map[string]resp.Commands{resp.OwnElection: own}
	s, err := resp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	w := dial(t, l.Addr().String())
	w.send("ELECTION BLOCK")
	eventually(t, "it to block", func() bool { return own.blocked.Load() == 1 })
	stop()
	if got := w.rest(); got != "-STOPPED it ended\r\n" {
		t.Errorf("got %q", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if own.ended.Load() != 1 {
		t.Error("the conversation was not ended")
	}
}

// No word of such a command reaches the server, whether the listener answers it or not.
func TestOwnCommandsStayHere(t *testing.T) {
	for _, set := range []bool{true, false} {
		var sent testenv.Buffer
		addr, _ := testenv.RelayTCP(t, testenv.SharedRedis(t).Addr, func(to io.Writer, from io.Reader) {
			_, _ = io.Copy(io.MultiWriter(&sent, to), from)
		}, nil)
		r := newRig(t, rigOptions{config: func(c *resp.Config) {
			c.Upstream = addr
			if set {
				c.Own = map[string]resp.Commands{resp.OwnElection: new(ownCommands)}
			}
		}})
		w := dial(t, r.addr)
		const secret = "a-secret-token-of-this-test"
		for _, cmd := range []string{"ELECTION RENEW e ", "eLECTION ", "FENCE GATE BIND g p ", "fence gATE " + strings.Repeat("x ", 20)} {
			w.ask(cmd + secret)
			w.want("MULTI", "+OK\r\n")
			w.ask(cmd + secret)
			w.wantPrefix("EXEC", "-EXECABORT")
			long := strings.Repeat("x", 20<<10)
			words := append(strings.Fields(cmd), secret, long)
			if got := w.bulks(words...); !strings.HasPrefix(got, "-ERR ") {
				t.Errorf("got %q", got)
			}
		}
		w.want("ECHO here", "$4\r\nhere\r\n")
		if got := sent.String(); strings.Contains(got, secret) || !strings.Contains(got, "here") {
			t.Errorf("the server was sent %q", got)
		}
		if got := r.log.String(); strings.Contains(got, secret) {
			t.Errorf("logged: %s", got)
		}
	}
}

// bulks sends a command in bulks and returns its reply.
func (w *wire) bulks(words ...string) string {
	w.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, x := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(x), x)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		w.t.Fatal(err)
	}
	return w.reply()
}
