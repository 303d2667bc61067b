package pg

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/fenceproxy/fenceproxy/policy"
)

// A session without any term may write what rules open to everybody. The server holds it
// back as every reader, so a transaction is made read-write for that: by SET
// transaction_read_only = off, before anything else in it. It ends with the transaction; the
// session itself stays read-only.
//
// Invariant: in such a transaction nothing is run but what policy.SQLTargets.OpenToAll lets
// through: not what was prepared or opened before it, and not what readers may do elsewhere,
// where the server would refuse a write that the words of a statement do not show.
type openTransaction struct {
	is      bool
	owed    int             // answers to what the proxy sent
	shift   int             // characters before the client's own text
	portals map[string]bool // those that were bound in it
}

// maxOpenPortals bounds the portals of such a transaction.
const maxOpenPortals = 200

const openSQL = "SET transaction_read_only=off"

// openMessages make the transaction read-write, and leave the client's unnamed statement and
// portal alone.
//
// INVARIANT: no client runs ownOpen, which an error may leave at the server: its transaction
// would be read-write, and nobody would know.
var openMessages = ownStatement(appendMessage(nil, 'C', "S"+ownOpen), ownOpen, openSQL)

const ownOpen = "fenceproxy_open"

// openText deals with a text that writes nothing but what is open to everybody.
func (c *core) openText(typ byte, name, text []byte, size int, t *policy.SQLTargets) (step, bool) {
	r := c.ruled
	if t.Statements != 1 {
		return c.refuseRuled(typ, name, size, notOpen("a text of several statements", "Send each statement in a message of its own, between BEGIN and COMMIT where they belong together."))
	}
	if ok, why := r.openToAll(t); !ok {
		return c.refuseRuled(typ, name, size, notOpen(why, ""))
	}
	if typ == 'P' {
		if s, done := c.begun(typ, name, size); !done {
			return s, false
		}
		r.close(closing{name: unnamed(name)})
		if !c.keeps(name, t, true) {
			return c.refuseRuled(typ, name, size, notKept(name))
		}
		c.ends.parsed(name, false)
		c.letThrough(typ, name, false)
		return step{}, true
	}
	if !r.open.is {
		if why, ok := c.mayOpen(); !ok {
			return c.refuseRuled(typ, name, size, why)
		}
	}
	if why, ok := c.note(typ, name, t); !ok {
		return c.refuseRuled(typ, name, size, why)
	}
	c.letThrough(typ, name, false)
	if r.open.is {
		return step{}, true
	}
	// In one text, for two messages would be two transactions.
	const prefix = openSQL + ";"
	r.open = openTransaction{is: true, owed: 1, shift: len(prefix)}
	return c.replace(size, appendQuery(nil, prefix+string(text))), false
}

// unnamed is a prepared statement's name, where it is the empty one; else a name that no
// statement has.
func unnamed(name []byte) string {
	if len(name) == 0 {
		return ""
	}
	return "\x00"
}

// mayOpen says whether a transaction can be made read-write now.
func (c *core) mayOpen() (report, bool) {
	switch {
	case c.standby:
		return notOpen("a standby", "Connect to the primary."), false
	case c.track.state() != idle:
		return notOpen("a pipeline that began with something else", "Send Sync first, or begin with the open table."), false
	case c.status == 'E':
		return notOpen("a transaction that has failed", "Send ROLLBACK first."), false
	}
	return report{}, true
}

// begun sees to it that the transaction is read-write, before a message of the extended
// protocol. It reports true when that is so.
func (c *core) begun(typ byte, name []byte, size int) (step, bool) {
	if c.ruled.open.is {
		return step{}, true
	}
	if why, ok := c.mayOpen(); !ok {
		return c.refuseRuled(typ, name, size, why)
	}
	c.ruled.leftOpen = true
	c.ruled.open = openTransaction{is: true, owed: 6}
	for _, typ := range []byte("CPBECC") {
		c.track.sent(typ)
	}
	c.out = append(c.out[:0], openMessages...)
	return step{write: c.out, next: again}, false
}

