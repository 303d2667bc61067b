package pg

// client takes bytes of the client's.
func (c *core) client(in []byte) step {
	i := 0
	for {
		if c.over() {
			return step{drop: len(in), next: stop}
		}
		if c.cBody > 0 {
			n := min(c.cBody, len(in)-i)
			if c.cDrop {
				return c.dropBody(i, n)
			}
			c.cBody -= n
			i += n
			if c.cBody > 0 {
				return step{pass: i, next: read, need: 1}
			}
		}
		if c.mustRepair() {
			c.out = append(c.out[:0], c.injection()...)
			return step{pass: i, write: c.out, next: wait}
		}
		if c.hold() {
			return step{pass: i, next: wait}
		}
		rest := in[i:]
		if len(rest) > 0 && c.drains() {
			return step{pass: i, next: wait}
		}
		if len(rest) > 0 && c.phase == ready && frontendLimit(rest[0]) == 0 {
			// The server ends the session at the type alone.
			return step{pass: i, write: badHeader(rest[0], 4), next: stop}
		}
		if len(rest) < 5 {
			return step{pass: i, next: read, need: 5}
		}
		typ, n := header(rest)
		if c.phase != ready {
			if c.mustLogIn(typ) {
				// The server says at the type alone what it expected. Nothing of the body goes upstream.
				return step{pass: i, write: []byte{typ, 0, 0, 0, 4}, next: stop}
			}
			if !c.mayLogIn(typ) {
				return step{pass: i, next: wait}
			}
			if n < 4 || n > maxAuthMessage {
				// The server refuses it at the header, in words of its own.
				c.out = append(c.out[:0], rest[:5]...)
				return step{pass: i, write: c.out, next: stop}
			}
			if typ == 'p' {
				if s, done := c.answered(rest, 1+n); !done {
					s.pass += i
					return s
				}
				c.asked = false
			}
			i += 5
			c.cBody = n - 4
			continue
		}
		if n < 4 || n > frontendLimit(typ) {
			// Or at the header, in its own words and after what it owes.
			return step{pass: i, write: badHeader(typ, n), next: stop}
		}
		s, done := c.follow(typ, rest, 1+n)
		if done {
			s, done = c.inspect(typ, rest, 1+n)
		}
		if !done {
			s.pass += i
			return s
		}
		// Let it through.
		i += 5
		c.cBody = n - 4
	}
}

// maxAuthMessage is the server's limit on authentication messages.
const maxAuthMessage = 65535

// mayLogIn says whether a message may go upstream before the session is ready. All
// others wait: no statement goes upstream before the credential is settled. Terminate
// does too, unless it answers the server: it would end the server's process before the
// client got what it is owed.
func (c *core) mayLogIn(typ byte) bool {
	return c.phase == login && (typ == 'p' && !c.authOK || typ == 'X' && c.asked)
}

// mustLogIn says whether a message comes where the server waits for an answer to authenticate.
func (c *core) mustLogIn(typ byte) bool {
	return c.phase == login && c.asked && (c.sasl <= offered || c.sasl == challenged) && typ != 'p' && typ != 'X'
}

// badHeader is a header that the server refuses: of an unknown type, with no body, or of
// a length that is out of range.
func badHeader(typ byte, n int) []byte {
	return []byte{typ, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// hold says whether the next client message must wait.
func (c *core) hold() bool {
	return c.phase == settling || c.inject.active || c.setting == admitting || c.track.full() ||
		c.suspect && c.track.state() == willDrain
}

// drains says whether the next client message must wait for the answer to the one before: a
// reader's, in which the server reports whether a function made the session read-write. Until
// there is such a message nobody waits.
func (c *core) drains() bool {
	return !c.isBound() && c.track.state() == willDrain
}

// mustRepair says whether a bound session came to rest read-only, after DISCARD ALL or
// RESET gave it its start-up settings, and must be made read-write before its client's
// next message. One whose client wants it read-only has lost its proofs alone.
func (c *core) mustRepair() bool {
	if !c.suspect || c.inject.active || c.track.state() != idle || c.status != 'I' {
		return false
	}
	lostProofs := c.reset && len(c.proofs) > 0
	c.suspect, c.reset = false, false
	return c.isBound() && c.readOnly == on && (!c.wish || lostProofs)
}

// sent records a message that goes upstream.
func (c *core) sent(typ byte) {
	c.judged = judgement{}
	c.track.sent(typ)
	if c.isBound() && (typ == 'S' || typ == 'Q') && (c.resetUnnamed || c.resetNamed) {
		c.suspect, c.reset = true, true
	}
}

// dropBody forgets a body, and then sends what replaces the message.
func (c *core) dropBody(i, n int) step {
	c.cBody -= n
	if c.cBody > 0 {
		return step{pass: i, drop: n, next: read, need: 1}
	}
	c.cDrop = false
	return step{pass: i, drop: n, write: c.cAfter, next: again}
}

// replace drops a message of size bytes, of which the client may have sent only some,
// and sends another instead.
func (c *core) replace(size int, with []byte) step {
	c.cBody, c.cDrop, c.cAfter = size, true, with
	return step{next: again}
}
