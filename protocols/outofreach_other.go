//go:build !linux

package protocols

import (
	"net"
	"time"
)

func unanswered(net.Conn) (waits bool, confirmed time.Duration) { return false, 0 }
