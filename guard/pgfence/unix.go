package pgfence

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
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
		b.Listener = listenerOf(conn)
	}
	return b
}

// A local is what the system says of a process.
type local struct {
	parent int
	start  time.Time // within a hundredth of a second, by the clock as it is now
}

// startSlack is how far the two times of a process's start may lie apart: the system's,
// and the server's own, which it takes a little later and by the clock as it was then.
const startSlack = 10 * time.Second

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
	p, err := lookAt(b.PID)
	switch {
	case err != nil:
		return fail("process " + strconv.Itoa(int(b.PID)) + ": " + err.Error())
	case p.parent != b.Listener:
		return "", fmt.Errorf("%w: process %d listens on the Unix socket and is not the parent of server process %d", ErrPooler, b.Listener, b.PID)
	}
	const layout = "2006-01-02 15:04:05.999999Z07:00"
	return fmt.Sprintf("a.backend_start BETWEEN '%s' AND '%s'", p.start.Add(-startSlack).UTC().Format(layout),
		p.start.Add(startSlack).UTC().Format(layout)), nil
}

// ticks is the unit of start times in /proc, on every Linux (USER_HZ).
const ticks = 100

var errLayout = errors.New("unexpected contents")

// lookAt asks the system about a process.
func lookAt(pid uint32) (local, error) {
	read := func(name string) ([]byte, error) {
		b, err := os.ReadFile("/proc/" + name)
		if err != nil {
			return nil, fmt.Errorf("/proc cannot be read: %w", err)
		}
		return b, nil
	}
	dir := strconv.FormatUint(uint64(pid), 10) + "/"
	// The status has one number of the process for each pid namespace that it is in.
	status, err := read(dir + "status")
	if err != nil {
		return local{}, err
	}
	_, own, ok := bytes.Cut(status, []byte("\nNSpid:"))
	own, _, _ = bytes.Cut(own, []byte("\n"))
	if ids := strings.Fields(string(own)); !ok || len(ids) != 1 {
		return local{}, errors.New("it is in another pid namespace")
	}
	stat, err := read(dir + "stat")
	if err != nil {
		return local{}, err
	}
	// The name in brackets may hold anything; the fields behind it are numbers.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return local{}, errLayout
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return local{}, errLayout
	}
	started, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return local{}, errLayout
	}
	up, err := read("uptime")
	if err != nil {
		return local{}, err
	}
	now := time.Now()
	first, _, _ := strings.Cut(string(up), " ")
	uptime, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return local{}, errLayout
	}
	age := time.Duration(uptime*float64(time.Second)) - time.Duration(started)*(time.Second/ticks)
	return local{parent, now.Add(-age)}, nil
}
