package resp

import (
	"bytes"
	"strconv"
	"strings"
)

// served is the server's reply under way.
type served struct {
	reader replyReader
	line   []byte // an error at top level, held until it is whole
	inLine bool
	plain  bool // the line is too long to be one of ours: pass the rest
	kept   []byte
	keep   bool // the reply is an answer in a flow
	push   bool // it is none to a command
}

// between reports whether the client has only whole replies so far.
func (s *served) between() bool { return s.reader.between() && !s.inLine }

// maxErrorLine is longer than the server's error about a substitute.
const maxErrorLine = 1024

// fromServer takes bytes of the server's: it passes replies on, replaces those to
// substitutes, and keeps those that a flow awaits. It keeps nothing of b. After an error
// the session must be closed.
func (c *core) fromServer(b []byte) error {
	s := &c.served
	for len(b) > 0 && !c.closed {
		if s.inLine {
			b = c.errorBytes(b)
			continue
		}
		if s.reader.between() {
			if c.ended {
				c.close()
				return nil
			}
			if b[0] == '-' {
				s.inLine, s.plain, s.line = true, false, s.line[:0]
				continue
			}
			s.keep, s.push = c.starts(b[0]), b[0] == '>'
		}
		n, ended, err := s.reader.advance(b)
		if err != nil {
			return err
		}
		if s.keep {
			// A session that ends in the middle of an answer has forgotten the flow.
			s.kept = append(s.kept, b[:max(0, min(n, c.flow.step.keeps()-len(s.kept)))]...)
			if c.flow.step == stepList && isMessage(s.kept) {
				c.down = append(c.down, s.kept...)
				s.kept, s.keep = s.kept[:0], false
			}
		} else {
			c.down = append(c.down, b[:n]...)
		}
		b = b[n:]
		if ended && !s.keep && !s.push {
			c.replied()
		}
		if ended && s.keep {
			kept := s.kept
			s.kept, s.keep = s.kept[:0], false
			if cap(kept) > maxIdleBuffer {
				s.kept = nil
			}
			c.answered(kept)
		}
	}
	if c.ended {
		c.close()
	}
	return nil
}

// starts looks at the type of a reply that begins, and reports whether it is an answer in
// a flow.
func (c *core) starts(kind byte) bool {
	f := &c.flow
	if c.conn.replyOn && kind == '+' {
		c.conn.replyOff, c.conn.replyOn = false, false // no message of a subscription is this
	}
	switch {
	case f.step == stepAuthenticate:
		f.aMap = f.aMap || kind == '%'
		f.anArr = f.anArr || kind == '*'
		f.ok = f.ok || kind == '+'
	case !f.step.captures() || kind == '>':
	case (f.step == stepLook || f.step == stepUnname) && kind == '*':
		// A message of a RESP2 subscription, in which CLIENT INFO and SETNAME are errors.
	default:
		return true
	}
	return false
}

// isMessage reports whether a reply under way is a message of a RESP2 subscription, as
// far as it can be told.
func isMessage(b []byte) bool {
	count, rest, _ := bytes.Cut(b, []byte("\r\n"))
	size, rest, _ := bytes.Cut(rest, []byte("\r\n"))
	word, _, whole := bytes.Cut(rest, []byte("\r\n"))
	if len(count) != 2 || count[0] != '*' || len(size) < 2 || size[0] != '$' || !whole {
		return false
	}
	switch string(word) {
	case "message", "pmessage", "smessage", "subscribe", "psubscribe", "ssubscribe",
		"unsubscribe", "punsubscribe", "sunsubscribe":
		return true
	}
	return false
}

// errorBytes takes bytes of an error at top level and returns what follows it.
func (c *core) errorBytes(b []byte) []byte {
	s := &c.served
	end := bytes.IndexByte(b, '\n')
	piece := b
	if end >= 0 {
		piece = b[:end+1]
	}
	switch {
	case s.plain:
		c.down = append(c.down, piece...)
	case len(s.line)+len(piece) > maxErrorLine && !c.flow.step.captures():
		s.plain = true
		c.down = append(c.down, s.line...)
		c.down = append(c.down, piece...)
	default:
		s.line = append(s.line, piece[:min(len(piece), maxAnswer-len(s.line))]...)
	}
	if end < 0 {
		return nil
	}
	s.inLine = false
	if s.plain {
		c.replied()
	} else {
		c.errorLine(s.line)
	}
	return b[end+1:]
}

// errorLine deals with a whole error at top level.
func (c *core) errorLine(line []byte) {
	f := &c.flow
	if f.step.captures() {
		c.answered(line)
		return
	}
	if what, of, ours := c.isSubstitute(line); ours {
		if what == codeSentinel {
			if n, err := strconv.ParseUint(of, 10, 64); err == nil {
				c.reached(n)
			}
			return
		}
		c.replied()
		c.down = append(c.down, c.words(what, of)...)
		return
	}
	c.replied()
	if f.step == stepAuthenticate {
		f.erred = true
	}
	if c.poison != "" && bytes.HasPrefix(line, []byte("-ERR Protocol error")) {
		c.down = append(c.down, c.poison...)
		return
	}
	c.down = append(c.down, c.redirection(line)...)
	if c.bound != nil && isReadOnly(line) {
		// The server has become a replica. Were it promoted again, a connection that it
		// kept could write for a term that is over by then.
		c.end("")
	}
}

// isReadOnly reports whether an error says that the server is a replica; EXEC has other words
// for it.
func isReadOnly(line []byte) bool {
	return bytes.HasPrefix(line, []byte("-READONLY")) ||
		bytes.HasPrefix(line, []byte("-EXECABORT")) && bytes.Contains(line, []byte(": READONLY"))
}

// isSubstitute reads the error with which the server refused a substitute.
func (c *core) isSubstitute(line []byte) (what code, of string, ours bool) {
	at := bytes.Index(line, []byte(c.cfg.nonce))
	if at < 0 {
		return 0, "", false
	}
	rest := line[at+len(c.cfg.nonce):]
	if len(rest) < 3 || rest[0] != ':' || rest[2] != ':' {
		return 0, "", false
	}
	// The server quotes the name: 'name' or, before Redis 7, `name`.
	of = string(rest[3:])
	if i := strings.IndexAny(of, "'`"); i >= 0 {
		of = of[:i]
	}
	return code(rest[1]), of, true
}
