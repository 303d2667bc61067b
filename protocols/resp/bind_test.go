package resp_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

func TestReaderReadsAndMayNotWrite(t *testing.T) {
	r := newRig(t, rigOptions{})
	w := dial(t, r.addr)
	key := testenv.Name(t, "k")
	w.want("PING", "+PONG\r\n")
	w.want("GET "+key, "$-1\r\n")
	got := w.wantPrefix("SET "+key+" 1", "-FENCED ")
	if !strings.Contains(got, r.election) {
		t.Errorf("the refusal does not name the election: %q", got)
	}
	w.want("GET "+key, "$-1\r\n")
	w.wantPrefix("BLPOP "+key+" 0", "-FENCED ")
	w.wantPrefix("PUBLISH c m", "-FENCED ")
	w.wantPrefix("CONFIG SET maxmemory 0", "-NOPERM ")
	w.wantPrefix("NOSUCH a b", "-FENCED ")
	w.wantPrefix("CONFIG GET save", "*2\r\n")
}

func TestBindWriteUnbind(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	w := dial(t, r.addr)
	key := testenv.Name(t, "k")
	w.want("SELECT 3", "+OK\r\n")
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	w.want("SET "+key+" 1", "+OK\r\n")
	w.want("GET "+key, "$1\r\n1\r\n")
	if got := r.control.Do(t.Context(), "GET", key).String(); strings.Contains(got, "1") {
		t.Errorf("the session's database was not put back: %s", got)
	}
	t.Log(w.ask("FENCE STATUS"))
	t.Log(w.ask("CLIENT INFO"))
	w.want("CLIENT GETNAME", "$-1\r\n")
	w.want("CLIENT SETNAME me", "+OK\r\n")
	w.want("CLIENT GETNAME", "$2\r\nme\r\n")
	w.want("FENCE UNBIND", "+OK\r\n")
	w.wantPrefix("SET "+key+" 2", "-FENCED ")
	w.want("CLIENT GETNAME", "$2\r\nme\r\n")
	w.want("GET "+key, "$1\r\n1\r\n")
}

func TestTakeoverSevers(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	old := dial(t, r.addr)
	key := testenv.Name(t, "k")
	old.want("FENCE BIND "+r.election+" "+lead.Token.Reveal(), "+OK\r\n")
	old.send("BLPOP " + key + " 0")
	r.blocks(t, r.election)
	next := r.takeOver(t, lead)
	w := dial(t, r.addr)
	w.want("FENCE BIND "+next.Token.Reveal(), "+OK\r\n")
	w.want("RPUSH "+key+" x", ":1\r\n")
	got := old.rest()
	t.Log(got)
	if !strings.HasPrefix(got, "-FENCED ") || strings.Count(got, "\r\n") != 1 {
		t.Errorf("the old leader got %q", got)
	}
	w.want("LLEN "+key, ":1\r\n")
}

// A refused bind is told so, whatever follows it in the same packet.
func TestRefusedBindBeforeUnbind(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.lead(t)
	w := dial(t, r.addr)
	for range 20 {
		w.send("FENCE BIND "+strings.Repeat("x", 20), "FENCE UNBIND")
		if got := w.reply(); !strings.HasPrefix(got, "-FENCED ") {
			t.Fatalf("FENCE BIND: got %q", got)
		}
		if got := w.reply(); got != "+OK\r\n" {
			t.Fatalf("FENCE UNBIND: got %q", got)
		}
	}
}

// The client's own WATCH outlives a bind, one that fails and one that succeeds: what was
// to fail fails.
func TestWatchOutlivesABind(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	for _, db := range []string{"0", "3"} {
		key := testenv.Name(t, "k")
		w := dial(t, r.addr)
		w.want("SELECT "+db, "+OK\r\n")
		w.want("WATCH "+key, "+OK\r\n")
		w.wantPrefix("FENCE BIND "+strings.Repeat("x", 20), "-FENCED ")
		w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
		other := dial(t, r.redis.Addr)
		other.want("SELECT "+db, "+OK\r\n")
		other.want("SET "+key+" other", "+OK\r\n")
		w.want("MULTI", "+OK\r\n")
		w.want("SET "+key+" mine", "+QUEUED\r\n")
		w.want("EXEC", "*-1\r\n")
		w.want("GET "+key, "$5\r\nother\r\n")
	}
}

// In either protocol HELLO says the role and changes nothing.
func TestBindInBothProtocols(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	for _, protocol := range []string{"2", "3"} {
		w := dial(t, r.addr)
		w.ask("HELLO " + protocol + " SETNAME me")
		w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
		w.want("SET "+testenv.Name(t, "k")+" 1", "+OK\r\n")
		w.want("CLIENT GETNAME", "$2\r\nme\r\n")
		want := "*14\r\n"
		if protocol == "3" {
			want = "%7\r\n"
		}
		w.wantPrefix("HELLO", want) // the protocol is as it was
	}
}

// Without CLIENT, HELLO and GET by their names nobody is bound, and reading goes on.
func TestRenamedCommandsFailClosed(t *testing.T) {
	p := testenv.Redis(t)
	for _, name := range []string{"CLIENT", "HELLO", "GET"} {
		t.Run(name, func(t *testing.T) {
			renamed := testenv.Redis(t, "--rename-command", name, "RENAMED")
			// The fence's own server has them all: it is the wire that must notice.
			r := newRig(t, rigOptions{redis: p, config: func(c *resp.Config) { c.Upstream = renamed.Addr }})
			lead := r.lead(t)
			w := dial(t, r.addr)
			w.wantPrefix("FENCE BIND "+lead.Token.Reveal(), "-")
			w.wantPrefix("SET a 1", "-FENCE")
			w.want("EXISTS a", ":0\r\n")
			w.want("ECHO on", "$2\r\non\r\n")
		})
	}
}
