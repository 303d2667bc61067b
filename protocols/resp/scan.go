package resp

import "bytes"

// Limits of what a command may hold before it is judged. The lengths that a client
// claims are never allocated, only compared with these.
const (
	// maxHeld is how much of a command is held to be judged whole; of a longer one,
	// the name and each key are judged as they pass.
	maxHeld = 16 << 10
	// maxInline is the servers' limit of an inline command, PROTO_INLINE_MAX_SIZE.
	maxInline = 64 << 10
	// maxHead is longer than any valid line that says a length.
	maxHead = 64
	// maxArgc is the servers' limit of a command's arguments, INT_MAX.
	maxArgc = 1<<31 - 1
	// hugeArgc is the count from which its line is passed on before the name has come:
	// some servers refuse it by itself.
	hugeArgc = 1 << 20
	// maxSpans is how many arguments a scanner remembers; no command that the session
	// must understand has more.
	maxSpans = 16
)

// A span is where an argument lies in a command.
type span struct{ at, n int }

// A scanner finds the end of one command in bytes that come in pieces, each time given
// from the command's first byte on. It remembers how far it came.
type scanner struct {
	pos   int // the next byte to look at
	argc  int // -1 until it is known
	argi  int // how many arguments are whole
	spans [maxSpans]span
}

func (s *scanner) reset() { s.pos, s.argc, s.argi = 0, -1, 0 }

func (s *scanner) arg(raw []byte, i int) []byte {
	if i >= s.argi || i >= maxSpans {
		return nil
	}
	return raw[s.spans[i].at : s.spans[i].at+s.spans[i].n]
}

type found uint8

const (
	foundMore   found = iota // the command is not whole yet
	foundWhole               // b[:pos] is a whole command of bulks
	foundLine                // b[:pos] is an inline command
	foundNone                // b[:pos] asks for nothing, and the server answers nothing
	foundLong                // it will not be held whole
	foundBad                 // the server will refuse its form
	foundTooBig              // an inline command that does not end
)

// scan looks on. It corrects line ends in place where the servers do not look at their
// second byte: what the server reads is then what was read here.
func (s *scanner) scan(b []byte) found {
	if len(b) == 0 {
		return foundMore
	}
	if b[0] != '*' {
		return s.scanInline(b)
	}
	if s.argc < 0 {
		n, end, f := scanHead(b, 0, '*')
		if f != foundWhole {
			return f
		}
		if n > maxArgc {
			return foundBad
		}
		s.pos = end
		if n <= 0 {
			return foundNone
		}
		s.argc = int(n)
		if n > hugeArgc {
			return foundLong
		}
	}
	for s.argi < s.argc {
		size, at, f := scanHead(b, s.pos, '$')
		switch {
		case f == foundMore && len(b) >= maxHeld:
			return foundLong
		case f != foundWhole:
			return f
		case size < 0:
			return foundBad
		case size > maxHeld:
			return foundLong
		}
		end := at + int(size)
		if end+2 > len(b) {
			if len(b) >= maxHeld {
				return foundLong
			}
			return foundMore
		}
		b[end], b[end+1] = '\r', '\n'
		if s.argi < maxSpans {
			s.spans[s.argi] = span{at, int(size)}
		}
		s.argi++
		s.pos = end + 2
	}
	return foundWhole
}

// scanInline looks for the end of an inline command. The servers' search stops at a
// NUL: such a command never ends.
func (s *scanner) scanInline(b []byte) found {
	if s.pos < len(b) {
		piece := b[s.pos:]
		end, nul := bytes.IndexByte(piece, '\n'), bytes.IndexByte(piece, 0)
		if end >= 0 && (nul < 0 || end < nul) {
			s.pos += end + 1
			return foundLine
		}
		if nul < 0 {
			s.pos = len(b)
		} else {
			s.pos += nul // stay before it
		}
	}
	if len(b) > maxInline {
		return foundTooBig
	}
	return foundMore
}

// scanHead reads the line at b[pos:] that begins with kind and says a length. It
// returns the length and the position after the line.
func scanHead(b []byte, pos int, kind byte) (n int64, end int, f found) {
	for i := pos; i < len(b); i++ {
		switch {
		case b[i] == 0 || i-pos > maxHead:
			return 0, 0, foundBad
		case b[i] != '\r':
			continue
		case i+1 == len(b):
			return 0, 0, foundMore
		}
		if b[pos] != kind {
			return 0, 0, foundBad
		}
		n, ok := parseLen(b[pos+1 : i])
		if !ok {
			return 0, 0, foundBad
		}
		b[i+1] = '\n'
		return n, i + 2, foundWhole
	}
	return 0, 0, foundMore
}
