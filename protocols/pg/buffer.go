package pg

import (
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/fenceproxy/fenceproxy/protocols"
)

// A buffer reads a connection in pieces and keeps what is not taken yet. It holds memory
// only while it holds bytes: a session at rest has none.
type buffer struct {
	from  net.Conn
	pools *buffers
	c     *chunk // nil while empty
	r, w  int

	// How a read gets memory once there is something to read.
	raw  syscall.RawConn
	try  func(fd uintptr) bool
	n    int
	err  error
	much bool // the last read gave at least the usual size: there may be more
	// Where the connection is not a socket (TLS), a first read goes here.
	small []byte
}

// A chunk is memory of a buffer's.
type chunk struct{ b []byte }

// buffers lends memory to the sessions of a Server: usually of size bytes, where much comes
// or a message must be there as a whole of four times that.
type buffers struct {
	size     int
	one, big sync.Pool
}

// smallRead is how much memory a session at rest keeps for a connection that is no socket.
const smallRead = 1 << 10

func (p *buffers) get(size int) *chunk {
	pool := p.pool(size)
	if pool != nil {
		if c, ok := pool.Get().(*chunk); ok {
			return c
		}
	}
	return &chunk{make([]byte, size)}
}

func (p *buffers) put(c *chunk) {
	if pool := p.pool(len(c.b)); pool != nil {
		pool.Put(c)
	}
}

func (p *buffers) pool(size int) *sync.Pool {
	switch size {
	case p.size:
		return &p.one
	case 4 * p.size:
		return &p.big
	}
	return nil
}

func newBuffer(pools *buffers, from net.Conn) *buffer {
	b := &buffer{from: from, pools: pools}
	if b.raw = protocols.Raw(from); b.raw != nil {
		b.try = b.tryRead
	} else {
		b.small = make([]byte, min(smallRead, pools.size))
	}
	return b
}

// bytes is what was read and not taken.
func (b *buffer) bytes() []byte {
	if b.c == nil {
		return nil
	}
	return b.c.b[b.r:b.w]
}

// preset makes p what was read, before anything was.
func (b *buffer) preset(p []byte) {
	if len(p) > 0 {
		b.c = b.pools.get(max(len(p), b.pools.size))
		b.w = copy(b.c.b, p)
	}
}

func (b *buffer) take(n int) {
	if b.r += n; b.r < b.w || b.c == nil {
		return
	}
	b.r, b.w = 0, 0
	// A connection that is no socket is read into a chunk again if it gave much last time.
	if b.small == nil || b.n <= len(b.small) || len(b.c.b) > b.pools.size {
		b.pools.put(b.c)
		b.c = nil
	}
}

// fill reads once, so that in the end need bytes are there. Memory grows with what
// arrived, not with what is announced.
func (b *buffer) fill(need int) error {
	switch {
	case b.c == nil && b.raw != nil:
		// The memory is got when there is something to read.
		if err := b.raw.Read(b.try); err != nil {
			return err
		}
		return b.read(b.n, b.err)
	case b.c == nil:
		n, err := b.from.Read(b.small)
		if n > 0 {
			b.c = b.pools.get(b.pools.size)
			copy(b.c.b, b.small[:n])
		}
		return b.read(n, err)
	}
	if b.r > 0 && (b.w == len(b.c.b) || len(b.c.b)-b.r < need) {
		b.w = copy(b.c.b, b.c.b[b.r:b.w])
		b.r = 0
	}
	if size := len(b.c.b); b.w == size {
		grown := b.pools.get(b.grown(size, need))
		copy(grown.b, b.c.b[:b.w])
		b.pools.put(b.c)
		b.c = grown
	}
	n, err := b.from.Read(b.c.b[b.w:])
	return b.read(n, err)
}

// grown is the size of the memory that follows one of size, which is full.
func (b *buffer) grown(size, need int) int {
	if big := 4 * b.pools.size; size < big {
		return big
	}
	return max(min(2*size, need), size+1)
}

// read notes what a read gave.
func (b *buffer) read(n int, err error) error {
	b.n = n
	b.w += n
	b.much = n >= b.pools.size
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
	size := b.pools.size
	if b.much {
		size *= 4
	}
	c := b.pools.get(size)
	n, ready, err := protocols.ReadRaw(fd, c.b)
	if b.n, b.err = n, err; n > 0 {
		b.c = c
		return true
	}
	b.pools.put(c)
	return ready
}
