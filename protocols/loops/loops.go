// Package loops carries connections without a goroutine's wake-up a message: on Linux, a few
// loops wait for all of them at once, and what is simple is read and written on within them.
//
// A connection that loops have taken over is a net.Conn like any other, for goroutines that
// read and write it. While it has nothing to say, its goroutine can leave it to its loop with
// Each: a function of the goroutine's is then called in the loop each time that there is
// something to read, until it reports that the goroutine is needed. The function must not
// wait for anything: it uses TryRead and TryWrite, and leaves what they cannot do at once to the
// goroutine.
//
// INVARIANT: a function of Each never runs at the same time as itself, nor after Each has
// returned: the goroutine and its loop have the connection's reading by turns.
package loops

import (
	"errors"
	"net"
)

// ErrUnsupported: there are no loops here, or the connection is of a kind that they cannot
// take over (TLS, or no socket at all).
var ErrUnsupported = errors.New("loops cannot carry this")

// below is the connection that a wrapper such as that of the PROXY protocol is for, if it adds
// nothing but an address.
func below(c net.Conn) net.Conn {
	if a, ok := c.(interface{ Behalf() net.Conn }); ok {
		return a.Behalf()
	}
	return c
}
