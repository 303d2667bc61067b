package zookeeper

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A tap is what a backend dials through: it sees what is written, can lose replies,
// and learns a session's password.
type tap struct {
	down atomic.Bool // no server can be reached

	mu     sync.Mutex
	writes [][]byte
	greet  []byte      // the server's latest greeting
	lose   func() bool // after a transaction was written: whether its reply is lost, and the connection
	conns  []net.Conn
}

func (p *tap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if p.down.Load() {
		return nil, errors.New("the network is down")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	return &tapped{Conn: c, tap: p}, nil
}

// cut takes the network down and every connection with it.
func (p *tap) cut() {
	p.down.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
}

// wrote returns what was written since the last time.
func (p *tap) wrote() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.writes
	p.writes = nil
	return w
}

type tapped struct {
	net.Conn
	tap     *tap
	greeted int
	deaf    atomic.Bool
}

func (c *tapped) Write(b []byte) (int, error) {
	const opMulti = 14
	c.tap.mu.Lock()
	c.tap.writes = append(c.tap.writes, bytes.Clone(b))
	if len(b) > 12 && binary.BigEndian.Uint32(b[8:]) == opMulti && c.tap.lose != nil && c.tap.lose() {
		c.deaf.Store(true)
	}
	c.tap.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		c.Conn.Close() // the server has answered
		return 0, io.ErrUnexpectedEOF
	}
	const greeting = 4 + 4 + 4 + 8 + 4 + 16
	if c.greeted < greeting {
		c.tap.mu.Lock()
		if c.greeted == 0 {
			c.tap.greet = nil
		}
		c.tap.greet = append(c.tap.greet, b[:n]...)
		c.tap.mu.Unlock()
		c.greeted += n
	}
	return n, err
}

// endSession closes the tapped session from another connection, as an operator or
// another client with its password can.
func (p *tap) endSession(t testing.TB, addr string) {
	t.Helper()
	p.mu.Lock()
	greet := bytes.Clone(p.greet)
	p.mu.Unlock()
	if len(greet) < 40 {
		t.Fatalf("a greeting of %d bytes", len(greet))
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hello := binary.BigEndian.AppendUint32(nil, 0)  // protocol version
	hello = binary.BigEndian.AppendUint64(hello, 0) // last zxid seen
	hello = append(hello, greet[8:12]...)           // timeout
	hello = append(hello, greet[12:40]...)          // session id, password
	out := binary.BigEndian.AppendUint32(nil, uint32(len(hello)))
	out = append(out, hello...)
	out = append(out, 0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5) // close session
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil { // the server answers and hangs up
		t.Log(err)
	}
}
