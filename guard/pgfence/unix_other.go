//go:build !linux

package pgfence

import "net"

// listenerOf is not known here.
func listenerOf(net.Conn) int { return 0 }
