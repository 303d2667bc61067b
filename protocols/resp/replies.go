package resp

import (
	"bytes"
	"errors"
	"fmt"
)

// errReply means that the server sent what is no reply of RESP2 or RESP3.
var errReply = errors.New("the server's reply is not understood")

const (
	// maxOwed is more elements than any reply has; it keeps the count from overflowing.
	maxOwed = 1 << 60
	// maxStreams is how deeply replies of unknown length may be nested.
	maxStreams = 1024
	// streaming is the owed of an aggregate that says itself where it ends.
	streaming = -1
)

// A replyReader finds the ends of a server's replies, RESP2 and RESP3, in bytes that
// come in pieces. It keeps no payload. Nesting costs it nothing but a count: a reply
// ends when no element is owed any more, however its elements are nested.
type replyReader struct {
	owed    int64   // elements that the reply under way still lacks; zero between replies
	open    []int64 // what was owed outside each aggregate that streams
	skip    int64   // bytes of a bulk still to come, its line end counted
	kind    byte    // the type of the line under way; zero between lines
	chunked bool    // inside a bulk that comes in chunks
	head    [32]byte
	n       int // bytes in head
}

// between reports whether no reply is under way.
func (r *replyReader) between() bool {
	return r.owed == 0 && len(r.open) == 0 && r.kind == 0 && r.skip == 0
}

// advance reads b up to the end of the reply under way, or to its own end. It returns
// how many bytes it read and whether the reply ended with them.
func (r *replyReader) advance(b []byte) (n int, ended bool, err error) {
	for n < len(b) {
		switch {
		case r.skip > 0:
			k := min(r.skip, int64(len(b)-n))
			n += int(k)
			r.skip -= k
			if r.skip == 0 && !r.chunked && r.element() {
				return n, true, nil
			}
		case r.kind == 0:
			if r.owed == 0 {
				r.owed = 1
			}
			r.kind, r.n = b[n], 0
			n++
		default:
			rest := b[n:]
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				r.keep(rest)
				return len(b), false, nil
			}
			r.keep(rest[:end])
			n += end + 1
			if ended, err = r.line(); ended || err != nil {
				return n, ended, err
			}
		}
	}
	return n, false, nil
}

// keep remembers a piece of a line, as far as a length needs.
func (r *replyReader) keep(piece []byte) { r.n += copy(r.head[r.n:], piece) }

// line takes in the line that has come whole, and reports whether the reply ended.
func (r *replyReader) line() (bool, error) {
	kind, text := r.kind, bytes.TrimSuffix(r.head[:r.n], []byte{'\r'})
	r.kind = 0
	if r.chunked != (kind == ';') {
		return false, fmt.Errorf("%w: %q where it does not belong", errReply, kind)
	}
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
		return r.element(), nil
	case '.':
		if r.owed != streaming {
			return false, fmt.Errorf("%w: an end without a beginning", errReply)
		}
		r.pop()
		r.settle()
		return r.complete(), nil
	case '$', '=', '!', ';', '*', '~', '>', '%', '|':
	default:
		return false, fmt.Errorf("%w: type %q", errReply, kind)
	}
	if len(text) == 1 && text[0] == '?' && (kind == '$' || kind == '*' || kind == '~' || kind == '%') {
		if kind == '$' {
			r.chunked = true
			return false, nil
		}
		return false, r.stream()
	}
	size, ok := parseLen(text)
	if !ok || size < -1 || size > maxOwed/2 {
		return false, fmt.Errorf("%w: length %.32q", errReply, text)
	}
	switch kind {
	case '$', '=', '!':
		if size < 0 {
			return r.element(), nil
		}
		r.skip = size + 2
		return false, nil
	case ';':
		if size > 0 {
			r.skip = size + 2
			return false, nil
		}
		r.chunked = false
		return r.element(), nil
	case '%', '|':
		size *= 2
	}
	return r.aggregate(kind, size)
}

// aggregate takes in the head of an aggregate of that many elements.
func (r *replyReader) aggregate(kind byte, size int64) (bool, error) {
	if size <= 0 {
		// An attribute is no element: what it describes follows it.
		return kind != '|' && r.element(), nil
	}
	if r.owed == streaming {
		if err := r.push(streaming); err != nil {
			return false, err
		}
		r.owed = size // the stream outside counts nothing, not even an attribute's element
		return false, nil
	}
	if kind != '|' {
		r.owed--
	}
	if r.owed > maxOwed-size {
		return false, fmt.Errorf("%w: too many elements", errReply)
	}
	r.owed += size
	return false, nil
}

// stream takes in the head of an aggregate that says itself where it ends.
func (r *replyReader) stream() error {
	outside := r.owed
	if outside > 0 {
		outside--
	}
	r.owed = streaming
	return r.push(outside)
}

// element takes in that an element is whole, and reports whether the reply is.
func (r *replyReader) element() bool {
	if r.owed > 0 {
		r.owed--
	}
	r.settle()
	return r.complete()
}

// settle leaves the aggregates that lack nothing any more.
func (r *replyReader) settle() {
	for r.owed == 0 && len(r.open) > 0 {
		r.pop()
	}
}

func (r *replyReader) complete() bool { return r.owed == 0 && len(r.open) == 0 }

func (r *replyReader) push(owed int64) error {
	if len(r.open) >= maxStreams {
		return fmt.Errorf("%w: nested too deeply", errReply)
	}
	r.open = append(r.open, owed)
	return nil
}

func (r *replyReader) pop() {
	if last := len(r.open) - 1; last >= 0 {
		r.owed = r.open[last]
		r.open = r.open[:last]
	}
}
