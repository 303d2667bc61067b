package testenv

import (
	"net"
	"sync"
	"testing"
)

// A Forwarder stands before a server, and can go silent: what either side
// sends is then held back, with no reset, as by a network that drops packets.
type Forwarder struct {
	// Addr is the host:port that it listens on.
	Addr string

	mu    sync.Mutex
	pass  chan struct{} // closed while bytes pass
	conns []net.Conn
	over  chan struct{}
}

// Forward starts a forwarder before the server at addr, for the length of the test.
func Forward(t testing.TB, addr string) *Forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Forwarder{Addr: l.Addr().String(), pass: make(chan struct{}), over: make(chan struct{})}
	close(f.pass)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", addr)
			if err != nil {
				c.Close()
				continue
			}
			f.mu.Lock()
			f.conns = append(f.conns, c, up)
			f.mu.Unlock()
			wg.Go(func() { f.copy(up, c) })
			wg.Go(func() { f.copy(c, up) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		close(f.over)
		f.mu.Lock()
		for _, c := range f.conns {
			c.Close()
		}
		f.mu.Unlock()
		wg.Wait()
	})
	return f
}

func (f *Forwarder) copy(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		f.mu.Lock()
		pass := f.pass
		f.mu.Unlock()
		select {
		case <-pass:
		case <-f.over:
			return
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// Silence holds everything back from now on.
func (f *Forwarder) Silence() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.passing() {
		f.pass = make(chan struct{})
	}
}

// Speak lets everything pass again, what was held back first.
func (f *Forwarder) Speak() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.passing() {
		close(f.pass)
	}
}

func (f *Forwarder) passing() bool {
	select {
	case <-f.pass:
		return true
	default:
		return false
	}
}
