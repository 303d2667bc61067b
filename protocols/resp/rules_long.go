package resp

// A command that is passed on in pieces is judged key by key, as the keys pass.
//
// INVARIANT: of such a command nothing that follows a key that may not be written goes
// upstream. What came before it the server drops with the connection, which ends in the middle
// of the command.

// longVerdict is verdict for a command of which the name is there. keyed says that its keys
// are judged as they come, and that it is not refused so far.
func (c *core) longVerdict(cmd *command) (verdict code, keyed bool) {
	switch {
	case c.barred(cmd):
		return codeBarred, false
	case c.ruling == nil || !c.rulesDecide(cmd):
		return c.verdict(cmd), false
	case cmd != nil && c.stream.keys.Begin(cmd.RedisCommand, c.stream.argc):
		return codeNone, true
	}
	return c.needsAll(cmd), false
}

// maxNumber is longer than any number that the servers take.
const maxNumber = 32

// looksFor is how much of the argument that begins must be held to judge it.
func (c *core) looksFor() int {
	s := &c.stream
	most := int64(0)
	switch {
	case s.keys.Key(s.argi):
		most = maxHeld
	case s.keys.Number(s.argi):
		most = maxNumber
	case c.mustLook(s.cmd, s.argi, s.argc):
		most = int64(len(fencePrefix))
	}
	return int(min(s.size, most))
}

// longKey judges an argument if it is a key, or says how many there are. False means that
// the shell must be asked first.
func (c *core) longKey(arg []byte) bool {
	s := &c.stream
	whole := s.size == int64(len(arg))
	var verdict code
	switch {
	case s.keys.Number(s.argi):
		if whole && s.keys.Count(s.argi, arg) {
			return true
		}
		if verdict = c.needsAll(s.cmd); verdict == codeNone {
			s.ruled, s.withheld = false, false
			return true
		}
	case !s.keys.Key(s.argi):
		return true
	case !whole:
		verdict = c.denied("a key of more than 16 KiB cannot be held against the rules of this listener")
	default:
		if verdict = c.needsKey(s.cmd, arg); verdict == codeNone {
			s.withheld = false
			return true
		}
	}
	if c.lead != nil && !s.begun && c.follow(s.cmd, verdict) {
		return false
	}
	verdict, again := c.bindsFirst(s.cmd, verdict)
	if again {
		return false
	}
	c.retried = false
	c.refuseLate(verdict)
	return true
}

// lineFor is the answer to a command that is refused.
func (c *core) lineFor(what code, cmd *command) string {
	if c.ruling != nil && (what == codeWrite || what == codeUnknown || what == codeDenied) {
		return c.ruling.why
	}
	return c.words(what, nameOf(cmd))
}
