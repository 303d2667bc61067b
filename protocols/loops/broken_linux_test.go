package loops_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceproxy/fenceproxy/protocols/loops"
)

// reset ends a connection as a peer does that is gone without a word.
func reset(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// The kernel says once why a connection broke, and then that it is at its end. Whoever reads next
// must not take that for the peer's orderly end: not behind a loop's read, nor behind a write.
func TestBrokenStaysBroken(t *testing.T) {
	for name, first := range map[string]func(up *loops.Conn) error{
		"read":  func(up *loops.Conn) error { _, err := up.TryRead(make([]byte, 8)); return err },
		"write": func(up *loops.Conn) error { _, err := up.TryWrite([]byte("x")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			_, server, _, up := pair(t, start(t, 1), "tcp")
			reset(t, server)
			if err := up.Readable(); err != nil {
				t.Fatal(err)
			}
			if err := first(up); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("first: %v", err)
			}
			if _, err := up.Read(make([]byte, 8)); !errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
				t.Errorf("then: %v", err)
			}
			if _, err := up.Write([]byte("x")); err == nil {
				t.Error("it can be written to")
			}
		})
	}
}

// behalf is what the PROXY protocol makes of a connection.
type behalf struct{ net.Conn }

func (b behalf) Behalf() net.Conn { return b.Conn }

// Who accepted a connection closes what has it now, also where that was made another's in between.
func TestCloseBelow(t *testing.T) {
	l := start(t, 1)
	a, far := sockets(t, "tcp")
	b, far2 := sockets(t, "tcp")
	ca, cb, err := l.Pair(behalf{a}, b)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{far, far2, cb} {
		defer c.Close()
	}
	_ = l.Close(a)
	if err := ca.Close(); !errors.Is(err, net.ErrClosed) {
		_ = ca.Close()
		t.Errorf("it was left open: %v", err)
	}
}

// A connection that was closed while it was taken over stays closed.
func TestClosedBefore(t *testing.T) {
	l := start(t, 1)
	a, far := sockets(t, "tcp")
	b, far2 := sockets(t, "tcp")
	defer far.Close()
	defer far2.Close()
	defer b.Close()
	_ = l.Close(a)
	if _, _, err := l.Pair(a, b); err == nil {
		t.Error("a closed connection was taken over")
	}
}

// A read stops short of urgent data, and no event tells of what comes behind them.
func TestUrgent(t *testing.T) {
	client, _, down, _ := pair(t, start(t, 1), "tcp")
	raw, err := client.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		for _, piece := range []struct {
			s     string
			flags int
		}{{"ab", 0}, {"!", unix.MSG_OOB}, {"cd", 0}} {
			if err := unix.Sendto(int(fd), []byte(piece.s), piece.flags, nil); err != nil {
				t.Error(err)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	_ = down.SetReadDeadline(time.Now().Add(10 * time.Second))
	got := make([]byte, 16)
	n, err := down.Read(got)
	for err == nil && n < 4 {
		var m int
		m, err = down.Read(got[n:])
		n += m
	}
	if string(got[:n]) != "abcd" {
		t.Errorf("%q, %v", got[:n], err)
	}
}
