package loops

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Loops are a few loops and the connections that they have taken over. Nil takes over none.
// Its methods may be called concurrently.
type Loops struct {
	all   []*loop
	held  int // by how many Go's processors were raised
	turn  atomic.Uint32
	taken sync.Map // from the connection that was taken over, or what is below it, to its Conn
	wg    sync.WaitGroup
}

// batch is how many connections' events are taken at once.
const batch = 128

// Start starts n loops; zero or less means one for each processor that Go uses, at most
// eight. Stop ends them.
//
// A loop keeps one of the processors that Go runs goroutines on (runtime.GOMAXPROCS) for a few
// milliseconds while it waits: until Stop there are n more of them.
func Start(n int) (*Loops, error) {
	if n <= 0 {
		n = min(runtime.GOMAXPROCS(0), 8)
	}
	l := new(Loops)
	moreProcessors(n)
	l.held = n
	for range n {
		one, err := newLoop()
		if err != nil {
			l.Stop()
			return nil, fmt.Errorf("starting a loop: %w", err)
		}
		l.all = append(l.all, one)
		l.wg.Go(one.run)
	}
	return l, nil
}

// Stop ends the loops, and returns when they have ended. All that they took over must be
// closed before.
func (l *Loops) Stop() {
	if l == nil {
		return
	}
	for _, one := range l.all {
		one.stop()
	}
	l.wg.Wait()
	for _, one := range l.all {
		one.close()
	}
	moreProcessors(-l.held)
	l.held = 0
}

// processors is locked while their number changes.
var processors sync.Mutex

// moreProcessors changes how many goroutines Go runs at once.
func moreProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0)+n, 1))
}

// Pair takes over two connections that are one session's, so that one loop has both. What was
// given is closed then: it is to be used no more, but with Close. After an error both are as
// they were.
func (l *Loops) Pair(a, b net.Conn) (*Conn, *Conn, error) {
	if l == nil {
		return nil, nil, ErrUnsupported
	}
	at := l.all[int(l.turn.Add(1))%len(l.all)]
	ca, err := l.dup(a, at)
	if err != nil {
		return nil, nil, err
	}
	cb, err := l.dup(b, at)
	if err != nil {
		_ = ca.Close()
		return nil, nil, err
	}
	for _, c := range []*Conn{ca, cb} {
		if err := at.add(c); err != nil {
			_ = ca.Close()
			_ = cb.Close()
			return nil, nil, err
		}
	}
	for c, from := range map[*Conn]net.Conn{ca: below(a), cb: below(b)} {
		c.gone = func() { l.taken.Delete(from) }
		l.taken.Store(from, c)
		if from.Close() != nil {
			_ = c.Close() // somebody closed it meanwhile
		}
	}
	return ca, cb, nil
}

// Close closes a connection, or the one that took it over.
func (l *Loops) Close(c net.Conn) error {
	if by := l.by(c); by != nil {
		return by.Close()
	}
	err := c.Close()
	if by := l.by(c); err != nil && by != nil {
		return by.Close() // it was taken over meanwhile
	}
	return err
}

// by is what took a connection over, or nil.
func (l *Loops) by(c net.Conn) *Conn {
	if l == nil {
		return nil
	}
	by, _ := l.taken.Load(below(c))
	taken, _ := by.(*Conn)
	return taken
}

// dup makes a Conn of a connection's socket, which stays as it is.
func (l *Loops) dup(c net.Conn, at *loop) (*Conn, error) {
	s := below(c)
	switch s.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return nil, fmt.Errorf("%w: %T", ErrUnsupported, s)
	}
	sc, ok := s.(syscall.Conn)
	if !ok {
		return nil, ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, derr := -1, error(nil)
	if err := raw.Control(func(from uintptr) {
		fd, derr = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return nil, err
	}
	if derr != nil {
		return nil, os.NewSyscallError("fcntl", derr)
	}
	return newConn(at, fd, c.LocalAddr(), c.RemoteAddr()), nil
}

// A loop waits for its connections' events in one place.
type loop struct {
	epoll int
	wake  int // an eventfd, which is written to stop it
	ended atomic.Bool

	mu    sync.Mutex
	conns []*Conn // by file descriptor

	// The loop's own.
	again []*Conn // of which there is more to read
	spare []*Conn
	woke  bool // a goroutine was woken since the last look
}

func newLoop() (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)})
		if err != nil {
			_ = unix.Close(wake)
		}
	}
	if err != nil {
		_ = unix.Close(epoll)
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &loop{epoll: epoll, wake: wake}, nil
}

func (l *loop) stop() {
	l.ended.Store(true)
	_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (l *loop) close() {
	_ = unix.Close(l.wake)
	_ = unix.Close(l.epoll)
}

// reading are the events that a loop always waits for: each once (edge-triggered).
const reading = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET

// add begins to wait for a connection's events.
func (l *loop) add(c *Conn) error {
	l.mu.Lock()
	if more := c.fd + 1 - len(l.conns); more > 0 {
		l.conns = append(l.conns, make([]*Conn, more)...)
	}
	l.conns[c.fd] = c
	l.mu.Unlock()
	e := unix.EpollEvent{Events: reading, Fd: int32(c.fd)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.fd, &e); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// remove ends that, before the file descriptor is closed: after that the number may be another's.
func (l *loop) remove(c *Conn) {
	l.mu.Lock()
	if c.fd < len(l.conns) && l.conns[c.fd] == c {
		l.conns[c.fd] = nil
	}
	l.mu.Unlock()
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, c.fd, nil)
}

func (l *loop) of(fd int32) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(fd) >= len(l.conns) {
		return nil
	}
	return l.conns[fd]
}

// run waits and calls until stop.
func (l *loop) run() {
	var events [batch]unix.EpollEvent
	for !l.ended.Load() {
		again := len(l.again) > 0
		if l.woke {
			// Who was woken runs here and now: while this goroutine waits in the kernel, its
			// processor would be lent to nobody for a while.
			l.woke = false
			runtime.Gosched()
		}
		n := l.wait(&events, again)
		// Those that had more than was read take their turn behind the others' first read.
		more := l.again
		l.again = l.spare[:0]
		for i := range max(n, 0) {
			e := &events[i]
			// The number may be another's since, which is woken for nothing then.
			if c := l.of(e.Fd); c != nil {
				c.happened(l, e.Events)
			}
		}
		for i, c := range more {
			c.in.mu.Lock()
			c.in.queued = false
			c.readable(l)
			c.in.mu.Unlock()
			more[i] = nil
		}
		l.spare = more
	}
}

// holds is how long a loop keeps its processor while it waits, in milliseconds: messages that
// follow one another do not go through Go's scheduler, and an idle loop costs nothing.
const holds = 4

// wait waits for events, or only looks for them, and returns how many there are.
func (l *loop) wait(events *[batch]unix.EpollEvent, look bool) int {
	timeout := holds
	if look {
		timeout = 0
	}
	// The runtime does not learn that this waits: else it would take the processor away, by a
	// thread of its own that looks every 20 microseconds, and that costs as much as the message.
	// When it stops all goroutines its signal ends the wait.
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll), uintptr(unsafe.Pointer(events)), batch, uintptr(timeout), 0, 0) //nolint:gosec // the kernel fills it
	if errno != 0 {
		return 0 // interrupted: nothing else can be
	}
	if n > 0 || look {
		return int(n)
	}
	m, err := unix.EpollWait(l.epoll, events[:], -1)
	if err != nil {
		return 0
	}
	return m
}
