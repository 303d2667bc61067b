package protocols

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// looks looks at a connection until it is given up, or until most; 100 times in the time
// after which keepalive would give up.
func looks(t *testing.T, c net.Conn, after, most time.Duration) (up bool, took time.Duration) {
	t.Helper()
	k := net.KeepAliveConfig{Idle: after / 2, Interval: after / 4, Count: 2}
	var o OutOfReach
	tick := time.NewTicker(after / 100)
	defer tick.Stop()
	start := time.Now()
	for now := range tick.C {
		took = now.Sub(start)
		if o.Look(c, k, now) {
			return true, took
		}
		if took > most {
			return false, took
		}
	}
	return false, took
}

// fillUp writes until the peer takes no more.
func fillUp(c net.Conn) {
	_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for {
		if _, err := c.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
}

// A peer that is cut off while something is on its way to it is found out; keepalive alone
// would not see it, for it asks only where nothing is on its way.
func TestOutOfReach(t *testing.T) {
	const after = 600 * time.Millisecond
	a, b := tcpPair(t)
	testenv.Deafen(t, b)
	if _, err := a.Write([]byte("something")); err != nil {
		t.Fatal(err)
	}
	if up, took := looks(t, &proxiedConn{Conn: a}, after, 2*after); !up || took < after {
		t.Errorf("given up: %v, after %v", up, took)
	}
}

// A peer that is cut off goes on sending what nobody confirms to it. That confirms nothing
// either.
func TestOutOfReachAndTalking(t *testing.T) {
	const after = 600 * time.Millisecond
	a, b := tcpPair(t)
	testenv.Deafen(t, b)
	for _, c := range []net.Conn{a, b} {
		if _, err := c.Write([]byte("something")); err != nil {
			t.Fatal(err)
		}
	}
	if up, took := looks(t, a, after, 3*after); !up || took < after {
		t.Errorf("given up: %v, after %v", up, took)
	}
}

// A peer that is there is not given up: at rest, after a while at rest, or while it does
// not read and its window is closed.
func TestWithinReach(t *testing.T) {
	const after = 600 * time.Millisecond
	a, b := tcpPair(t)
	if up, _ := looks(t, a, after, 2*after); up {
		t.Error("given up at rest")
	}
	fillUp(a)
	if up, _ := looks(t, a, after, 2*after); up {
		t.Error("given up while it does not read")
	}
	a.CloseWrite()
	if _, err := io.Copy(io.Discard, b); err != nil {
		t.Error(err)
	}
	// Cut off while its window is closed, it is.
	a, b = tcpPair(t)
	fillUp(a)
	testenv.Deafen(t, b)
	if up, took := looks(t, a, after, 20*time.Second); !up || took < after {
		t.Errorf("given up: %v, after %v", up, took)
	}
	p, q := net.Pipe()
	defer q.Close()
	defer p.Close()
	var o OutOfReach
	if o.Look(p, DefaultKeepAlive, time.Now()) {
		t.Error("a pipe is out of reach")
	}
}
