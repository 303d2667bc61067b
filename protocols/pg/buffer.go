package pg

import "io"

// A buffer reads a connection in pieces and keeps what is not taken yet.
type buffer struct {
	b    []byte
	r, w int
	size int // usual length of b
}

func newBuffer(size int) *buffer { return &buffer{b: make([]byte, size), size: size} }

// bytes is what was read and not taken.
func (b *buffer) bytes() []byte { return b.b[b.r:b.w] }

// put makes p what was read; before anything was.
func (b *buffer) put(p []byte) {
	if len(p) > len(b.b) {
		b.b = make([]byte, len(p))
	}
	b.w = copy(b.b, p)
}

func (b *buffer) take(n int) {
	if b.r += n; b.r == b.w {
		b.r, b.w = 0, 0
		if len(b.b) > 4*b.size {
			b.b = make([]byte, b.size)
		}
	}
}

// fill reads once, so that in the end need bytes are there. Memory grows with what
// arrived, not with what is announced.
func (b *buffer) fill(r io.Reader, need int) error {
	if b.r > 0 && (b.w == len(b.b) || len(b.b)-b.r < need) {
		b.w = copy(b.b, b.b[b.r:b.w])
		b.r = 0
	}
	if b.w == len(b.b) {
		grown := make([]byte, max(min(2*len(b.b), need), len(b.b)+1))
		copy(grown, b.b[:b.w])
		b.b = grown
	}
	n, err := r.Read(b.b[b.w:])
	b.w += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
