//go:build !unix

package protocols

import (
	"io"
	"net"
	"syscall"
)

// Raw is the socket of a connection: none here.
func Raw(net.Conn) syscall.RawConn { return nil }

// ReadRaw reads nothing here.
func ReadRaw(uintptr, []byte) (n int, ready bool, err error) { return 0, true, io.EOF }
