package pg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// maxReaderText is the longest statement of a reader, in bytes.
const maxReaderText = 128 << 10

// inspect decides on a message of size bytes, of which in may hold only some. It reports
// true when the message goes through as it is; the step is what to do otherwise.
func (c *core) inspect(typ byte, in []byte, size int) (step, bool) {
	if c.ruled != nil && typ != 'Q' && typ != 'P' {
		if s, done := c.ruledMessage(typ, in, size); !done {
			return s, false
		}
	}
	if c.isBound() && typ != 'Q' && typ != 'P' {
		c.sent(typ)
		return step{}, true
	}
	if s, done := c.portals(typ, in, size); !done {
		return s, false
	}
	switch typ {
	case 'Q', 'P':
	case 'F':
		const need = 9 // up to the function's number
		if len(in) < min(size, need) {
			return step{next: read, need: min(size, need)}, false
		}
		if size < need || !readingCall(binary.BigEndian.Uint32(in[5:])) {
			return c.refuse(typ, nil, size, codeFunctionCall, "")
		}
		c.sent(typ)
		return step{}, true
	default:
		c.sent(typ)
		return step{}, true
	}
	limit := c.maxInspect
	if !c.isBound() {
		// Parsing takes seconds a megabyte in the worst case, and a reader may be anybody.
		limit = min(limit, maxReaderText)
	}
	if size > limit {
		if c.isBound() {
			return c.inspectLong(typ, in, size)
		}
		return c.refuse(typ, nil, size, code(policy.SQLTooComplex), "")
	}
	if len(in) < size {
		return step{next: read, need: size}, false
	}
	body := in[5:size]
	if c.setting != noSetting {
		name, _, _ := statement(typ, body)
		return c.settled(typ, name, size)
	}
	if c.isBound() {
		if c.ruled != nil {
			if s, done := c.inspectRuled(typ, body, size); !done {
				return s, false
			}
		}
		return c.inspectBound(typ, body, size)
	}
	name, text, ok := statement(typ, body)
	if !ok {
		return c.malformed(typ, body, size)
	}
	// The parser reads text as the server does under these settings only.
	if c.unsafe && !isASCII(text) {
		return c.refuse(typ, name, size, codeEncoding, "")
	}
	if c.scsOff && bytes.IndexByte(text, '\\') >= 0 {
		return c.refuse(typ, name, size, codeBackslash, "")
	}
	if c.ends.ran && readsTwoWays(text) {
		return c.refuse(typ, name, size, codeTwoWays, "")
	}
	if c.replication && typ == 'Q' {
		if command, reads, name := replicates(text); command {
			if !reads {
				return c.refuse(typ, nil, size, codeReplication, name)
			}
			c.letThrough(typ, nil, false)
			return step{}, true
		}
	}
	v, ok := c.verdict(text)
	switch {
	case !ok:
		return step{next: judge, text: text}, false
	case v.Fence != policy.FenceUnused && c.replication:
		return c.refuse(typ, name, size, codeReplicates, "")
	case v.Fence != policy.FenceUnused:
		return c.fence(typ, name, size, v)
	case v.Reason == policy.SQLUnparsed:
		if own, ok := c.unparsed(text); ok {
			c.sent(typ)
			if typ == 'P' {
				return c.replace(size, appendParse(nil, string(name), string(own))), false
			}
			return c.replace(size, appendQuery(nil, string(own))), false
		}
		return c.refuse(typ, name, size, code(v.Reason), v.What)
	case c.ruled != nil && v.Reason != policy.SQLReads:
		return c.refuseUnbound(typ, name, text, size, v)
	case v.Reason != policy.SQLReads:
		// Invariant 1: nothing that may write goes upstream unbound.
		return c.refuse(typ, name, size, code(v.Reason), v.What)
	}
	c.notesWish(v)
	if c.ruled != nil {
		t, ok := c.targetsOf(text)
		if !ok {
			return step{next: judge, text: text}, false
		}
		if s, done := c.mayCall(typ, name, size, t); !done {
			return s, false
		}
		if s, done := c.openRead(typ, name, size, t); !done {
			return s, false
		}
		if why, ok := c.note(typ, name, t); !ok {
			return c.refuseRuled(typ, name, size, why)
		}
	}
	if typ == 'P' {
		c.ends.parsed(name, v.EndsTransaction)
	}
	c.letThrough(typ, name, v.Resets)
	return step{}, true
}

// readingCall reports whether a function, by its number in every pg_proc, does no more than
// read large objects. lo_open for writing does nothing by itself.
func readingCall(oid uint32) bool {
	switch oid {
	case 952, 953, 954, // lo_open, lo_close, loread
		956, 958, 3170, 3171: // lo_lseek, lo_tell, lo_lseek64, lo_tell64
		return true
	}
	return false
}

