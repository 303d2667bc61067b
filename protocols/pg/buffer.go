package pg

import (
	"io"
	"net"
	"syscall"

	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/loops"
)

// A buffer reads a connection in pieces and keeps what is not taken yet. It holds memory
// only while it holds bytes: a session at rest has none.
type buffer struct {
	from  net.Conn
	pools *protocols.Chunks
	c     *protocols.Chunk // nil while empty
	r, w  int

	// How a read gets memory once there is something to read.
	raw syscall.RawConn
	try func(fd uintptr) bool
	n   int // what the last read gave
	err error
	// Of a connection that loops have. If left, given is what its loop left to be done.
	conn  *loops.Conn
	given step
	left  bool
	// Where the connection is not a socket (TLS), a first read goes here.
	small []byte
}

// smallRead is how much memory a session at rest keeps for a connection that is no socket.
const smallRead = 1 << 10

func newBuffer(pools *protocols.Chunks, from net.Conn) *buffer {
	b := &buffer{from: from, pools: pools}
	if c, ok := from.(*loops.Conn); ok {
		b.conn = c
	} else if b.raw = protocols.Raw(from); b.raw != nil {
		b.try = b.tryRead
	} else {
		b.small = make([]byte, min(smallRead, pools.Size))
	}
	return b
}

// bytes is what was read and not taken.
func (b *buffer) bytes() []byte {
	if b.c == nil {
		return nil
	}
	return b.c.B[b.r:b.w]
}

// preset makes p what was read, before anything was.
func (b *buffer) preset(p []byte) {
	if len(p) > 0 {
		b.c = b.pools.Get(max(len(p), b.pools.Size))
		b.w = copy(b.c.B, p)
	}
}

func (b *buffer) take(n int) {
	if b.r += n; b.r < b.w || b.c == nil {
		return
	}
	b.r, b.w = 0, 0
	// A connection that is no socket is read into a chunk again if it gave much last time.
	if b.small == nil || b.n <= len(b.small) || len(b.c.B) > b.pools.Size {
		b.pools.Put(b.c)
		b.c = nil
	}
}

// fill reads once, so that in the end need bytes are there. Memory grows with what
// arrived, not with what is announced.
func (b *buffer) fill(need int) error {
	switch {
	case b.c == nil && b.conn != nil:
		for {
			if err := b.conn.Readable(); err != nil {
				return err
			}
			if some, err := b.tryFill(); some || err != nil {
				return err
			}
		}
	case b.c == nil && b.raw != nil:
		// The memory is got when there is something to read.
		if err := b.raw.Read(b.try); err != nil {
			return err
		}
		return b.read(b.n, b.err)
	case b.c == nil:
		n, err := b.from.Read(b.small)
		if n > 0 {
			b.c = b.pools.Get(b.pools.Size)
			copy(b.c.B, b.small[:n])
		}
		return b.read(n, err)
	}
	if b.r > 0 && (b.w == len(b.c.B) || len(b.c.B)-b.r < need) {
		b.w = copy(b.c.B, b.c.B[b.r:b.w])
		b.r = 0
	}
	if size := len(b.c.B); b.w == size {
		grown := b.pools.Get(b.grown(size, need))
		copy(grown.B, b.c.B[:b.w])
		b.pools.Put(b.c)
		b.c = grown
	}
	n, err := b.from.Read(b.c.B[b.w:])
	return b.read(n, err)
}

// grown is the size of the memory that follows one of size, which is full.
func (b *buffer) grown(size, need int) int {
	if big := b.pools.Much(); size < big {
		return big
	}
	return max(min(2*size, need), size+1)
}

// read notes what a read gave.
func (b *buffer) read(n int, err error) error {
	b.n = n
	b.w += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// tryRead reads into memory that it gets for that, if there is something to read; else it
// gives the memory back, reports false and is called again when there is. So a session at
// rest costs no memory, and a busy one no system call more.
func (b *buffer) tryRead(fd uintptr) bool {
	c := b.pools.Get(b.pools.ForNext(b.n))
	n, ready, err := protocols.ReadRaw(fd, c.B)
	if ready {
		b.n, b.err = n, err
	}
	if n > 0 {
		b.c = c
		return true
	}
	b.pools.Put(c)
	return ready
}
