package pgfence

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/fenceproxy/fenceproxy/guard/peer"
)

// ErrUnproven: over a Unix socket it could not be proven that the server process is the
// one at the other end, with nobody in between.
var ErrUnproven = errors.New("it cannot be proven that the Unix socket leads to the server itself: set upstream to the server's TCP address")

// BackendOf is the server process behind a connection that nobody relays.
func BackendOf(pid uint32, conn net.Conn) Backend {
	b := Backend{PID: pid}
	switch a := conn.LocalAddr().(type) {
	case *net.TCPAddr:
		ap := a.AddrPort()
		b.Addr = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	case *net.UnixAddr:
		b.Listener = peer.Listener(conn)
	}
	return b
}

// prove returns the SQL condition on backend_start that is left to be checked once it is
// proven that the process is a child of the one that listens on the Unix socket.
//
// INVARIANT: a pooler passes the real process id on (its clients need it to cancel), and
// any process behind a Unix socket looks alike to the server. But who listens is known to
// the kernel: when that is the parent of the very process, it is the postmaster, and
// nobody stands in between. Process ids of another pid namespace tell nothing: the process
// of that number here must be of no inner one, and must have started when the server's did.
func (b Backend) prove() (string, error) {
	fail := func(why string) (string, error) { return "", fmt.Errorf("%w (%s)", ErrUnproven, why) }
	if b.Listener <= 0 {
		return fail("who listens on the socket is not known: it is in another pid namespace, or this is not Linux")
	}
	p, err := peer.Look(int(b.PID))
	switch {
	case err != nil:
		return fail("process " + strconv.Itoa(int(b.PID)) + ": " + err.Error())
	case p.Parent != b.Listener:
		return "", fmt.Errorf("%w: process %d listens on the Unix socket and is not the parent of server process %d", ErrPooler, b.Listener, b.PID)
	}
	const layout = "2006-01-02 15:04:05.999999Z07:00"
	return fmt.Sprintf("a.backend_start BETWEEN '%s' AND '%s'", p.Started.Add(-peer.StartSlack).UTC().Format(layout),
		p.Started.Add(peer.StartSlack).UTC().Format(layout)), nil
}
