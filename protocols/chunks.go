package protocols

import "sync"

// A Chunk is memory that Chunks lent.
type Chunk struct{ B []byte }

// Chunks lend memory to the sessions of a server: of Size bytes, or of four times that
// where much comes or must be there as a whole. Other sizes are made, and not kept. They
// may be used by several goroutines at once; Size is set before, and is not zero.
type Chunks struct {
	Size     int
	one, big sync.Pool
}

// Much is the larger of the two sizes.
func (p *Chunks) Much() int { return 4 * p.Size }

// ForNext is the size of a chunk to read into after a read that gave last bytes: one that
// filled the usual size is likely to be followed by more.
func (p *Chunks) ForNext(last int) int {
	if last >= p.Size {
		return p.Much()
	}
	return p.Size
}

// Get lends a chunk of that many bytes, which hold anything.
func (p *Chunks) Get(size int) *Chunk {
	if pool := p.pool(size); pool != nil {
		if c, ok := pool.Get().(*Chunk); ok {
			return c
		}
	}
	return &Chunk{make([]byte, size)}
}

// Put takes back what Get lent.
func (p *Chunks) Put(c *Chunk) {
	if pool := p.pool(len(c.B)); pool != nil {
		pool.Put(c)
	}
}

func (p *Chunks) pool(size int) *sync.Pool {
	switch size {
	case p.Size:
		return &p.one
	case p.Much():
		return &p.big
	}
	return nil
}