// malformed replaces a message that the server cannot read by one that holds no text and
// that it fails to read in the same way.
func (c *core) malformed(typ byte, body []byte, size int) (step, bool) {
	c.sent(typ)
	return c.replace(size, malformed(typ, body)), false
}

func statement(typ byte, body []byte) (name, text []byte, ok bool) {
	if typ == 'Q' {
		text, ok = queryText(body)
		return nil, text, ok
	}
	return parseText(body)
}

// quickText is the longest text that is judged under the core's lock; a longer one may take
// seconds.
const quickText = 8 << 10

// verdict judges a text. It reports false where that takes long: then the shell judges it, and
// calls inform.
func (c *core) verdict(text []byte) (policy.SQLVerdict, bool) {
	if len(text) <= quickText {
		return c.sql.Inspect(text), true
	}
	// Invariant 1: a verdict is on this text and no other, whatever came in between.
	if c.judged.text != string(text) {
		return policy.SQLVerdict{}, false
	}
	return c.judged.verdict, true
}

// inform answers step judge.
func (c *core) inform(text []byte, v policy.SQLVerdict, t *policy.SQLTargets) {
	c.judged = judgement{string(text), v, t}
}

// inspectLong lets a text of a bound session through that is too long to be looked through, but
// for its beginning.
func (c *core) inspectLong(typ byte, in []byte, size int) (step, bool) {
	need := min(size, quickText)
	if len(in) < need {
		return step{next: read, need: need}, false
	}
	switch {
	case scan(in[5:need])&hintFence != 0:
		// Invariant 2: it may set a token.
		return c.refuse(typ, nil, size, codeFenceMisused, "")
	case c.prepared && !c.allowPrepared:
		return c.refuse(typ, nil, size, codeUninspected, "")
	}
	if c.ruled != nil {
		if why, ok := c.permitsAnything("a text that is too long to be parsed"); !ok {
			return c.refuseRuled(typ, nil, size, why)
		}
		c.ruled.setPath(policy.SearchPath{})
	}
	c.letThrough(typ, nil, false)
	return step{}, true
}

// inspectBound lets everything through but what would leave the fence.
func (c *core) inspectBound(typ byte, body []byte, size int) (step, bool) {
	h := scan(body)
	if !c.prepared || c.allowPrepared {
		h &^= hintPrepare
	}
	if h == 0 {
		c.letThrough(typ, body, false)
		return step{}, true
	}
	name, text, ok := statement(typ, body)
	if !ok {
		return c.malformed(typ, body, size)
	}
	v, ok := c.verdict(text)
	if !ok {
		return step{next: judge, text: text}, false
	}
	// A setting sent just before may change what a backslash does.
	unsure := v.Reason == policy.SQLUnparsed || v.Reason == policy.SQLTooComplex ||
		c.unsafe && !isASCII(text) || (c.scsOff || h&hintPrepare != 0) && bytes.IndexByte(text, '\\') >= 0
	switch {
	case v.Fence != policy.FenceUnused:
		return c.fence(typ, name, size, v)
	case unsure && h&hintFence != 0 && bytes.Contains(bytes.ToLower(text), []byte("token")):
		return c.refuse(typ, name, size, codeFenceMisused, "")
	case v.Prepares2PC && !c.allowPrepared || unsure && h&hintPrepare != 0:
		return c.refuse(typ, name, size, codePrepare, "")
	}
	if v.SetsReadOnly {
		c.wishOpen = true
	}
	resets := v.Resets || unsure && h&hintReset != 0
	if resets || v.SetsReadOnly {
		c.suspect = true
	}
	if resets {
		c.reset = true
		c.wish = c.wishAtStart
	}
	c.letThrough(typ, name, resets)
	return step{}, true
}

// letThrough records a Query or Parse that goes upstream as it is. For a Parse, name
// begins with the statement's name.
func (c *core) letThrough(typ byte, name []byte, resets bool) {
	unnamed := typ == 'Q' || len(name) == 0 || name[0] == 0
	if unnamed {
		c.resetUnnamed = resets && typ == 'P'
	} else if resets {
		c.resetNamed = true
	}
	c.sent(typ)
}

// refuse replaces a message by one that fails at the server in the same way.
func (c *core) refuse(typ byte, name []byte, size int, why code, what string) (step, bool) {
	typ = replaced(typ)
	c.sent(typ)
	text := c.marker(why, what)
	if typ == 'P' {
		return c.replace(size, appendParse(nil, string(name), text)), false
	}
	if c.replication {
		// The one statement that every replication connection takes and that names what it
		// does not know.
		text = "SHOW " + text
	}
	return c.replace(size, appendQuery(nil, text)), false
}

// replaced is the type of the message that stands for one of type typ: a Query where the
// answer is an error and ReadyForQuery, else a Parse, whose error skips to Sync.
func replaced(typ byte) byte {
	if typ == 'F' || typ == 'Q' {
		return 'Q'
	}
	return 'P'
}

