package resp_test

import (
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// cmd sends a command of bulks and returns its reply.
func (w *wire) cmd(args ...string) string {
	w.t.Helper()
	if _, err := io.WriteString(w, bulks(args...)); err != nil {
		w.t.Fatal(err)
	}
	return w.reply()
}

// The servers compare their words up to a NUL. HELLO's option with more behind it would
// take the name off a bound connection, and give a reader's one.
func TestHelloOptionWithNUL(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	reader := dial(t, r.addr)
	forged := "fenceproxy:" + r.election + ":9000000000000000000:0123456789abcdef"
	if got := reader.cmd("HELLO", "2", "SETNAME\x00x", forged); !strings.HasPrefix(got, "-") {
		t.Errorf("a reader's forged name: %q", got)
	}
	key := testenv.Name(t, "k")
	var old []*wire
	for _, hello := range [][]string{
		{"HELLO", "2", "SETNAME\x00x", "other"},
		{"HELLO", "2", "setname\x00", "other"},
		{"HELLO", "2", "SETNAME", "a", "SETNAME\x00", "other"},
		{"HELLO", "2", "UNKNOWN", "SETNAME", "other"},
		{"HELLO", "2", "SETNAME", "other", "UNKNOWN"},
	} {
		w := dial(t, r.addr)
		w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
		w.cmd(hello...)
		if info := w.cmd("CLIENT", "INFO"); !strings.Contains(info, "name=fenceproxy:"+r.election+":") {
			t.Errorf("%q: the bound connection lost its name: %q", hello, info)
		}
		old = append(old, w)
	}
	next := r.takeOver(t, lead)
	w := dial(t, r.addr)
	w.want("FENCE BIND "+next.Token.Reveal(), "+OK\r\n")
	for _, w := range old {
		_, _ = io.WriteString(w, bulks("SET", key, "stale"))
		w.wantEnd()
	}
	w.want("GET "+key, "$-1\r\n")
}

// What HELLO refuses, it refuses in the server's words.
func TestHelloIsRefusedByTheServer(t *testing.T) {
	r := newRig(t, rigOptions{})
	direct, w := dial(t, r.redis.Addr), dial(t, r.addr)
	for _, hello := range [][]string{
		{"HELLO", "2", "NOSUCH", "SETNAME", "x"}, {"HELLO", "2", "AUTH", "x"}, {"HELLO", "2", "SETNAME"}, {"HELLO", "2", "SETNAME", "a b", "NOSUCH"},
	} {
		if got, want := w.cmd(hello...), direct.cmd(hello...); got != want {
			t.Errorf("%q: got %q, want %q", hello, got, want)
		}
	}
}

// CLIENT REPLY is followed as the server understands it.
func TestClientReplyWithNUL(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	w := dial(t, r.addr)
	_, _ = io.WriteString(w, bulks("CLIENT", "REPLY", "OFF\x00x")+bulks("FENCE", "BIND", lead.Token.Reveal()))
	if got := w.cmd("CLIENT", "REPLY", "ON\x00x"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	_, _ = io.WriteString(w, bulks("CLIENT", "REPLY", "SKIP\x00")+bulks("FENCE", "BIND", lead.Token.Reveal()))
	w.want("PING", "+PONG\r\n")
}

// By chance a name with a NUL in it is another name to the server. No such name is
// passed on, whole or in pieces, to readers or leaders.
func TestNamesWithNUL(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	w := dial(t, r.addr)
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	long := strings.Repeat("x", 50_000)
	for i := range 300 {
		nul := "\x00" + strconv.Itoa(i)
		for _, args := range [][]string{{"RESET" + nul}, {"CLIENT", "SETNAME" + nul, "other"}, {"SET" + nul, "k", long}} {
			if got := w.cmd(args...); !strings.HasPrefix(got, "-ERR unknown command") {
				t.Fatalf("%.40q: got %q", args, got)
			}
		}
	}
	if info := w.cmd("CLIENT", "INFO"); !strings.Contains(info, "name=fenceproxy:"+r.election+":") {
		t.Errorf("the bound connection lost its name: %q", info)
	}
}
