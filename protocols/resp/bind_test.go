package resp_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
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

// A MULTI that the server refuses does not hide the WATCH after it: a bind would consume
// it, and the transaction that was to fail would succeed.
func TestBindDoesNotLoseWatchedKeys(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	key := testenv.Name(t, "k")
	w := dial(t, r.addr)
	w.wantPrefix("MULTI x", "-ERR wrong number")
	w.want("WATCH "+key, "+OK\r\n")
	w.wantPrefix("DISCARD", "-ERR DISCARD without")
	w.wantPrefix("FENCE BIND "+lead.Token.Reveal(), "-ERR FENCE BIND would lose the keys")
	w.want("UNWATCH", "+OK\r\n")
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	w.want("MULTI", "+OK\r\n")
	w.wantPrefix("WATCH "+key, "-ERR")
	w.ask("EXEC") // some servers abort it
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
}
