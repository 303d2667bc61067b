//go:build unix

package redis

import (
	"errors"
	"net"
	"syscall"
)

// quiet reports whether nothing has come on a connection, not even its end, without
// taking it. On one that cannot be asked it is taken for granted.
func quiet(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	r, err := s.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = r.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		nothing = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
	})
	return err == nil && nothing
}
