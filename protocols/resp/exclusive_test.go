package resp_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// newExclusiveRig is a rig whose listener serves bound sessions alone, one at a time or those
// of one client.
func newExclusiveRig(t *testing.T, shared bool) *rig {
	t.Helper()
	b := memory.New()
	x, err := guard.NewExclusive(b, shared, guard.GateConfig{Name: "redis", PermitFor: 5 * time.Second, ValidateEvery: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close) // after the server's
	return newRig(t, rigOptions{config: func(c *resp.Config) { c.RequireBound, c.Exclusive = true, x }})
}

func TestBindRequiredAndExclusive(t *testing.T) {
	for _, shared := range []bool{false, true} {
		r := newExclusiveRig(t, shared)
		w := dial(t, r.addr)
		w.wantPrefix("GET a", "-FENCED this listener serves bound sessions alone")
		w.want("PING", "+PONG\r\n")
		held := r.lead(t)
		w.want("FENCE BIND "+r.election+" "+held.Token.Reveal(), "+OK\r\n")
		w.want("SET "+r.election+" 1", "+OK\r\n")

		second := dial(t, r.addr)
		if shared {
			second.want("FENCE BIND "+r.election+" "+held.Token.Reveal(), "+OK\r\n")
			second.want("INCR "+r.election, ":2\r\n")
		} else {
			second.send("FENCE BIND " + r.election + " " + held.Token.Reveal())
			got := second.reply()
			if !strings.HasPrefix(got, "-FENCED refused: election") || !strings.Contains(got, `bound already`) ||
				!strings.Contains(got, `held by "worker"`) || !strings.Contains(got, "exclusive") || strings.Contains(got, held.Token.Reveal()) {
				t.Errorf("%q", got)
			}
			if _, err := second.r.ReadByte(); err != io.EOF {
				t.Errorf("not closed: %v", err)
			}
		}
		_ = w.Close()
		third := dial(t, r.addr)
		third.want("FENCE BIND "+r.election+" "+held.Token.Reveal(), "+OK\r\n")
		next := r.takeOver(t, held)
		fourth := dial(t, r.addr)
		fourth.want("FENCE BIND "+r.election+" "+next.Token.Reveal(), "+OK\r\n")
		fourth.want("SET "+r.election+" 4", "+OK\r\n")
	}
}
