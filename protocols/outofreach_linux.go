package protocols

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unanswered says whether a TCP connection waits for its peer to confirm what it sent, and
// how long ago the peer last confirmed anything. A peer that is there and takes nothing
// confirms that each time it is asked whether it will: then nothing is unanswered, though
// something is on its way.
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
	waits = info.Unacked > 0 && info.Last_data_sent < info.Last_ack_recv || info.Probes > 1
	return waits, time.Duration(info.Last_ack_recv) * time.Millisecond
}
