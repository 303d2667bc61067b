package protocols

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unanswered says whether a TCP connection waits for its peer to confirm what it sent, and
// how long ago the peer last confirmed anything.
func unanswered(c net.Conn) (waits bool, confirmed time.Duration) {
	s, ok := socket(c).(syscall.Conn)
	if !ok {
		return false, 0
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false, 0
	}
	var info *unix.TCPInfo
	if cerr := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); cerr != nil || err != nil {
		return false, 0
	}
	return info.Unacked > 0 || info.Probes > 0, time.Duration(info.Last_ack_recv) * time.Millisecond
}
