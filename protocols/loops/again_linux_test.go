package loops

import (
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection of which there is always more takes one turn between two waits, however many
// events tell of it: the others' would come later and later.
func TestOneTurnEach(t *testing.T) {
	l := new(loop)
	c := newConn(l, -1, new(net.TCPAddr), new(net.TCPAddr))
	turns := 0
	c.in.each = func() bool { turns++; return true } // and there is more
	for range 5 {
		c.happened(l, unix.EPOLLIN)
	}
	if len(l.again) != 1 {
		t.Errorf("it stands in line %d times after %d turns", len(l.again), turns)
	}
}

// A read stops short of urgent data, and no further event tells of what is behind them where all
// of it came with the first.
func TestUrgentAtOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	descriptor := func(c net.Conn, f func(fd int)) {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	descriptor(client, func(fd int) {
		for _, piece := range []struct {
			s     string
			flags int
		}{{"ab", 0}, {"!", unix.MSG_OOB}, {"cd", 0}} {
			if err := unix.Sendto(fd, []byte(piece.s), piece.flags, nil); err != nil {
				t.Error(err)
			}
		}
		for { // until the other side has it all
			if n, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ); n == 0 || err != nil {
				return
			}
			runtime.Gosched()
		}
	})
	descriptor(server, func(fd int) {
		l := new(loop)
		c := newConn(l, fd, server.LocalAddr(), server.RemoteAddr())
		c.happened(l, unix.EPOLLIN|unix.EPOLLPRI)
		got := ""
		for b := make([]byte, 16); ; {
			n, err := c.TryRead(b)
			got += string(b[:n])
			if n == 0 || err != nil {
				break
			}
		}
		if got != "abcd" {
			t.Errorf("%q", got)
		}
	})
}

// Close leaves the file descriptor to the last call that uses it.
func TestCloseWaitsForUses(t *testing.T) {
	l, err := newLoop()
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	peerSeesEnd := func() bool {
		n, err := unix.Read(pair[1], make([]byte, 1))
		return n == 0 && err == nil
	}
	c := newConn(l, pair[0], new(net.UnixAddr), new(net.UnixAddr))
	if err := l.add(c); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !c.enter() {
			t.Fatal("an open connection may not be used")
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if c.enter() {
		t.Error("a use begins after Close")
	}
	c.leave()
	if peerSeesEnd() {
		t.Error("closed while a call uses it")
	}
	c.leave()
	if !peerSeesEnd() {
		t.Error("not closed after the last use")
	}
}
