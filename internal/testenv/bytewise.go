package testenv

import (
	"fmt"
	"net"
)

// Bytewise is a listener whose connections read one byte at a time: every message comes
// split at every byte.
type Bytewise struct{ net.Listener }

// Accept accepts a connection.
func (l Bytewise) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return ReadBytewise(c)
}

// ReadBytewise makes a TCP connection one that reads one byte at a time.
func ReadBytewise(c net.Conn) (net.Conn, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("a %T is no TCP connection", c)
	}
	return bytewise{tcp}, nil
}

type bytewise struct{ *net.TCPConn }

func (c bytewise) Read(b []byte) (int, error) { return c.TCPConn.Read(b[:min(1, len(b))]) }
