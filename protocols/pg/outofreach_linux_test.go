package pg

import (
	"net"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A client that the network cuts off, in a transaction that holds a lock, loses its
// session and with it the lock: at rest, and with an answer on its way to it.
func TestClientOutOfReach(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.KeepAlive = net.KeepAliveConfig{Idle: time.Second, Interval: time.Second, Count: 1}
	})
	for _, last := range []string{"", "SELECT pg_sleep(0.2)"} {
		c := r.leader()
		mustExec(t, c, "BEGIN")
		mustExec(t, c, "LOCK TABLE t")
		held := func() bool {
			return queryString(t, r.admin, "SELECT count(*)::text FROM pg_locks WHERE pid=$1 AND mode='AccessExclusiveLock'", int32(c.PgConn().PID())) != "0"
		}
		if !held() {
			t.Fatal("no lock")
		}
		hijacked, err := c.PgConn().Hijack()
		if err != nil {
			t.Fatal(err)
		}
		conn := hijacked.Conn.(*net.TCPConn)
		defer conn.Close()
		if last != "" {
			if _, err := conn.Write(appendQuery(nil, last)); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Deafen(t, conn)
		eventually(t, func() bool { return !held() })
	}
}
