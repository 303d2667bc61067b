package loops

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Conn is a connection that loops have taken over. It is safe for concurrent use as any
// net.Conn; TryRead and TryWrite are for the one that has this direction alone.
type Conn struct {
	at            *loop
	fd            int
	local, remote net.Addr
	gone          func() // forgets it; nil: nothing knows it

	// uses counts the system calls under way with fd; closing is added when Close was called.
	//
	// INVARIANT: fd is closed when no call uses it any more, and none begins to after Close:
	// its number would be another connection's.
	uses atomic.Uint64

	// broke is why the connection broke, once a call was told.
	//
	// INVARIANT: a connection that broke never comes to its end. The kernel says once why, to
	// whoever reads or writes next, and from then on that it is at its end; but a server that ended
	// a session is done with it, and one whose connection broke may not be.
	broke  atomic.Uint32
	writes atomic.Int32 // writes under way, which may be told it

	in, out half
	writing sync.Mutex // one Write at a time
}

const closing = 1 << 32

// A half is what is known of one direction.
type half struct {
	mu sync.Mutex
	// changed is told of everything below.
	changed sync.Cond
	waits   int  // how many wait for it
	ready   bool // the kernel may have something to read, or room; not so only after it said no
	ended   bool // nothing changes that any more
	urgent  bool // there were urgent data (TCP's): a read stops short of them
	closed  bool
	expired bool // the deadline has passed
	timer   *time.Timer
	timers  uint64 // how many were started: an older one's word counts no more

	each    func() bool // while the loop has the direction
	then    func()      // begins once it has it no more
	running bool        // each runs
	queued  bool        // it is among the loop's again; the loop's alone
}

func newConn(at *loop, fd int, local, remote net.Addr) *Conn {
	c := &Conn{at: at, fd: fd, local: local, remote: remote}
	for _, h := range []*half{&c.in, &c.out} {
		h.changed.L = &h.mu
		h.ready = true // it was not asked yet
	}
	return c
}

// happened takes in an event of the connection's, in its loop.
func (c *Conn) happened(l *loop, events uint32) {
	const ends = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		c.out.mu.Lock()
		c.out.ready = true
		if c.out.waits > 0 {
			l.woke = true
			c.out.changed.Broadcast()
		}
		c.out.mu.Unlock()
	}
	if events&(unix.EPOLLIN|unix.EPOLLPRI|ends) == 0 {
		return
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.ready = true
	if events&unix.EPOLLPRI != 0 {
		c.in.urgent = true
	}
	if events&ends != 0 {
		c.in.ended = true // no further event tells of it
	}
	c.readable(l)
}

// readable calls the function that the connection was left with, or wakes who waits, in the loop.
// Call with in.mu held.
func (c *Conn) readable(l *loop) {
	h := &c.in
	if h.each == nil {
		if h.waits > 0 {
			l.woke = true
			h.changed.Broadcast()
		}
		return
	}
	each := h.each
	h.running = true
	h.mu.Unlock()
	on := each()
	h.mu.Lock()
	h.running = false
	switch {
	case !on, h.closed, h.expired:
		l.woke = true
		h.giveBack()
	case h.ready && !h.queued:
		h.queued = true
		l.again = append(l.again, c)
	}
}

// Each leaves the reading to the connection's loop, which calls f each time that there may be
// something to read, until f reports false. It returns nil at once if there may be something
// already, and an error when the read deadline has passed or the connection was closed; f does not
// run any more when it returns.
func (c *Conn) Each(f func() bool) error {
	h := &c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.err("read", c); err != nil || h.ready {
		return err
	}
	h.each = f
	for h.each != nil {
		h.changed.Wait()
	}
	return h.err("read", c)
}

// EachThen is Each for who does not want to wait: it reports whether the reading was left to the
// loop. Then the loop's last act is to begin then, in a goroutine of its own, where Each would have
// returned; so a connection that has nothing to say keeps no goroutine. Else nothing begins: there
// may be something to read, or err says why there is not.
func (c *Conn) EachThen(f func() bool, then func()) (left bool, err error) {
	h := &c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.err("read", c); err != nil || h.ready {
		return false, err
	}
	h.each, h.then = f, then
	return true, nil
}

// giveBack ends what the loop does with the direction. Call with mu held.
func (h *half) giveBack() {
	if h.then != nil {
		go h.then()
	}
	h.each, h.then = nil, nil
	h.changed.Broadcast()
}