// fence deals with a message that sets fence.election or fence.token. It waits until the
// server is at rest, asks for the bind, and replaces the message by one that the server
// answers in the same way and that holds no token.
func (c *core) fence(typ byte, name []byte, size int, v policy.SQLVerdict) (step, bool) {
	switch v.Fence {
	case policy.FenceMixed:
		return c.refuse(typ, name, size, codeFenceMixed, "")
	case policy.FenceMisused:
		return c.refuse(typ, name, size, codeFenceMisused, "")
	}
	switch c.track.state() {
	case willDrain:
		return step{next: wait}, false
	case stuck:
		return c.refuse(typ, name, size, codeFencePipeline, "")
	}
	if c.status != 'I' {
		return c.refuse(typ, name, size, codeFenceInBlock, "")
	}
	if typ == 'P' && len(v.Set) > 1 {
		// The server refuses several statements in a Parse.
		return c.acknowledge(typ, name, size, v)
	}
	elect, token := c.election, c.token
	if c.isBound() {
		token = election.Token{} // that of an earlier bind
	}
	for _, s := range v.Set {
		var err error
		if s.Token {
			token, err = election.ParseToken(s.Value)
		} else {
			elect, err = s.Value, election.CheckID(s.Value)
		}
		if err != nil {
			if !c.isBound() || c.ruled != nil {
				c.refusal = &guard.Refusal{Reason: guard.InvalidCredential, Detail: err.Error()}
				return c.refuse(typ, name, size, codeCredential, "")
			}
			return c.refuse(typ, name, size, codeFenceBound, "")
		}
	}
	if c.isBound() {
		mine := slices.IndexFunc(c.terms, func(t guard.Term) bool { return t.Election == elect })
		switch {
		case mine >= 0 && (token.IsZero() || token.Digest() == c.terms[mine].Digest):
			c.election = elect
			return c.acknowledge(typ, name, size, v)
		case mine >= 0 || c.ruled == nil || len(c.terms) == maxTerms:
			return c.refuse(typ, name, size, codeFenceBound, "")
		}
	}
	before := guard.Credential{Election: c.election, Token: c.token}
	c.election, c.token = elect, token
	if token.IsZero() || elect == "" {
		return c.acknowledge(typ, name, size, v)
	}
	if _, r := c.credential(); r != nil {
		c.refusal = r
		c.election, c.token = before.Election, before.Token
		return c.refuse(typ, name, size, codeCredential, "")
	}
	c.setting, c.assigned, c.before = admitting, v, before
	return step{next: admit}, false
}

// settled goes on with a message that set fence.… once its credential was decided on.
func (c *core) settled(typ byte, name []byte, size int) (step, bool) {
	switch c.setting {
	case admitted:
		// The server is at rest, and only this side writes to it.
		c.setting = injected
		c.out = append(c.out[:0], c.injection()...)
		return step{write: c.out, next: wait}, false
	case injected:
		v := c.assigned
		c.setting, c.assigned = noSetting, policy.SQLVerdict{}
		return c.acknowledge(typ, name, size, v)
	default:
		// A refused SET has no effect.
		c.election, c.token = c.before.Election, c.before.Token
		c.setting, c.assigned = noSetting, policy.SQLVerdict{}
		return c.refuse(typ, name, size, codeCredential, "")
	}
}

// acknowledge replaces SET fence.… by what the server answers in the same way.
func (c *core) acknowledge(typ byte, name []byte, size int, v policy.SQLVerdict) (step, bool) {
	var sql string
	for _, s := range v.Set {
		switch {
		case s.Token:
			sql += "SET fence.token='" + placeholder + "';" // invariant 2
		case c.isBound():
			// SHOW says what it holds, not what it asks for.
			elections, _ := c.holds()
			sql += "SET fence.election='" + elections + "';"
		default:
			sql += fmt.Sprintf("SET fence.election='%s';", quoted(s.Value))
		}
	}
	c.sent(typ)
	if typ == 'P' {
		return c.replace(size, appendParse(nil, string(name), sql)), false
	}
	return c.replace(size, appendQuery(nil, sql)), false
}

// quoted returns a checked election id, or nothing for one that was not.
func quoted(id string) string {
	if election.CheckID(id) != nil {
		return ""
	}
	return id
}

// readsTwoWays says whether a text's literals may end elsewhere once a function, which ran
// in the same Sync group, has changed standard_conforming_strings or client_encoding: a
// backslash before a quote, or one that may be the second byte of a character.
func readsTwoWays(b []byte) bool {
	for i, c := range b {
		if c == '\\' && (i+1 < len(b) && b[i+1] == '\'' || i > 0 && b[i-1] >= 0x80) {
			return true
		}
	}
	return false
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}
