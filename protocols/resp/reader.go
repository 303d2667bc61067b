package resp

import (
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/fenceproxy/fenceproxy/protocols"
)

// A chunk is memory that is lent.
type chunk struct{ b []byte }

// A pool lends chunks to the sessions of a Server: what is read into is size bytes long,
// or four times that where much comes; what is written from grows from there and is kept
// while it is at most eight times that: a piece of four, and what is said beside it.
type pool struct {
	size             int
	reads, big, outs sync.Pool
}

func (p *pool) bytes() int {
	if p.size == 0 {
		return DefaultBuffer
	}
	return p.size
}

func (p *pool) toRead(much bool) *chunk {
	from, size := &p.reads, p.bytes()
	if much {
		from, size = &p.big, 4*size
	}
	if c, ok := from.Get().(*chunk); ok {
		return c
	}
	return &chunk{make([]byte, size)}
}

// read takes back what toRead lent.
func (p *pool) read(c *chunk) {
	if len(c.b) > p.bytes() {
		p.big.Put(c)
	} else {
		p.reads.Put(c)
	}
}

// toWrite is empty.
func (p *pool) toWrite() *chunk {
	if c, ok := p.outs.Get().(*chunk); ok {
		return c
	}
	return new(chunk)
}

// written takes back what toWrite lent and what it has grown to.
func (p *pool) written(c *chunk, b []byte) {
	if cap(b) <= 8*p.bytes() {
		c.b = b[:0]
		p.outs.Put(c)
	}
}

// smallRead is how much memory a session at rest keeps for a connection that is no socket
// (TLS).
const smallRead = 1 << 10

// A reader reads a connection in pieces. It holds memory only while it has bytes: a
// session at rest has none.
type reader struct {
	from net.Conn
	pool *pool
	c    *chunk // nil at rest
	n    int
	err  error

	// How a read gets memory once there is something to read.
	raw  syscall.RawConn
	try  func(fd uintptr) bool
	much bool // the last read gave at least the usual size: there may be more
	// Where the connection is not a socket, a first read goes here.
	small []byte
}

func newReader(p *pool, from net.Conn) *reader {
	r := &reader{from: from, pool: p}
	if r.raw = protocols.Raw(from); r.raw != nil {
		r.try = r.tryRead
	} else {
		r.small = make([]byte, min(smallRead, p.bytes()))
	}
	return r
}

// next reads once. The bytes are valid until done, which comes before the next one.
func (r *reader) next() ([]byte, error) {
	switch {
	case r.raw != nil:
		r.n = 0
		if err := r.raw.Read(r.try); err != nil {
			return nil, err
		}
	case r.c == nil:
		r.n, r.err = r.from.Read(r.small)
		return r.small[:r.n], r.err
	default:
		r.n, r.err = r.from.Read(r.c.b)
	}
	if r.n == 0 && r.err == nil {
		r.err = io.ErrNoProgress
	}
	if r.c == nil {
		return nil, r.err
	}
	return r.c.b[:r.n], r.err
}

// done gives the memory back. A connection that is no socket is read into much again if
// it filled what there was.
func (r *reader) done() {
	switch full := r.raw == nil && (r.c == nil && r.n == len(r.small) || r.c != nil && r.n == len(r.c.b)); {
	case full && r.c == nil:
		r.c = r.pool.toRead(false)
	case !full && r.c != nil:
		r.pool.read(r.c)
		r.c = nil
	}
}

// tryRead reads into memory that it gets for that, if there is something to read.
func (r *reader) tryRead(fd uintptr) bool {
	c := r.pool.toRead(r.much)
	var ready bool
	r.n, ready, r.err = protocols.ReadRaw(fd, c.b)
	if r.n > 0 {
		r.c, r.much = c, r.n >= r.pool.bytes()
		return true
	}
	r.pool.read(c)
	return ready
}
