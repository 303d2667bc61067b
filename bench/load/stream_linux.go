package load

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A blocking stream blocks the thread that reads or writes. That saves the runtime's
// poller and its wake-ups: the load takes less of the machine, and sees answers sooner.
type blocking struct {
	f  *os.File // keeps fd open
	fd int

	mu     sync.Mutex // guards closed, so that no other connection's number is shut down
	closed bool
}

// newStream takes a connection over.
func newStream(c net.Conn) (stream, error) {
	tcp, ok := c.(interface{ File() (*os.File, error) })
	if !ok {
		return plain{c}, nil
	}
	f, err := tcp.File()
	_ = c.Close()
	if err != nil {
		return nil, err
	}
	b := &blocking{f: f, fd: int(f.Fd())}
	timeout := unix.NsecToTimeval(patience.Nanoseconds())
	err = errors.Join(unix.SetNonblock(b.fd, false),
		unix.SetsockoptTimeval(b.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.SetsockoptTimeval(b.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout))
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return b, nil
}

// Read reads what is there, and waits for it.
func (b *blocking) Read(p []byte) (int, error) {
	for {
		switch n, err := unix.Read(b.fd, p); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, fmt.Errorf("no answer within %v", patience)
		case err != nil:
			return 0, fmt.Errorf("reading: %w", err)
		case n == 0:
			return 0, io.ErrUnexpectedEOF
		default:
			return n, nil
		}
	}
}

// Write writes all of p.
func (b *blocking) Write(p []byte) (int, error) {
	for done := 0; ; {
		switch n, err := unix.Write(b.fd, p[done:]); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return done, fmt.Errorf("nothing was taken within %v", patience)
		case err != nil:
			return done, fmt.Errorf("writing: %w", err)
		default:
			if done += n; done == len(p) {
				return done, nil
			}
		}
	}
}

// Close closes it.
func (b *blocking) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.f.Close()
}

func (b *blocking) interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		_ = unix.Shutdown(b.fd, unix.SHUT_RDWR)
	}
}

// ownCPU is the processor time in seconds of this process and of those it waited for.
func ownCPU() float64 {
	var total float64
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			total += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
		}
	}
	return total
}

// waitUntil returns at t, as sharply as the kernel can: the runtime's own timers may be a
// millisecond late.
func waitUntil(t time.Time) {
	for {
		d := time.Until(t)
		if d <= 0 {
			return
		}
		ts := unix.NsecToTimespec(d.Nanoseconds())
		_ = unix.Nanosleep(&ts, nil) // interrupted, it is asked again
	}
}

// sharpen lets this thread wake on time; by default the kernel may be 50 µs late to wake
// several at once.
func sharpen() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }
