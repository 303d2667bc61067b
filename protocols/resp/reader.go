package resp

import (
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/loops"
)

// A pool lends memory to the sessions of a Server. What is read into is as Chunks have it;
// what is written from grows from nothing, and is kept while it is at most eight times
// their usual size: a piece of four, and what is said beside it.
type pool struct {
	protocols.Chunks
	outs sync.Pool
}

// toWrite is empty.
func (p *pool) toWrite() *protocols.Chunk {
	if c, ok := p.outs.Get().(*protocols.Chunk); ok {
		return c
	}
	return new(protocols.Chunk)
}

// written takes back what toWrite lent and what it has grown to.
func (p *pool) written(c *protocols.Chunk, b []byte) {
	if cap(b) <= 2*p.Much() {
		c.B = b[:0]
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
	c    *protocols.Chunk // nil at rest
	n    int              // what the last read gave
	err  error

	// How a read gets memory once there is something to read.
	raw syscall.RawConn
	try func(fd uintptr) bool
	// The same of a connection that loops have.
	conn *loops.Conn
	// Where the connection is not a socket, a first read goes here.
	small []byte
}

func newReader(p *pool, from net.Conn) *reader {
	r := &reader{from: from, pool: p}
	if c, ok := from.(*loops.Conn); ok {
		r.conn = c
	} else if r.raw = protocols.Raw(from); r.raw != nil {
		r.try = r.tryRead
	} else {
		r.small = make([]byte, min(smallRead, p.Size))
	}
	return r
}

// next reads once. The bytes are valid until done, which comes before the next one.
func (r *reader) next() ([]byte, error) {
	switch {
	case r.conn != nil:
		for {
			if err := r.conn.Readable(); err != nil {
				return nil, err
			}
			if b, err := r.tryNext(); len(b) > 0 || err != nil {
				return b, err
			}
		}
	case r.raw != nil:
		if err := r.raw.Read(r.try); err != nil {
			return nil, err
		}
	case r.c == nil:
		r.n, r.err = r.from.Read(r.small)
		return r.small[:r.n], r.err
	default:
		r.n, r.err = r.from.Read(r.c.B)
	}
	if r.n == 0 && r.err == nil {
		r.err = io.ErrNoProgress
	}
	return r.last(), r.err
}

// last is what was read last, until done.
func (r *reader) last() []byte {
	if r.c == nil {
		return nil
	}
	return r.c.B[:r.n]
}

// tryNext reads what is there, of a connection that loops have: nothing and no error if nothing is.
func (r *reader) tryNext() ([]byte, error) {
	c := r.pool.Get(r.pool.ForNext(r.n))
	n, err := r.conn.TryRead(c.B)
	if n == 0 {
		r.pool.Put(c)
		return nil, err
	}
	r.c, r.n = c, n
	return c.B[:n], nil
}

// done gives the memory back. A connection that is no socket is read into much again if
// it filled what there was.
func (r *reader) done() {
	switch full := r.small != nil && (r.c == nil && r.n == len(r.small) || r.c != nil && r.n == len(r.c.B)); {
	case full && r.c == nil:
		r.c = r.pool.Get(r.pool.Size)
	case !full && r.c != nil:
		r.pool.Put(r.c)
		r.c = nil
	}
}

// tryRead reads into memory that it gets for that, if there is something to read.
func (r *reader) tryRead(fd uintptr) bool {
	c := r.pool.Get(r.pool.ForNext(r.n))
	n, ready, err := protocols.ReadRaw(fd, c.B)
	if ready {
		r.n, r.err = n, err
	}
	if n > 0 {
		r.c = c
		return true
	}
	r.pool.Put(c)
	return ready
}
