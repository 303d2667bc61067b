package resp

import (
	"time"

	"github.com/fenceproxy/fenceproxy/protocols"
)

// A sweeper ends the sessions of clients and servers that a network has cut off.
type sweeper = protocols.Sweeper[*session, *reach]

// A reach is what is known of whether a session's peers are there, and of its moves.
type reach struct {
	client, upstream protocols.OutOfReach
	moves            uint64
}

const sweepEvery = time.Second

// sweep ends the session if a side is out of reach. It closes sockets, never TLS, which
// would wait to say goodbye.
func sweep(now time.Time, x *session, r *reach) {
	c := &x.server.c
	if r.client.Look(x.client, c.KeepAlive, now) {
		c.Log.Info("the client is out of reach", "client", x.client.RemoteAddr().String())
		_ = socketOf(x.client).Close()
	}
	if r.upstream.Look(x.upstream, c.KeepAlive, now) {
		c.Log.Warn("the server is out of reach", "upstream", x.upstream.RemoteAddr().String())
		_ = socketOf(x.upstream).Close()
	}
}
