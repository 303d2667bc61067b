package resp

import (
	"bytes"

	"github.com/fenceproxy/fenceproxy/policy"
)

// A streamer passes a command on in pieces, or drops it, without holding it: one that is
// longer than maxHeld, or malformed. Of each argument that must be looked at it holds
// the first bytes, and nothing from there on goes upstream before they were judged.
type streamer struct {
	active bool
	state  streamState
	hold   []byte // not yet passed on
	lineAt int    // where in hold the line under way begins
	argAt  int    // where in hold the argument under way begins

	cmd    *command
	judged bool
	drop   bool
	code   code // what to answer in its place once it was dropped; zero: nothing
	begun  bool // the server has the beginning of it

	keys     policy.KeyCursor // with rules: where the keys are that it writes
	ruled    bool             // keys is used
	withheld bool             // nothing is passed on before the first of them was judged

	argc, argi int
	size       int64 // of the argument under way
	look       int   // bytes of it still to be held
	left       int64 // bytes of what is passed or dropped still to come
	nul        bool  // the line that is too long has a NUL
}

type streamState uint8

const (
	inCount   streamState = iota // the line that says how many arguments
	inHead                       // the line that says an argument's length
	inLook                       // the argument's bytes that are held
	inBody                       // the others
	inEnd                        // the two bytes after it
	inBadLine                    // a line that the server will refuse
)

// begin begins at a command's first byte. A malformed command is judged already: its
// form will be refused when the place is reached.
func (s *streamer) begin(malformed bool) {
	*s = streamer{active: true, hold: s.hold[:0], judged: malformed, drop: malformed}
}

// undecided reports whether the command waits for the shell's answer.
func (s *streamer) undecided() bool { return s.active && s.state == inLook && s.look == 0 }

// streamed takes bytes of the command under way, and returns how many.
func (c *core) streamed(b []byte) (n int) {
	s := &c.stream
	for s.active && !c.waiting() && !c.dead && !c.ended {
		if s.undecided() {
			if !c.looked() {
				return n
			}
			continue
		}
		if n == len(b) {
			return n
		}
		rest := b[n:]
		switch s.state {
		case inCount, inHead:
			n += c.head(rest)
		case inLook:
			k := min(s.look, len(rest))
			s.hold = append(s.hold, rest[:k]...)
			s.look -= k
			n += k
		case inBody:
			k := int(min(s.left, int64(len(rest))))
			c.emit(rest[:k])
			n += k
			if s.left -= int64(k); s.left == 0 {
				s.state, s.left = inEnd, 2
			}
		case inEnd:
			// The servers do not look at these two bytes; the right ones are sent.
			n++
			if s.left--; s.left == 0 {
				c.emit([]byte{'\r', '\n'})
				s.argi++
				c.nextArg()
			}
		case inBadLine:
			n += c.badLine(rest)
		}
	}
	return n
}

// emit passes bytes of the command on, holds them while it is not judged, or drops them.
func (c *core) emit(b []byte) {
	s := &c.stream
	switch {
	case !s.judged, s.withheld && len(s.hold)+len(b) <= maxHeld:
		s.hold = append(s.hold, b...)
	case !s.drop:
		s.withheld = false
		c.up = append(c.up, s.hold...)
		c.up = append(c.up, b...)
		s.hold, s.begun = s.hold[:0], true
	default:
		s.hold = s.hold[:0]
	}
}

// nextArg begins an argument, or ends the command.
func (c *core) nextArg() {
	s := &c.stream
	if s.argi < s.argc {
		s.state, s.lineAt = inHead, len(s.hold)
		return
	}
	s.active = false
	switch {
	case !s.drop:
		c.passed(s.cmd, s.argc)
	case s.code == codeMoved:
		c.sendToPrimary()
	case s.code != 0:
		c.substitute(s.code, s.cmd)
		c.turnAway(s.code == codeBarred)
	}
}

// head takes bytes of a line that says a length.
func (c *core) head(b []byte) int {
	s := &c.stream
	k := min(len(b), maxHead+2-(len(s.hold)-s.lineAt))
	if i := bytes.IndexByte(b[:k], '\r'); i >= 0 {
		k = min(i+2, k)
	}
	if n := len(s.hold); n > s.lineAt && s.hold[n-1] == '\r' {
		k = 1
	}
	s.hold = append(s.hold, b[:k]...)
	kind := byte('$')
	if s.state == inCount {
		kind = '*'
	}
	size, _, f := scanHead(s.hold, s.lineAt, kind)
	switch {
	case f == foundMore:
	case f == foundBad, kind == '$' && size < 0, kind == '*' && size > maxArgc:
		line := s.hold[s.lineAt:]
		end := bytes.IndexByte(line, '\r')
		if end >= 0 {
			line = line[:end]
		}
		s.nul = bytes.IndexByte(line, 0) >= 0
		s.left = maxInline - int64(len(s.hold)-s.lineAt)
		s.state = inBadLine
		if end >= 0 && !s.nul {
			c.refuseLine()
		}
	case kind == '*':
		s.argc = int(size)
		if size > hugeArgc && !s.drop {
			c.up = append(c.up, s.hold...)
			s.hold, s.begun = s.hold[:0], true
		}
		c.nextArg()
	default:
		s.size, s.argAt, s.look = size, len(s.hold), 0
		s.state = inLook
		switch {
		case !s.judged:
			s.look = int(min(size, maxName+1))
		case !s.drop && s.ruled:
			s.look = c.looksFor()
		case !s.drop && c.mustLook(s.cmd, s.argi, s.argc):
			s.look = int(min(size, int64(len(fencePrefix))))
		}
	}
	return k
}

