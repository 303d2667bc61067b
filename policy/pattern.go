package policy

import (
	"errors"
	"fmt"
	"strings"
)

// ErrPattern means that a text is no pattern.
var ErrPattern = errors.New("not a pattern")

// A pattern is what names must look like: * is any bytes or none, ? is any one byte, {name}
// is a capture, a backslash makes the next byte an ordinary one. There are no gaps: all of a
// name has to match.
//
// A capture takes one byte or more, as many as come before the byte that follows it in the
// pattern (or, where it is last, all the rest), and in a table's name no dot. So each capture
// has one value: it is never a matter of choice which election rules a name.
type pattern struct {
	text     string
	tokens   []token
	captures []string // their names, in order
}

type token struct {
	kind tokenKind
	b    byte // the byte itself; of a capture, the one that ends it
	ends bool // a capture that b ends
	dots bool // a capture that takes dots
}

type tokenKind uint8

const (
	oneByte tokenKind = iota
	anyByte
	anyBytes
	capture
	betweenParts // the end of one part of a name, and the beginning of the next
)

// takes reports whether the token can take the byte b as one of its own.
func (t token) takes(b byte) bool {
	switch t.kind {
	case oneByte:
		return t.b == b
	case capture:
		return (!t.ends || t.b != b) && (t.dots || b != '.')
	}
	return true
}

const (
	// maxPattern bounds a pattern's text, so that comparing patterns ends soon.
	maxPattern = 256
	// maxCaptures bounds the captures of one pattern.
	maxCaptures = 4
)

// parsePattern reads the pattern of a part of a name. Captures take dots where dots is set.
func parsePattern(s string, dots bool) (pattern, error) {
	p := pattern{text: s}
	bad := func(format string, a ...any) (pattern, error) {
		return pattern{}, fmt.Errorf("%w: %q: %s", ErrPattern, s, fmt.Sprintf(format, a...))
	}
	if s == "" {
		return bad("it is empty")
	}
	if len(s) > maxPattern {
		return pattern{}, fmt.Errorf("%w: it is longer than %d bytes", ErrPattern, maxPattern)
	}
	for i := 0; i < len(s); i++ {
		t := token{kind: oneByte, b: s[i]}
		switch s[i] {
		case '*':
			t = token{kind: anyBytes}
		case '?':
			t = token{kind: anyByte}
		case '\\':
			if i++; i == len(s) {
				return bad("nothing follows the last backslash")
			}
			t.b = s[i]
		case '}':
			return bad(`} without { (an ordinary brace is written \{ or \})`)
		case '{':
			name, _, ok := strings.Cut(s[i+1:], "}")
			switch {
			case !ok || !isCaptureName(name):
				return bad(`{%s: a capture is {name}, of letters, digits and _, and begins with a letter (an ordinary brace is written \{ or \})`, name)
			case len(p.captures) == maxCaptures:
				return bad("it has more than %d captures", maxCaptures)
			}
			for _, c := range p.captures {
				if c == name {
					return bad("it captures {%s} twice", name)
				}
			}
			p.captures = append(p.captures, name)
			t = token{kind: capture, dots: dots}
			i += len(name) + 1
		}
		if n := len(p.tokens); n > 0 {
			last := &p.tokens[n-1]
			switch {
			case last.kind == capture && t.kind != oneByte:
				return bad("an ordinary character, or nothing, must follow a capture: else it is not known where it ends")
			case last.kind == capture:
				last.b, last.ends = t.b, true
			case last.kind == anyBytes && t.kind == anyBytes:
				continue
			}
		}
		p.tokens = append(p.tokens, t)
	}
	return p, nil
}

// everything reports whether the pattern matches every name.
func (p *pattern) everything() bool { return len(p.tokens) == 1 && p.tokens[0].kind == anyBytes }

// A span is the place of a capture in a name.
type span struct{ at, end int }

// captures are where each of a pattern's lies.
type captures [maxCaptures]span

// match reports whether the whole name matches, and where its captures lie. Each * takes as
// little as it can, from the left. It allocates nothing, and its time grows with the name's
// length alone, as far as the pattern's own is no matter.
func (p *pattern) match(name []byte, c *captures) bool {
	rest, at, nth := p.tokens, 0, 0
	floating := false // a * came before: the segment may begin later
	for {
		segment := rest
		for i, t := range rest {
			if t.kind == anyBytes {
				segment = rest[:i]
				break
			}
		}
		last := len(segment) == len(rest)
		for {
			end, n, again := matchSegment(segment, name, at, nth, c)
			if end >= 0 && (!last || end == len(name)) {
				at, nth = end, n
				break
			}
			if !floating || again <= at || again > len(name) {
				return false
			}
			at = again
		}
		if last {
			return true
		}
		rest, floating = rest[len(segment)+1:], true
		if len(rest) == 0 {
			return true // a * ends it
		}
	}
}

// matchSegment matches tokens without a * from a position on. It returns where the match
// ends, or a negative number and the next position at which one may begin.
//
// INVARIANT: a position that is passed over cannot begin a match. All that begin before the
// byte at which the first capture ends, or failed to, end it there too, and fail in the same way.
func matchSegment(tokens []token, name []byte, at, nth int, c *captures) (end, n, again int) {
	pos, again := at, at+1
	first := true
	for i, t := range tokens {
		if t.kind != capture {
			if pos == len(name) || !t.takes(name[pos]) {
				return -1, nth, again
			}
			pos++
			continue
		}
		from := pos
		for pos < len(name) && t.takes(name[pos]) {
			pos++
		}
		if first {
			// i single bytes come before it.
			first, again = false, max(again, pos-i)
		}
		if pos == from {
			return -1, nth, again
		}
		c[nth] = span{from, pos}
		nth++
	}
	return pos, nth, again
}
