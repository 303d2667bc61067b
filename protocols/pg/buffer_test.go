package pg

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols"
)

// conns are two ends of a connection of each kind that sessions read from.
func conns(t testing.TB) map[string][2]net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p, q := net.Pipe() // stands for TLS: not a socket
	t.Cleanup(func() { a.Close(); b.Close(); p.Close(); q.Close() })
	return map[string][2]net.Conn{"socket": {a, b}, "no socket": {p, q}}
}

// What is read is what was sent, whatever is needed at once and however much is taken; at
// the end the buffer holds no memory, nor does it lend more than it needs.
func TestBuffer(t *testing.T) {
	for name, c := range conns(t) {
		t.Run(name, func(t *testing.T) {
			pools := &protocols.Chunks{Size: 512}
			b := newBuffer(pools, c[0])
			b.preset([]byte("greeting"))
			sent := make([]byte, 1<<20)
			for i := range sent {
				sent[i] = byte(rand.Uint32())
			}
			go func() {
				for rest := sent; len(rest) > 0; {
					n := min(len(rest), 1+rand.IntN(3000))
					if _, err := c[1].Write(rest[:n]); err != nil {
						return
					}
					rest = rest[n:]
				}
				c[1].Close()
			}()
			var got []byte
			for {
				need := 1 + rand.IntN(20_000)
				var err error
				for err == nil && len(b.bytes()) < need {
					err = b.fill(need)
				}
				if err != nil {
					if !errors.Is(err, io.EOF) {
						t.Fatal(err)
					}
					got = append(got, b.bytes()...)
					b.take(len(b.bytes()))
					break
				}
				if b.c != nil && len(b.c.B) > 2*20_000 {
					t.Fatalf("%d bytes of memory", len(b.c.B))
				}
				n := len(b.bytes())
				if rand.IntN(3) == 0 {
					n = rand.IntN(n + 1)
				}
				got = append(got, b.bytes()[:n]...)
				b.take(n)
			}
			if !bytes.Equal(got, append([]byte("greeting"), sent...)) {
				t.Errorf("%d bytes, not what was sent", len(got))
			}
			if b.c != nil && name == "socket" {
				t.Error("an empty buffer holds memory")
			}
		})
	}
}

// A session that waits for a small message has no memory to wait in; deadlines end the wait.
func TestBufferAtRest(t *testing.T) {
	for name, c := range conns(t) {
		t.Run(name, func(t *testing.T) {
			b := newBuffer(&protocols.Chunks{Size: DefaultBuffer}, c[0])
			for range 3 {
				go func() { _, _ = c[1].Write([]byte("message")) }()
				if err := b.fill(5); err != nil || string(b.bytes()) != "message" {
					t.Fatal(err, b.bytes())
				}
				b.take(7)
				if b.c != nil {
					t.Error("it holds memory")
				}
			}
			_ = c[0].SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if err := b.fill(5); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			_ = c[0].SetReadDeadline(time.Time{})
			go c[0].Close()
			if err := b.fill(5); !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
				t.Error(err)
			}
		})
	}
}

// A message costs no allocation, though the buffer gives its memory back after each.
func TestBufferAllocates(t *testing.T) {
	c := conns(t)["socket"]
	b := newBuffer(&protocols.Chunks{Size: DefaultBuffer}, c[0])
	message := make([]byte, 100)
	n := testing.AllocsPerRun(1000, func() {
		if _, err := c[1].Write(message); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < len(message); {
			if err := b.fill(5); err != nil {
				t.Fatal(err)
			}
			got += len(b.bytes())
			b.take(len(b.bytes()))
		}
	})
	if n >= 0.5 && !raceEnabled { // a collection empties the pool
		t.Errorf("%v allocations a message", n)
	}
}
