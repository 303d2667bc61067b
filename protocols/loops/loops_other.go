//go:build !linux

package loops

import (
	"io"
	"net"
)

// Loops are none here: only Linux has what they need.
type Loops struct{}

// Start starts none here.
func Start(int) (*Loops, error) { return nil, ErrUnsupported }

// Stop does nothing here.
func (l *Loops) Stop() {}

// Pair takes over nothing here.
func (l *Loops) Pair(_, _ net.Conn) (*Conn, *Conn, error) { return nil, nil, ErrUnsupported }

// Close closes a connection.
func (l *Loops) Close(c net.Conn) error { return c.Close() }

// A Conn is a connection that was taken over: there is none here.
type Conn struct{ net.Conn }

// CloseWrite does nothing here.
func (c *Conn) CloseWrite() error { return ErrUnsupported }

// Readable does nothing here.
func (c *Conn) Readable() error { return ErrUnsupported }

// Each does nothing here.
func (c *Conn) Each(func() bool) error { return ErrUnsupported }

// EachThen does nothing here.
func (c *Conn) EachThen(func() bool, func()) (bool, error) { return false, ErrUnsupported }

// TryRead reads nothing here.
func (c *Conn) TryRead([]byte) (int, error) { return 0, io.EOF }

// TryWrite writes nothing here.
func (c *Conn) TryWrite([]byte) (int, error) { return 0, ErrUnsupported }
