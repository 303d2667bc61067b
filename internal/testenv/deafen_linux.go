package testenv

import (
	"net"
	"os"
	"strconv"
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
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = deafen(int(fd)) }); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
}

func deafen(fd int) error {
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
}

// DeafenFrom is Deafen for the connection of this process that comes from an address, whoever
// has it.
func DeafenFrom(t testing.TB, from net.Addr) {
	t.Helper()
	port := 0
	if a, ok := from.(*net.TCPAddr); ok {
		port = a.Port
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range open {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		local, err := unix.Getsockname(fd)
		if a, ok := local.(*unix.SockaddrInet4); err == nil && ok && a.Port == port {
			if err := deafen(fd); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no connection comes from %v", from)
}
