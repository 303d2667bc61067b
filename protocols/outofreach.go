package protocols

import (
	"net"
	"time"
)

// An OutOfReach finds out a peer that a network has cut off while something is on its way
// to it: keepalive probes are sent on idle connections only, and the kernel goes on sending
// for a quarter of an hour. TCP_USER_TIMEOUT would do so too, but it also ends the connection
// of a peer that is there and only does not read.
//
// The zero value is ready. It needs Linux; elsewhere it finds out nobody.
type OutOfReach struct {
	since  time.Time // nothing that was sent was confirmed since
	looked time.Time
	was    traffic
}

// traffic is how far a connection's two ends have come, as the kernel counts.
type traffic struct {
	waits     bool   // something is on its way to the peer
	sent      uint32 // segments with data, sent again or not
	confirmed uint64 // bytes
	// acks are the segments that came without data: they answer what the peer has already,
	// or has no room for. A peer that is cut off sends none, but what it goes on sending again
	// still comes.
	acks uint32
}

// Look reports whether nothing was confirmed for so long that keepalive would have given up.
// It is to be called now and then.
func (o *OutOfReach) Look(c net.Conn, k net.KeepAliveConfig, now time.Time) bool {
	after := k.Idle + time.Duration(k.Count)*k.Interval
	if now.Sub(o.looked) < after/10 {
		return false
	}
	o.looked = now
	t := trafficOf(c)
	was := o.was
	switch {
	case !t.waits, o.since.IsZero(), t.confirmed != was.confirmed, t.acks != was.acks:
		o.was = t
		fallthrough
	case t.sent == was.sent: // nothing since the last confirmation
		o.since = now
		return false
	}
	return now.Sub(o.since) >= after
}

// socket is the connection below those that know theirs: TLS, or one on somebody's behalf.
func socket(c net.Conn) net.Conn {
	for {
		n, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = n.NetConn()
	}
}
