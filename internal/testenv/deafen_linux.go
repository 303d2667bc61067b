package testenv

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Deafen makes the kernel drop all that comes for a connection of the test's own: its peer
// meets what it would meet behind a network that is cut.
func Deafen(t testing.TB, c syscall.Conn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	var serr error
	if err := raw.Control(func(fd uintptr) {
		serr = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	}); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
}
