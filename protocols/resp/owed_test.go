package resp_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A session that loses its term says why in the place of a reply that is owed. To a client
// that waits for none it says nothing: libraries are put out of step by what comes unasked.
func TestLastWords(t *testing.T) {
	key := testenv.Name(t, "k")
	long := bulks("SET", key, strings.Repeat("x", 100_000))
	for _, c := range []struct {
		name string
		asks []string // each with one reply, which is read
		more int      // replies to the last of them beyond the first
		sent string   // in the end, and not answered
	}{
		{name: "nothing asked"},
		{name: "answered", asks: []string{"SET " + key + " 1", "INCR " + key, "LPOP " + key, "NOSUCHCOMMAND", long[:len(long)-2]}},
		{name: "refused", asks: []string{"CLIENT KILL ID 1", "FENCE STATUS", "FENCE NOTHING"}},
		{name: "named", asks: []string{"CLIENT SETNAME me", "CLIENT GETNAME", "HELLO 3 SETNAME you"}},
		{name: "in MULTI", asks: []string{"MULTI", "SET " + key + " 1"}},
		{name: "subscribed", asks: []string{"SUBSCRIBE a b c"}, more: 2},
		{name: "subscribed no more", asks: []string{"PSUBSCRIBE a*", "PUNSUBSCRIBE"}},
		{name: "subscribed in RESP3", asks: []string{"HELLO 3", "PING", "SUBSCRIBE a b"}, more: 1},
		{name: "monitoring", asks: []string{"MONITOR"}},
		{name: "skipped", asks: []string{"CLIENT REPLY SKIP\r\nPING\r\nPING"}},
		{name: "silent", asks: []string{"PING\r\nCLIENT REPLY OFF\r\nSET " + key + " 1"}},
		{name: "blocked", sent: "BLPOP none 0"},
		{name: "blocked after a skipped one", sent: "CLIENT REPLY SKIP\r\nPING\r\nBLPOP none 0\r\nPING"},
		{name: "blocked after subscriptions", asks: []string{"HELLO 3", "SUBSCRIBE a", "PING"}, sent: "BLPOP none 0"},
		{name: "in the middle of a command", asks: []string{"PING\r\n*2\r\n$3\r\nGET"}, sent: "$100000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			lead := r.lead(t)
			w := dial(t, r.addr)
			w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
			for _, ask := range c.asks {
				w.ask(ask)
			}
			for range c.more {
				w.reply()
			}
			if c.sent != "" {
				w.send(c.sent)
			}
			eventually(t, "the command blocks", func() bool {
				return !strings.Contains(c.sent, "BLPOP") || strings.Contains(r.control.ClientList(t.Context()).Val(), "cmd=blpop")
			})
			next := r.takeOver(t, lead)
			dial(t, r.addr).want("FENCE BIND "+next.Token.Reveal(), "+OK\r\n")
			if got := w.rest(); strings.Contains(got, "-FENCED ") != (c.sent != "") {
				t.Errorf("got %q", got)
			}
		})
	}
}
