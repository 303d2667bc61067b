package load

import (
	"io"
	"net"
	"time"
)

// patience is how long an answer may take.
const patience = 30 * time.Second

// A stream is a connection that one goroutine uses, and that another may interrupt.
type stream interface {
	io.ReadWriteCloser
	// interrupt ends a Read or Write that goes on, and all later ones.
	interrupt()
}

// A plain stream is a net.Conn as it is: with TLS, or where there is nothing better.
type plain struct{ net.Conn }

// Read reads what arrives within the patience.
func (p plain) Read(b []byte) (int, error) {
	if err := p.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

func (p plain) interrupt() { _ = p.Close() }
