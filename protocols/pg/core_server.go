package pg

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/fenceproxy/fenceproxy/policy"
)

// maxHeld is the longest server message that is looked into; the ones that matter are
// short, and longer ones pass.
const maxHeld = 64 << 10

// server takes bytes of the server's.
func (c *core) server(in []byte) step {
	i := 0
	for {
		if c.sBody > 0 {
			n := min(c.sBody, len(in)-i)
			c.sBody -= n
			if c.sDrop {
				return step{pass: i, drop: n, next: c.more(), need: 1}
			}
			i += n
			if c.sBody > 0 {
				return step{pass: i, next: read, need: 1}
			}
		}
		if c.ending != nil && !c.ended {
			// Invariant 4: the one FATAL, between two messages.
			c.ended = true
			return step{pass: i, drop: len(in) - i, write: c.ending, next: stop}
		}
		if c.ended {
			return step{pass: i, drop: len(in) - i, next: read, need: 1} // until it closes
		}
		rest := in[i:]
		if len(rest) < 5 {
			return step{pass: i, next: read, need: 5}
		}
		typ, n := header(rest)
		if n < 4 {
			c.end(report{severity: "FATAL", code: "08P01", message: "the server sent a malformed message",
				detail: "Its length is less than that of its own header.", hint: "Connect again; if that does not help, what answers at the upstream address is not PostgreSQL."})
			continue
		}
		if (c.inject.asks && answersPath(typ) || c.looksInto(typ)) && n < maxHeld {
			size := 1 + n
			if len(rest) < size {
				return step{pass: i, next: read, need: size}
			}
			if s, done := c.look(typ, rest[:size]); !done {
				s.pass += i
				return s
			}
			i += size
			continue
		}
		c.replied(typ)
		c.sBody = n - 4
		c.sDrop = c.inject.active && (typ == 'C' || c.inject.asks && answersPath(typ))
		if c.sDrop {
			if c.inject.asks {
				c.ruled.asked.failed = true // that long it is no path
			}
			c.inject.owed--
			c.sBody += 5
			continue
		}
		i += 5
	}
}

func (c *core) more() next {
	if c.sBody > 0 {
		return read
	}
	c.sDrop = false
	return again
}

// looksInto says whether a server message must be understood.
func (c *core) looksInto(typ byte) bool {
	switch typ {
	case 'E', 'S', 'Z':
		return true
	case '1', '2', '3', 'C':
		return c.ruled != nil && c.ruled.open.owed > 0
	case 'K', 'R':
		return c.phase == login
	}
	return false
}

func (c *core) replied(typ byte) {
	if typ == 'E' {
		c.ends.fail()
		c.track.failed(false)
	} else if !c.inject.active {
		c.track.replied(typ)
	}
}

// look decides on a server message that must be understood. It reports true when the
// message passes as it is.
func (c *core) look(typ byte, msg []byte) (step, bool) {
	body := msg[5:]
	if c.inject.asks && answersPath(typ) && !fatal(typ, body) {
		c.answeredPath(typ, body)
		return step{drop: len(msg), next: again}, false
	}
	switch typ {
	case '1', '2', '3', 'C':
		c.openAnswered(typ)
		return step{drop: len(msg), next: again}, false
	case 'R':
		return c.authentication(msg, body)
	case 'K':
		if len(body) >= 4 {
			c.pid = binary.BigEndian.Uint32(body)
		}
	case 'S':
		c.parameter(body)
	case 'E':
		return c.failure(msg, body)
	case 'Z':
		return c.atRest(msg, body)
	}
	return step{}, true
}