// looked judges what is held of the argument under way. False means that the shell must
// be asked first.
func (c *core) looked() bool {
	s := &c.stream
	arg := s.hold[s.argAt:]
	switch {
	case !s.judged:
		if !c.judgeLong(arg) {
			return false
		}
	case !s.drop && s.ruled && !c.longKey(arg):
		return false
	case s.drop, c.dead:
	case c.mustLook(s.cmd, s.argi, s.argc) && isFenceKey(arg):
		c.refuseLate(codeFenceKey)
	}
	if c.dead || c.ended {
		return true
	}
	if s.left = s.size - int64(len(arg)); s.left > 0 {
		s.state = inBody
	} else {
		s.state, s.left = inEnd, 2
	}
	if s.judged {
		c.emit(nil)
	}
	return true
}

// refuseLate refuses the command under way, of which the server may have the beginning, at
// the beginning of an argument.
func (c *core) refuseLate(what code) {
	s := &c.stream
	s.code, s.withheld, s.ruled = what, false, false
	if s.begun {
		c.refuseHere(c.lineFor(what, s.cmd))
		return
	}
	s.drop = true
}

// judgeLong judges a command by its name, which is held, and by its second word where
// that selects what it does.
func (c *core) judgeLong(arg []byte) bool {
	s := &c.stream
	cmd, code := s.cmd, codeNone
	switch {
	case s.size > maxName, !validWord(arg):
		cmd, code = nil, codeNoName
	case s.argi == 0:
		var known bool
		if cmd, known, code = c.identify(arg); !known {
			return false
		}
		if cmd != nil && cmd.Container && s.argc > 1 {
			s.cmd = cmd
			return true // judged with the next word
		}
	default:
		cmd = cmd.sub(lowered(&c.lower, arg))
	}
	ruled := false
	if code == codeNone {
		code, ruled = c.longVerdict(cmd)
	}
	if c.lead != nil && !s.begun && code != codeNoName && c.follow(cmd, code) {
		return false
	}
	code, again := c.bindsFirst(cmd, code)
	if again {
		return false
	}
	c.retried = false
	if code == codeNone && cmd != nil && !cmd.verb.mayBeLong() {
		code = codeTooLong
	}
	s.cmd, s.code = cmd, code
	s.judged, s.drop = true, code != codeNone
	s.ruled, s.withheld = ruled && !s.drop, ruled && !s.drop
	if s.drop {
		c.refuseLate(code)
	}
	return true
}

// bindsFirst begins to bind, where that may help a command that is refused and of which the
// server has nothing yet: it is to be judged again then. Otherwise it says how it is refused.
func (c *core) bindsFirst(cmd *command, code code) (_ code, again bool) {
	if (code == codeWrite || code == codeBarred) && c.retry != nil && cmd != nil && !c.stream.begun {
		if c.bindsNow() {
			return code, true
		}
		if c.replica && (cmd.First > 0 || cmd.Movable) {
			code = codeMoved
		}
		if c.early {
			code = codeEarly
		}
	}
	return code, false
}

// badLine takes bytes of a line that is too long to say a length, until it ends or the
// server's limit is passed.
func (c *core) badLine(b []byte) int {
	s := &c.stream
	k := int(min(s.left+1, int64(len(b))))
	for i, x := range b[:k] {
		if s.nul = s.nul || x == 0; s.nul {
			break // the server's search for the end stops here for ever
		}
		if x == '\r' {
			c.refuseLine()
			return i + 1
		}
	}
	if s.left -= int64(k); s.left < 0 {
		c.refuseTooBig()
	}
	return k
}

// refuseLine makes the server refuse the line that is held.
func (c *core) refuseLine() {
	line, _, _ := bytes.Cut(c.stream.hold[c.stream.lineAt:], []byte{'\r'})
	b := append(c.atLine(), line[:min(len(line), maxHead)]...)
	c.refuseForm(append(b, '\r', '\n'))
}

// refuseTooBig makes the server refuse a line that does not end.
func (c *core) refuseTooBig() {
	kind := byte('$')
	if c.stream.argc == 0 {
		kind = '*'
	}
	c.refuseForm(append(append(c.atLine(), kind), inlineTooBig...))
}

// atLine is what brings the server from where it is to the line under way.
func (c *core) atLine() []byte {
	if c.stream.argc == 0 || c.stream.begun {
		return nil
	}
	return []byte("*1\r\n")
}
