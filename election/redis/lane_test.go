package redis

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Lanes that are too old are not used again.
func TestLanesGrowOld(t *testing.T) {
	p := testenv.SharedRedis(t)
	for name, c := range map[string]struct {
		idle, life time.Duration
		dials      int32
	}{
		"Young": {time.Hour, time.Hour, 1},
		"Never": {-1, -1, 1},
		"Idle":  {1, 0, 5},
		"Life":  {0, 1, 5},
	} {
		t.Run(name, func(t *testing.T) {
			var dials atomic.Int32
			b := patient(t, goredis.Options{Addr: p.Addr, ConnMaxIdleTime: c.idle, ConnMaxLifetime: c.life,
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials.Add(1)
					return new(net.Dialer).DialContext(ctx, network, addr)
				}})
			for range 5 {
				if _, err := b.Status(t.Context(), "e"); err != nil {
					t.Fatal(err)
				}
			}
			if n := dials.Load(); n != c.dials {
				t.Errorf("%d dials", n)
			}
		})
	}
}

// A connection on which something has come that nobody asked for, or its end, is not
// used again: what comes may be an answer to a call of the past.
func TestQuiet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, say := range map[string]func(net.Conn) error{
		"Something": func(c net.Conn) error { _, err := c.Write([]byte("+OK\r\n")); return err },
		"End":       net.Conn.Close,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			peer, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil { // as of an earlier call
				t.Fatal(err)
			}
			if !quiet(c) {
				t.Error("not quiet at first")
			}
			if err := say(peer); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, "that it is not", func() bool { return !quiet(c) })
		})
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if !quiet(a) {
		t.Error("a connection that cannot be asked")
	}
}
