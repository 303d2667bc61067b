package pg

import (
	"bytes"
	"encoding/binary"

	"github.com/fenceproxy/fenceproxy/policy"
)

// Where a name without a schema is written, the server is asked for the search_path on the
// session's own connection, before the message that names it: whatever changed it, and
// wherever, is known then. That takes a round trip after each change, and none else.

// A pathAnswer is what the server answered so far.
type pathAnswer struct {
	values []string // search_path, role, session_authorization
	failed bool
}

// askPath asks without touching what the client may have: the unnamed statement and
// portal are its own. SHOW takes no snapshot, so that a transaction may still set how it is
// isolated.
var askPath = func() []byte {
	var b []byte
	for _, setting := range []string{"search_path", "role", "session_authorization"} {
		b = ownStatement(b, "fenceproxy_path", "SHOW "+setting)
	}
	return append(b, 'S', 0, 0, 0, 4)
}()

// ownStatement runs a statement of the proxy's own, with a named statement and portal that it
// closes.
func ownStatement(b []byte, own, sql string) []byte {
	b = appendParse(b, own, sql)
	b = append(b, 'B')
	b = binary.BigEndian.AppendUint32(b, uint32(4+2*(len(own)+1)+6))
	b = append(append(append(append(b, own...), 0), own...), 0)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b = append(b, 'E')
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(own)+1+4))
	b = append(append(b, own...), 0, 0, 0, 0, 0)
	b = appendMessage(b, 'C', "P"+own)
	return appendMessage(b, 'C', "S"+own)
}

// knowPath finds out the search_path where what t is about depends on it. It reports true
// where that is known, or cannot be: then a name may be in any schema. Else the step is to
// be done first.
func (c *core) knowPath(t *policy.SQLTargets) (step, bool) {
	r := c.ruled
	matters := t.PathMatters()
	for _, e := range t.Executes {
		for _, s := range r.executed(t, e) {
			matters = matters || s.PathMatters()
		}
	}
	if r.path.Known || !matters {
		return step{}, true
	}
	switch c.track.state() {
	case willDrain:
		return step{next: wait}, false
	case stuck:
		return step{}, true // the client has to send Sync first
	}
	if c.status == 'E' || r.asked != nil {
		r.asked = nil // the server did not say
		return step{}, true
	}
	r.asked = &pathAnswer{}
	c.inject = injection{active: true, asks: true}
	c.out = append(c.out[:0], askPath...)
	return step{write: c.out, next: wait}, false
}

// answeredPath takes a message of the server's answer.
func (c *core) answeredPath(typ byte, body []byte) {
	a := c.ruled.asked
	switch typ {
	case 'E':
		a.failed = true
	case 'D':
		if len(body) < 6 || binary.BigEndian.Uint16(body) != 1 {
			a.failed = true
			return
		}
		n := int(int32(binary.BigEndian.Uint32(body[2:])))
		if n < 0 || n > len(body)-6 {
			a.failed = true
			return
		}
		a.values = append(a.values, string(body[6:6+n]))
	}
}

// knowsPath takes in the answer, when the server is at rest after it.
func (c *core) knowsPath() {
	r := c.ruled
	a := r.asked
	if a.failed || len(a.values) != 3 {
		return // asked stays: it is not asked again for this message
	}
	schemas, ok := policy.ParseSearchPath(a.values[0])
	if !ok {
		return
	}
	r.asked = nil
	user := a.values[1]
	if user == "none" {
		user = a.values[2]
	}
	// Invariant: what a transaction sets ends with it.
	r.setPath(policy.SearchPath{Known: true, Schemas: schemas, User: user, Fleeting: c.status == 'T'})
}

// answersPath says whether a message of the server's belongs to the answer.
func answersPath(typ byte) bool { return bytes.IndexByte([]byte("123TDCnE"), typ) >= 0 }