// Readable waits until there may be something to read.
func (c *Conn) Readable() error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.in.wait("read", c)
}

// wait waits until the half is ready. Call with mu held.
func (h *half) wait(op string, c *Conn) error {
	for {
		if err := h.err(op, c); err != nil || h.ready {
			return err
		}
		h.waits++
		h.changed.Wait()
		h.waits--
	}
}

// err is why nothing is done in this direction. Call with mu held.
func (h *half) err(op string, c *Conn) error {
	switch {
	case h.closed:
		return c.failed(op, net.ErrClosed)
	case h.expired:
		return c.failed(op, os.ErrDeadlineExceeded)
	}
	return nil
}

// await makes the loop wait for more events than those of reading, or for those alone.
func (c *Conn) await(more uint32) {
	if c.enter() {
		e := unix.EpollEvent{Events: reading | more, Fd: int32(c.fd)}
		_ = unix.EpollCtl(c.at.epoll, unix.EPOLL_CTL_MOD, c.fd, &e)
		c.leave()
	}
}

func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}

// TryRead reads what is there; no bytes and no error mean that nothing is. It does not look at
// the deadline.
func (c *Conn) TryRead(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	h := &c.in
	h.mu.Lock()
	asks := h.ready
	h.ready = false              // an event that comes from here on says so again
	all := !h.ended && !h.urgent // where an event changes that from here on, it says so again too
	h.mu.Unlock()
	if !asks {
		return 0, nil
	}
	if !c.enter() {
		return 0, c.failed("read", net.ErrClosed)
	}
	n, errno := call(unix.SYS_RECVFROM, c.fd, b)
	c.leave()
	if errno == unix.EAGAIN {
		return 0, nil
	}
	if n == len(b) || n <= 0 || !all {
		// Any other read that fills less took all that there was (epoll(7)).
		h.mu.Lock()
		h.ready = true
		h.mu.Unlock()
	}
	switch {
	case errno != 0:
		c.broke.Store(uint32(errno))
		return 0, c.failed("read", os.NewSyscallError("read", errno))
	case n == 0:
		return 0, c.end()
	}
	return n, nil
}

// end is what a reader is told when nothing more comes.
func (c *Conn) end() error {
	for c.writes.Load() != 0 {
		runtime.Gosched() // none waits for anything
	}
	if errno := c.broke.Load(); errno != 0 {
		return c.failed("read", os.NewSyscallError("read", unix.Errno(errno)))
	}
	return io.EOF
}

// TryWrite writes as much as there is room for now.
func (c *Conn) TryWrite(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if !c.enter() {
		return 0, c.failed("write", net.ErrClosed)
	}
	c.writes.Add(1)
	n, errno := call(unix.SYS_SENDTO, c.fd, b)
	if errno != 0 && errno != unix.EAGAIN && errno != unix.EPIPE { // which says that one side has ended
		c.broke.Store(uint32(errno))
	}
	c.writes.Add(-1)
	c.leave()
	switch errno {
	case 0:
		return n, nil
	case unix.EAGAIN:
		return 0, nil
	default:
		return 0, c.failed("write", os.NewSyscallError("write", errno))
	}
}

// call receives into b or sends it, without a word to the runtime: the socket never blocks. Calls
// that are for sockets alone cost a little less than read and write. No signal is for sending;
// receiving knows none.
func call(what uintptr, fd int, b []byte) (int, unix.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(what, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0) //nolint:gosec // the kernel reads or fills it
		if errno != unix.EINTR {
			if errno != 0 {
				return 0, errno
			}
			return int(n), 0
		}
	}
}

// Read is net.Conn's.
func (c *Conn) Read(b []byte) (int, error) {
	for {
		if err := c.Readable(); err != nil {
			return 0, err
		}
		if n, err := c.TryRead(b); n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
	}
}

// Write is net.Conn's.
func (c *Conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	h := &c.out
	for done := 0; ; {
		h.mu.Lock()
		err := h.err("write", c)
		h.mu.Unlock()
		if err != nil {
			return done, err
		}
		n, err := c.TryWrite(b[done:])
		done += n
		if err != nil || done == len(b) {
			return done, err
		}
		if err := c.writable(); err != nil {
			return done, err
		}
	}
}