// openRead decides, in an open transaction, on a reader's text that only reads.
func (c *core) openRead(typ byte, name []byte, size int, t *policy.SQLTargets) (step, bool) {
	r := c.ruled
	if !r.open.is {
		return step{}, true
	}
	if s, known := c.knowPath(t); !known {
		return s, false
	}
	if ok, why := r.openToAll(t); !ok {
		return c.refuseRuled(typ, name, size, notOpen(why, ""))
	}
	return step{}, true
}

// openToAll is policy.SQLTargets.OpenToAll in the present search_path, for what a text
// executes too.
func (r *ruling) openToAll(t *policy.SQLTargets) (ok bool, why string) {
	for _, e := range t.Executes {
		all := r.executed(t, e)
		if len(all) == 0 || r.lost {
			return false, "a statement that was prepared before"
		}
		for _, s := range all {
			if fine, what := s.OpenToAll(e.Executing(r.path), r.rules); !fine {
				return false, what
			}
		}
	}
	return t.OpenToAll(r.path, r.rules)
}

// openBind decides on a reader's Bind of a statement, of which sets were kept.
func (c *core) openBind(portal []byte, sets []preparedSet, size int) (step, bool) {
	r := c.ruled
	writes := false
	for _, s := range sets {
		writes = writes || s.writes
	}
	if !writes && !r.open.is {
		return step{}, true
	}
	if r.open.is && (len(sets) == 0 || r.lost) {
		return c.refuseRuled('B', nil, size, notOpen("a statement that was prepared before", ""))
	}
	for _, s := range sets {
		if st, known := c.knowPath(s.t); !known {
			return st, false
		}
		if ok, why := r.openToAll(s.t); !ok {
			return c.refuseRuled('B', nil, size, notOpen(why, ""))
		}
	}
	if s, done := c.begun('B', nil, size); !done {
		return s, false
	}
	if len(r.open.portals) >= maxOpenPortals || !isASCII(portal) {
		return c.refuseRuled('B', nil, size, notOpen("so many portals", ""))
	}
	if r.open.portals == nil {
		r.open.portals = make(map[string]bool)
	}
	r.open.portals[sameName(portal)] = true
	return step{}, true
}

// openAnswered takes an answer to what the proxy sent.
func (c *core) openAnswered(typ byte) {
	c.ruled.open.owed--
	if c.ruled.open.shift == 0 {
		c.track.replied(typ)
	}
}

// openFailed takes an error of the server's in an open transaction: what the proxy sent may
// have failed, or the client's text, which stood behind it.
func (c *core) openFailed(state string, body []byte) ([]byte, bool) {
	o := &c.ruled.open
	own := o.owed > 0
	o.owed = 0
	switch {
	case own && (state == "25001" || state == "0A000"):
		return notOpen("a transaction that has read something, or is inside a savepoint", "Begin the transaction with the statement that writes the open table.").append(nil), true
	case o.shift == 0 || bytes.Contains(body, []byte(c.nonce)):
		return nil, false
	}
	at, err := strconv.Atoi(string(field(body, 'P')))
	if err != nil || at <= o.shift {
		return nil, false
	}
	return withPosition(body, at-o.shift), true
}

// withPosition is an ErrorResponse of the same body, with another position.
func withPosition(body []byte, at int) []byte {
	var fields []string
	for len(body) > 0 && body[0] != 0 {
		f, rest, ok := cut(body)
		if !ok {
			break
		}
		if f[0] == 'P' {
			f = []byte("P" + strconv.Itoa(at))
		}
		fields = append(fields, string(f))
		body = rest
	}
	return appendMessage(nil, 'E', append(fields, "")...)
}

// notOpen says that a session without a token may not do this, although what it writes is
// open to everybody.
func notOpen(what, hint string) report {
	if hint == "" {
		hint = "Present the live token of any election; or name, with their schemas, open tables alone, and no function or type of your own."
	}
	return report{severity: "ERROR", code: "25006",
		message: "write refused: this session has no live token, and may write open tables only in simple statements",
		detail:  fmt.Sprintf("It cannot be told what %s does beyond the open tables: nothing but these may be read and written there.", what), hint: hint}
}
