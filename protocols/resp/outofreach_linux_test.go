package resp_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// A client that the network cuts off loses its session: at rest, with an answer on its way
// to it, and while a command of its blocks. So does one whose server is cut off.
func TestOutOfReach(t *testing.T) {
	var mu sync.Mutex
	var upstreams []net.Addr
	addr := testenv.SharedRedis(t).Addr
	r := newRig(t, rigOptions{config: func(c *resp.Config) {
		c.KeepAlive = net.KeepAliveConfig{Idle: time.Second, Interval: time.Second, Count: 1}
		by := resp.Dialer{KeepAlive: c.KeepAlive}
		c.Dial = func(ctx context.Context) (net.Conn, error) {
			conn, err := by.Dial(ctx, addr)
			if err == nil {
				mu.Lock()
				upstreams = append(upstreams, conn.LocalAddr())
				mu.Unlock()
			}
			return conn, err
		}
	}})
	lead := r.lead(t)
	there := func(id string) bool {
		list, err := r.control.Do(t.Context(), "CLIENT", "LIST", "ID", id).Text()
		return err == nil && strings.Contains(list, "id="+id)
	}
	var ids []string
	for _, last := range []string{"", "BLPOP none 0.5\r\n", "BLPOP none 0\r\n"} {
		w := dial(t, r.addr)
		w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
		id := strings.Trim(w.ask("CLIENT ID"), ":\r\n")
		w.raw([]byte(last))
		testenv.Deafen(t, w.Conn.(*net.TCPConn))
		ids = append(ids, id)
	}
	w := dial(t, r.addr)
	w.want("PING", "+PONG\r\n")
	mu.Lock()
	last := upstreams[len(upstreams)-1]
	mu.Unlock()
	testenv.DeafenFrom(t, last)
	w.send("PING")
	for _, id := range ids {
		eventually(t, "the server's session has ended", func() bool { return !there(id) })
	}
	if got := w.rest(); got != "" {
		t.Errorf("got %q", got)
	}
	if log := r.log.String(); !strings.Contains(log, "the server is out of reach") {
		t.Error("the log says nothing of it")
	}
}
