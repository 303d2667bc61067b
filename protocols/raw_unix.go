//go:build unix

package protocols

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// Raw is the socket of a connection, nil where it is none.
func Raw(c net.Conn) syscall.RawConn {
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

// ReadRaw reads once from a socket, in the function that syscall.RawConn.Read calls. It
// reports false where there is nothing to read: the function is called again when there is.
// So memory can be got when it is needed, and a session at rest costs none.
func ReadRaw(fd uintptr, b []byte) (n int, ready bool, err error) {
	err = error(syscall.EINTR)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(int(fd), b)
	}
	switch {
	case n > 0:
		return n, true, nil
	case errors.Is(err, syscall.EAGAIN):
		return 0, false, nil
	case err != nil:
		return 0, true, os.NewSyscallError("read", err)
	}
	return 0, true, io.EOF
}