// writable waits until there may be room. Only now the loop waits for that too: a Unix socket
// would tell of room each time that its peer reads.
func (c *Conn) writable() error {
	h := &c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.err("write", c); err != nil {
		return err
	}
	h.ready = false
	c.await(unix.EPOLLOUT) // tells at once if there is room already
	defer c.await(0)
	return h.wait("write", c)
}

// Close is net.Conn's.
func (c *Conn) Close() error {
	for {
		u := c.uses.Load()
		if u&closing != 0 {
			return c.failed("close", net.ErrClosed)
		}
		if c.uses.CompareAndSwap(u, u|closing) {
			if u == 0 {
				c.release()
			}
			break
		}
	}
	for _, h := range []*half{&c.in, &c.out} {
		h.mu.Lock()
		h.closed = true
		h.stopTimer()
		h.interrupt()
		h.mu.Unlock()
	}
	if c.gone != nil {
		c.gone()
	}
	return nil
}

// enter begins a use of fd, if it is open.
func (c *Conn) enter() bool {
	if c.uses.Add(1)&closing == 0 {
		return true
	}
	c.leave()
	return false
}

// leave ends a use; the last one closes, if that was asked for.
func (c *Conn) leave() {
	if c.uses.Add(^uint64(0)) == closing {
		c.release()
	}
}

// release closes fd, once: only who takes uses to closing calls it, and marks it.
func (c *Conn) release() {
	if c.uses.CompareAndSwap(closing, closing<<1|closing) {
		c.at.remove(c)
		_ = unix.Close(c.fd)
	}
}

// interrupt makes those who wait look again, and takes the direction back from the loop. Call
// with mu held.
func (h *half) interrupt() {
	if h.running {
		h.changed.Broadcast() // its turn is its last
		return
	}
	h.giveBack()
}

// CloseWrite ends the sending side.
func (c *Conn) CloseWrite() error {
	if !c.enter() {
		return c.failed("close", net.ErrClosed)
	}
	defer c.leave()
	if err := unix.Shutdown(c.fd, unix.SHUT_WR); err != nil {
		return c.failed("close", os.NewSyscallError("shutdown", err))
	}
	return nil
}

// LocalAddr is net.Conn's.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is that of the connection that was taken over.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline is net.Conn's.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline is net.Conn's. One that has passed takes the reading back from the loop.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.in.setDeadline(c, t) }

// SetWriteDeadline is net.Conn's.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.out.setDeadline(c, t) }

func (h *half) setDeadline(c *Conn, t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return c.failed("set", net.ErrClosed)
	}
	h.stopTimer()
	h.expired = false
	if t.IsZero() {
		return nil
	}
	left := time.Until(t)
	if left <= 0 {
		h.expired = true
		h.interrupt()
		return nil
	}
	mine := h.timers
	h.timer = time.AfterFunc(left, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.timers == mine {
			h.expired = true
			h.interrupt()
		}
	})
	return nil
}

// stopTimer makes sure that no earlier deadline expires. Call with mu held.
func (h *half) stopTimer() {
	h.timers++
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// SyscallConn is syscall.Conn's.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c}, nil }

type rawConn struct{ c *Conn }

// Control is syscall.RawConn's.
func (r rawConn) Control(f func(fd uintptr)) error {
	if !r.c.enter() {
		return r.c.failed("raw-control", net.ErrClosed)
	}
	defer r.c.leave()
	f(uintptr(r.c.fd))
	return nil
}

// Read is syscall.RawConn's.
func (r rawConn) Read(f func(fd uintptr) bool) error {
	h := &r.c.in
	for {
		h.mu.Lock()
		err := h.wait("raw-read", r.c)
		h.ready = false
		h.mu.Unlock()
		if err != nil {
			return err
		}
		done := false
		if err := r.Control(func(fd uintptr) { done = f(fd) }); err != nil {
			return err
		}
		if done {
			h.mu.Lock()
			h.ready = true // how much there is left is not known
			h.mu.Unlock()
			return nil
		}
	}
}

// Write is syscall.RawConn's.
func (r rawConn) Write(f func(fd uintptr) bool) error {
	for {
		done := false
		if err := r.Control(func(fd uintptr) { done = f(fd) }); err != nil || done {
			return err
		}
		if err := r.c.writable(); err != nil {
			return err
		}
	}
}
