package testenv

import (
	"io"
	"sync"
	"testing"
)

// A Forwarder stands before a server, and can go silent: what either side
// sends is then held back, with no reset, as by a network that drops packets.
type Forwarder struct {
	// Addr is the host:port that it listens on.
	Addr string

	mu   sync.Mutex
	pass chan struct{} // closed while bytes pass
	over chan struct{}
}

// Forward starts a forwarder before the server at addr, for the length of the test.
func Forward(t testing.TB, addr string) *Forwarder {
	t.Helper()
	f := &Forwarder{pass: make(chan struct{}), over: make(chan struct{})}
	close(f.pass)
	var cut func()
	f.Addr, cut = RelayTCP(t, addr, f.carry, f.carry)
	t.Cleanup(func() { // before the relay waits
		close(f.over)
		cut()
	})
	return f
}

func (f *Forwarder) carry(to io.Writer, from io.Reader) {
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
