//go:build !linux

package load

import (
	"net"
	"time"
)

// newStream takes a connection over.
func newStream(c net.Conn) (stream, error) { return plain{c}, nil }

// ownCPU is not known here.
func ownCPU() float64 { return 0 }

// waitUntil returns at t, or a little later.
func waitUntil(t time.Time) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	<-timer.C
}

func sharpen() {}