// parameter notes a ParameterStatus.
func (c *core) parameter(body []byte) {
	name, rest, ok := cut(body)
	if !ok {
		return
	}
	value, _, _ := cut(rest)
	switch string(name) {
	case "default_transaction_read_only":
		c.readOnly = on
		if string(value) != "on" {
			c.readOnly = off
		}
		if c.readOnly == off && !c.isBound() {
			// Invariant 1: the client went round the policy. No byte of its follows.
			c.end(report{severity: "FATAL", code: "25006",
				message: "this session became read-write without a live token; it is closed",
				detail:  "A function or a setting outside the proxy's sight changed default_transaction_read_only.",
				hint:    "Connect again, and leave default_transaction_read_only alone; to write, present the live token."})
		}
	case "search_path": // reported by 18 and later
		if c.ruled != nil {
			c.ruled.setPath(policy.SearchPath{})
		}
	case "in_hot_standby":
		c.standby = string(value) == "on"
	// Once seen, for good: RESET, ROLLBACK and the like bring a start-up value back, and the
	// report of that may come after the next text was judged.
	case "client_encoding":
		c.unsafe = c.unsafe || policy.UnsafeEncoding(string(value))
	case "standard_conforming_strings":
		c.scsOff = c.scsOff || string(value) != "on"
	}
}

// failure decides on an ErrorResponse.
func (c *core) failure(msg, body []byte) (step, bool) {
	state := string(field(body, 'C'))
	if fatal('E', body) {
		c.died = strings.HasPrefix(state, "57P")
		if c.isBound() && state == "57P01" {
			c.held = bytes.Clone(msg)
			return step{drop: len(msg), next: ask}, false
		}
		c.ended = true
		return step{}, true
	}
	if c.inject.active {
		c.inject.failed = true
		return step{drop: len(msg), next: again}, false
	}
	c.ends.fail()
	if c.ruled != nil {
		c.ruled.failed = true
	}
	c.track.failed(state == "08P01")
	if c.ruled != nil && c.ruled.open.is {
		if with, ok := c.openFailed(state, body); ok {
			return step{drop: len(msg), write: with, next: again}, false
		}
	}
	if r, ok := c.refusedError(body); ok {
		return step{drop: len(msg), write: r.append(nil), next: again}, false
	}
	return step{}, true
}

// fatal says whether a message is an error that ends the session.
func fatal(typ byte, body []byte) bool {
	severity := field(body, 'V')
	return typ == 'E' && (string(severity) == "FATAL" || string(severity) == "PANIC")
}

// atRest decides on a ReadyForQuery.
func (c *core) atRest(msg, body []byte) (step, bool) {
	if len(body) > 0 {
		c.status = body[0]
	}
	switch {
	case c.phase == login:
		c.held = bytes.Clone(msg)
		if c.readOnly != on {
			c.end(report{severity: "FATAL", code: "0A000", message: "the server did not confirm that the session started read-only",
				detail: "It did not report default_transaction_read_only as on at the end of the login.", hint: "The proxy needs PostgreSQL 14 or later, reached directly."})
			return step{drop: len(msg), next: again}, false
		}
		c.phase = settling
		return step{drop: len(msg), next: admit}, false
	case c.inject.asks:
		c.inject = injection{}
		c.knowsPath()
		return step{drop: len(msg), next: again}, false
	case c.inject.active && (c.inject.owed <= 0 || c.inject.failed):
		failed := c.inject.failed
		c.inject = injection{}
		if failed {
			c.end(report{severity: "FATAL", code: "FP004", message: "the session was bound but could not be made read-write",
				detail: "The server refused SET default_transaction_read_only = off.", hint: "See the server's log, and connect again."})
			return step{drop: len(msg), next: again}, false
		}
		s := step{drop: len(msg), next: again}
		if c.phase == settling {
			s.write = c.release(nil)
		}
		return s, false
	case c.inject.active:
		// An answer to a Sync that the tracker took for swallowed: the client's own.
		return step{}, true
	}
	c.track.ready()
	c.ends.rest()
	c.tried = false
	if c.ruled != nil && c.status == 'I' {
		c.ruled.endedTransaction()
	}
	if c.track.state() == idle {
		if c.ruled != nil {
			c.ruled.rest(c.status)
		}
		if c.wishOpen && c.status == 'I' {
			c.wish, c.wishOpen = c.readOnly == on, false
		}
		if c.stopping {
			c.shutdown()
		}
	}
	return step{}, true
}
