package protocols

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// trafficOf is that of a TCP connection; of another it is none. A peer that is there and takes
// nothing answers each time that it is asked whether it will.
func trafficOf(c net.Conn) traffic {
	s, ok := socket(c).(syscall.Conn)
	if !ok {
		return traffic{}
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return traffic{}
	}
	var info *unix.TCPInfo
	if cerr := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); cerr != nil || err != nil {
		return traffic{}
	}
	return traffic{
		// A kernel that does not count segments (before Linux 4.6) finds out nobody.
		waits: (info.Unacked > 0 || info.Probes > 1) && info.Segs_in > 0,
		// A probe of a closed window carries no data.
		sent: info.Data_segs_out + uint32(info.Probes), confirmed: info.Bytes_acked, acks: info.Segs_in - info.Data_segs_in,
	}
}
