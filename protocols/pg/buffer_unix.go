//go:build unix

package pg

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// rawOf is the socket of a connection, nil where it is none.
func rawOf(c net.Conn) syscall.RawConn {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// tryRead reads into memory that it gets for that, if there is something to read; else it
// gives the memory back, reports false and is called again when there is. So a session at
// rest costs no memory, and a busy one no system call more.
func (b *buffer) tryRead(fd uintptr) bool {
	c := b.pools.get(b.pools.size)
	var n int
	err := error(syscall.EINTR)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(int(fd), c.b)
	}
	if n > 0 {
		b.c, b.n, b.err = c, n, nil
		return true
	}
	b.pools.put(c)
	if errors.Is(err, syscall.EAGAIN) {
		return false
	}
	b.n, b.err = 0, io.EOF
	if err != nil {
		b.err = os.NewSyscallError("read", err)
	}
	return true
}
