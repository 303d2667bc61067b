package resp_test

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Whatever a client sends, a session that is bound is one whose connection carries the name,
// and what it sends last is answered last.
func TestNameUnderEveryState(t *testing.T) {
	for _, v := range servers.RedisVersions() {
		t.Run(v.Name, func(t *testing.T) {
			p := testenv.RedisVersion(t, v)
			direct := dial(t, p.Addr)
			for _, line := range []string{"ACL SETUSER app on >pw ~* &* +@all", "ACL SETUSER few on >pw ~* &* +@all -discard -multi -client|setname"} {
				direct.want(line, "+OK\r\n")
			}
			r := newRig(t, rigOptions{redis: p})
			token := r.lead(t).Token
			lines := []string{ // what is twice here comes more often
				"MULTI", "MULTI", "EXEC", "EXEC", "DISCARD", "RESET", "HELLO 2", "HELLO 3", "HELLO 3 SETNAME mine", "HELLO 2 SETNAME \"\"", "HELLO 4", "HELLO 3 SETNAME a b",
				"CLIENT SETNAME other", "CLIENT SETNAME \"\"", "CLIENT SETNAME \"a b\"", "CLIENT GETNAME", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY ON", "CLIENT REPLY ON", "CLIENT REPLY x",
				"AUTH " + r.user("app", token) + " pw", "AUTH " + r.user("few", token) + " pw", "AUTH app pw", "AUTH few pw", "AUTH app wrong", "AUTH " + r.user("app", token) + " wrong",
				"HELLO 3 AUTH " + r.user("app", token) + " pw SETNAME x", "HELLO 2 AUTH few pw SETNAME y",
				"FENCE BIND " + token.Reveal(), "FENCE BIND " + token.Reveal(), "FENCE BIND wrong-wrong-wrong-wrong", "FENCE UNBIND", "FENCE STATUS",
				"SUBSCRIBE c", "UNSUBSCRIBE", "WATCH k", "SELECT 1", "SELECT 0", "SET k 1", "SET k 1", "NOSUCH", "SWAPDB 0 1", "CLIENT SETNAME fenceproxy:x", "EVAL \"return 1\" 0",
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			bound := 0
			for n := range 150 {
				w := dial(t, r.addr)
				w.send("CLIENT ID")
				id := strings.Trim(w.reply(), ":\r\n")
				var sent []string
				for range 1 + rnd.IntN(25) {
					sent = append(sent, lines[rnd.IntN(len(lines))])
				}
				mark := "mark" + strconv.Itoa(n)
				w.send(append(sent, "EXEC", "UNSUBSCRIBE", "CLIENT REPLY ON", "FENCE STATUS", "ECHO "+mark)...)
				status := ""
				for !strings.Contains(status, mark) {
					s, err := w.tryReply()
					if err != nil {
						t.Fatalf("%v after %q", err, sent)
					}
					if strings.Contains(s, "$5\r\nstate\r\n") || strings.Contains(s, mark) {
						status += s
					}
				}
				if i := strings.LastIndex(status, "state\r\n$5\r\nbound"); i >= 0 && !strings.Contains(status[i+5:], "state\r\n") {
					bound++
					name := direct.ask("CLIENT LIST ID " + id)
					if !strings.Contains(name, "name=fenceproxy:"+r.election+":") {
						t.Errorf("bound without the name after %q: %s", sent, name)
					}
				}
				_ = w.Close()
			}
			if bound == 0 {
				t.Error("none was bound at the end")
			}
			t.Logf("%d were bound at the end", bound)
		})
	}
}

func (w *wire) tryReply() (string, error) {
	_ = w.SetReadDeadline(time.Now().Add(patience))
	var b bytes.Buffer
	err := readReply(w.r, &b)
	return b.String(), err
}
