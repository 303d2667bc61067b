//go:build !unix

package pg

import (
	"net"
	"syscall"
)

func rawOf(net.Conn) syscall.RawConn { return nil }

func (b *buffer) tryRead(uintptr) bool { return true }
