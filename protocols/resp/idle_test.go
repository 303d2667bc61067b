package resp_test

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// Idle sessions end; those that wait for the server, that listen, or that do something now
// and then, go on.
func TestIdleSessionsEnd(t *testing.T) {
	const limit = 2 * time.Second
	r := newRig(t, rigOptions{config: func(c *resp.Config) { c.IdleTimeout = limit }})
	lead := r.lead(t)
	idle, leading, inMulti := dial(t, r.addr), dial(t, r.addr), dial(t, r.addr)
	blocked, subscribed, monitor := dial(t, r.addr), dial(t, r.addr), dial(t, r.addr)
	idle.want("PING", "+PONG\r\n")
	leading.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	inMulti.want("MULTI", "+OK\r\n")
	blocked.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	blocked.send("ECHO before", "BLPOP nothing 0")
	blocked.reply()
	subscribed.wantPrefix("SUBSCRIBE c", "*3\r\n")
	monitor.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	monitor.want("MONITOR", "+OK\r\n")
	busy := dial(t, r.addr)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, w := range []*wire{idle, leading, inMulti} {
			if got := w.rest(); got != "" {
				t.Errorf("an idle session is told %q", got)
			}
		}
	}()
	tick := time.NewTicker(limit / 4)
	defer tick.Stop()
	for ended := false; !ended; {
		busy.want("PING", "+PONG\r\n")
		select {
		case <-tick.C:
		case <-done:
			ended = true
		}
	}
	busy.want("PING", "+PONG\r\n")
	subscribed.want("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	if err := r.control.RPush(t.Context(), "nothing", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if got := blocked.reply(); got != "*2\r\n$7\r\nnothing\r\n$1\r\nx\r\n" {
		t.Errorf("got %q", got)
	}
	monitor.reply()
}
