package resp

// A collector holds a command until it is whole.
type collector struct {
	scan scanner
	held []byte
	line []byte // an inline command in the form of bulks
}

func (l *collector) reset() { l.scan.reset() }

// maxIdleBuffer is how large a buffer may stay between commands.
const maxIdleBuffer = 32 << 10

// maxUp is how much there may be for the server before nothing more is taken from the client:
// what takes a command's place may be longer than the command.
const maxUp = 64 << 10

// full reports whether up must be emptied before the core takes more from the client, also
// of what it holds.
func (c *core) full() bool { return len(c.up) >= maxUp && !c.ended && !c.dead }

// fromClient takes bytes of the client's and returns how many: fewer than given when
// the core begins to wait, or is full. It may change b, and keeps nothing of it.
func (c *core) fromClient(b []byte) (n int) {
	for !c.waiting() && !c.full() {
		if c.ended || c.dead {
			c.cmd.held = nil
			return len(b)
		}
		rest := b[n:]
		if len(c.cmd.held) > 0 {
			c.cmd.held = append(c.cmd.held, rest...)
			n = len(b)
			used := c.take(c.cmd.held)
			c.cmd.held = c.cmd.held[:copy(c.cmd.held, c.cmd.held[used:])]
			if used == 0 {
				return n
			}
			continue
		}
		if cap(c.cmd.held) > maxIdleBuffer {
			c.cmd.held = nil
		}
		if len(rest) == 0 && !c.stream.undecided() {
			return n
		}
		used := c.take(rest)
		n += used
		if used == 0 && !c.waiting() {
			c.cmd.held = append(c.cmd.held, rest...)
			return len(b)
		}
	}
	return n
}

// take judges the commands in b as far as they are whole, and returns how many bytes
// they were.
func (c *core) take(b []byte) (used int) {
	for !c.waiting() && !c.full() && !c.ended && !c.dead {
		skipped := c.conn.skipNext
		if c.stream.active {
			used += c.streamed(b[used:])
			if c.stream.active {
				return used // all of it, or it waits
			}
			c.owes(skipped)
			continue
		}
		if used == len(b) {
			return used
		}
		rest := b[used:]
		scan := &c.cmd.scan
		switch scan.scan(rest) {
		case foundMore:
			return used
		case foundNone:
			c.empty()
		case foundWhole:
			if !c.command(rest[:scan.pos], scan) {
				scan.reset()
				return used
			}
			c.owes(skipped)
		case foundLine:
			if !c.inline(rest[:scan.pos-1]) {
				scan.reset()
				return used
			}
		case foundLong:
			c.stream.begin(false)
			scan.reset()
			continue
		case foundBad:
			c.stream.begin(true)
			scan.reset()
			continue
		case foundTooBig:
			c.refuseForm(inlineTooBig)
			return len(b)
		}
		used += scan.pos
		scan.reset()
	}
	return used
}

// inline judges an inline command, given without its line end.
func (c *core) inline(line []byte) bool {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	raw, argc, ok := splitInline(c.cmd.line[:0], line)
	if cap(raw) <= maxIdleBuffer {
		c.cmd.line = raw
	}
	switch {
	case !ok:
		c.refuseForm([]byte("\"\r\n"))
		return true
	case argc == 0:
		c.empty()
		return true
	}
	var s scanner
	s.reset()
	s.whole(raw, argc)
	skipped := c.conn.skipNext
	if !c.command(raw, &s) {
		return false
	}
	c.owes(skipped)
	return true
}

// empty deals with a command of no words: it is not passed on, but where it takes the
// place of the one that CLIENT REPLY SKIP is for.
func (c *core) empty() {
	if c.conn.skipNext {
		c.conn.skipNext = false
		c.up = append(c.up, "*0\r\n"...)
	}
}

// whole finds the arguments of a command that is known to be whole and well formed.
func (s *scanner) whole(raw []byte, argc int) {
	_, pos, _ := scanHead(raw, 0, '*')
	s.argc = argc
	for s.argi < argc {
		size, at, f := scanHead(raw, pos, '$')
		if f != foundWhole {
			return
		}
		if s.argi < maxSpans {
			s.spans[s.argi] = span{at, int(size)}
		}
		s.argi++
		pos = at + int(size) + 2
	}
	s.pos = pos
}

// inlineTooBig is what the servers refuse as an inline command that does not end.
var inlineTooBig = func() []byte {
	b := make([]byte, maxInline+1)
	for i := range b {
		b[i] = 'x'
	}
	return b
}()

// refuseForm makes the server refuse what the client sent, in the server's own words:
// it is given bytes that it refuses for the same fault, at the same place in the order
// of commands, and then ends the session. Nothing of the client's follows.
func (c *core) refuseForm(bytes []byte) {
	c.up = append(c.up, bytes...)
	c.dead = true
}

// refuseHere is refuseForm with words of our own instead of the server's. The server
// must be at the beginning of an argument.
func (c *core) refuseHere(words string) {
	c.up = append(c.up, "$-1\r\n"...)
	c.poison = words
	c.dead = true
	if c.conn.silent() || c.conn.skipNext {
		c.end("") // the server will say nothing
	}
}
