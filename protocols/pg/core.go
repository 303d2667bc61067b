package pg

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
	"github.com/fenceproxy/fenceproxy/protocols"
)

// A core is one session as a pure state machine: bytes in from either side, steps out.
// It does no I/O, starts nothing and reads no clock; it is not safe for concurrent use.
// Both sides' bytes may come in pieces of any size.
//
// The invariants it keeps:
//
//  1. Until a bind is reported by bound, every statement that goes upstream was judged to
//     read by policy.SQL, and the server runs the session read-only.
//  2. A token never goes upstream.
//  3. Each client message that goes upstream, changed or not, is answered as the server
//     answers it; what the proxy asks for itself is never seen by the client.
//  4. The client gets at most one FATAL, and nothing after it.
//  5. Where the proxy stands in the middle of a SCRAM exchange, it proves nothing to the server
//     that the client did not prove to it, and the client's login is over only after the
//     server proved itself too.
type core struct {
	sql           *policy.SQL
	ruled         *ruling // nil without rules
	nonce         string  // begins every marker
	maxInspect    int     // bytes
	allowPrepared bool    // PREPARE TRANSACTION by bound sessions
	replication   bool    // the server takes replication commands too
	elections     func(string) bool

	phase phase
	// The credential so far.
	election string
	token    election.Token

	// Of a sidecar listener; see sidecar.go.
	lead protocols.Leadership // nil: none, or not for this session
	// required: who is not bound when it has logged in is turned away.
	required bool
	own      guard.Credential // of lead, while it is settled
	tried    bool             // it was refused since the server was at rest
	unled    *guard.Refusal   // why it was

	terms    []guard.Term // of the elections that it is bound to, in the order of the binds
	prepared bool         // the server allows PREPARE TRANSACTION
	proofs   []string     // of each term that is bound, where there is a key; see injection
	refusal  *guard.Refusal
	wishAtStart,
	wish, // the client itself wants default_transaction_read_only
	wishOpen bool // the next report of it says what the client wants

	// Client side.
	cBody    int    // bytes left of a message under way
	cDrop    bool   // which go nowhere
	cAfter   []byte // goes upstream when they are gone
	ends     endings
	setting  setting
	before   guard.Credential  // the credential before that
	assigned policy.SQLVerdict // what the message sets that is being settled
	judged   judgement         // on the text of the message that is next
	out      []byte            // reused

	// Server side.
	sBody    int
	sDrop    bool
	track    tracker
	status   byte // of the last ReadyForQuery
	pid      uint32
	asked    bool // the server waits for a client's answer to authenticate
	authOK   bool
	readOnly reported // default_transaction_read_only
	standby  bool     // the server said so last (in_hot_standby)
	died     bool     // the server ended the session because it shuts down, or the like
	unsafe   bool     // client_encoding hides ASCII, or once did
	scsOff   bool     // standard_conforming_strings is off, or once was
	warnings []byte   // for the client, before the first ReadyForQuery
	held     []byte   // the first ReadyForQuery, or a FATAL that must be explained
	inject   injection

	// A statement that returns settings to their start-up values may run.
	suspect      bool
	reset        bool // such a one went upstream
	resetUnnamed bool // the unnamed prepared statement is one
	resetNamed   bool // a named one may be

	// Authentication.
	channels channels
	newNonce func() string // of an exchange
	sasl     saslState
	middle   *middle // while there is one

	ending   []byte // a FATAL for the client, to be sent at the next boundary
	ended    bool   // the client got its last message
	stopping bool   // end when the session is at rest
}

// A phase is how far a session is.
type phase uint8

const (
	login    phase = iota // authentication goes through; scram.go says how
	settling              // logged in; the credential is being settled
	ready
)

// A reported is a setting as the server last reported it.
type reported uint8

const (
	unreported reported = iota
	off
	on
)

// A setting is how far SET fence.… is, while its message waits.
type setting uint8

const (
	noSetting setting = iota
	admitting         // the shell was asked
	admitted
	refused
	injected // the bind is done; the session is being made read-write
)

// An injection is a query of the proxy's own under way.
type injection struct {
	active bool
	owed   int // CommandCompletes
	failed bool
	asks   bool // for the search_path
}

// A next says what a shell does after it carried out a step.
type next uint8

const (
	again  next = iota // call again with the rest
	read               // read more, at least to need bytes
	wait               // wait until the core changed, then call again
	judge              // judge text, without the core's lock; then inform
	admit              // admit core.credential and bind; then bound or notBound
	ask                // find out whether the session was severed; then severed
	verify             // look up the role's SCRAM verifier; then verified
	stop               // no more from this side
)

// A step says what to do with a side's bytes: forward pass bytes, forget drop bytes, then
// send write, and go on with next. Write is valid until the next call.
type step struct {
	pass, drop int
	write      []byte
	next       next
	need       int
	text       []byte // for judge; valid until the side's bytes are taken
}

// A judgement is the verdict on a text.
type judgement struct {
	text    string
	verdict policy.SQLVerdict
	targets *policy.SQLTargets // with rules
}

// credential returns what the session presents, or why it cannot be used.
func (c *core) credential() (guard.Credential, *guard.Refusal) {
	if !c.own.Token.IsZero() {
		return c.own, nil
	}
	cred := guard.Credential{Election: c.election, Token: c.token}
	switch {
	case cred.Election == "":
		return cred, &guard.Refusal{Reason: guard.InvalidCredential, Detail: "no election is named and the listener has no default one; set fence.election"}
	case !c.elections(cred.Election):
		return cred, &guard.Refusal{Reason: guard.WrongElection, Election: cred.Election}
	}
	return cred, nil
}

// isBound says whether the session is bound to any term.
func (c *core) isBound() bool { return len(c.terms) > 0 }

// standing is why this session may not write.
func (c *core) standing() *guard.Refusal {
	if c.refusal != nil {
		return c.refusal
	}
	if c.followsLead() {
		return c.whyUnled()
	}
	return &guard.Refusal{Reason: guard.NoCredential, Election: c.election}
}

// bound reports that the upstream connection is bound to the term, and that the permit
// was live after that. Only now may anything be written.
func (c *core) bound(t guard.Term, prepared bool) (inject []byte) {
	c.prepared, c.refusal = c.prepared || prepared, nil
	c.terms = append(c.terms, t)
	if c.phase == settling {
		return c.injection()
	}
	c.setting = admitted
	return nil
}

// notBound reports that the credential was refused: the session goes on as a reader.
// The answer goes to the client.
func (c *core) notBound(r *guard.Refusal) (toClient []byte) {
	switch {
	case r == nil:
	case !c.own.Token.IsZero():
		c.unled = r
	default:
		c.refusal = r
	}
	switch {
	case c.phase == settling && c.required:
		// INVARIANT: not a byte of its client's has gone upstream since its login, and none will.
		c.end(turnedAway(c.standing()))
		return nil
	case c.phase == settling:
		return c.release(r)
	}
	c.setting = refused
	return nil
}

// release lets the client go on after login.
func (c *core) release(r *guard.Refusal) []byte {
	b := c.warnings
	if r != nil {
		w := c.refused("WARNING", r)
		w.message += "; this session may only read"
		b = w.append(b)
	}
	c.phase, c.own, c.warnings = ready, guard.Credential{}, nil
	return append(b, c.held...)
}

// warn tells the client, after login, of one of several credentials that was refused.
func (c *core) warn(r *guard.Refusal) {
	w := c.refused("WARNING", r)
	w.message += "; this session may not write what it rules"
	c.warnings = w.append(c.warnings)
}

// injection makes the session read-write, unless its client asked for read-only, and
// tells it what it is.
func (c *core) injection() []byte {
	elections, numbers := c.holds()
	sql := fmt.Sprintf("SET fence.election='%s';SET fence.number='%s';SET fence.status='bound'", elections, numbers)
	c.inject = injection{active: true, owed: 3}
	if len(c.proofs) > 0 {
		// Tables that have the trigger of pgfence.Protect ask for it.
		sql += ";SET fence.proof='" + strings.Join(c.proofs, ",") + "'"
		c.inject.owed++
	}
	if !c.wish {
		sql += ";SET default_transaction_read_only=off"
		c.inject.owed++
	}
	return appendQuery(nil, sql)
}

// holds lists the elections and the numbers of the terms that the session holds.
func (c *core) holds() (elections, numbers string) {
	var e, n strings.Builder
	for i := range c.terms {
		if i > 0 {
			e.WriteByte(',')
			n.WriteByte(',')
		}
		e.WriteString(quoted(c.terms[i].Election))
		n.WriteString(strconv.FormatInt(c.terms[i].Number, 10))
	}
	return e.String(), n.String()
}

// lost reports that the permit ended: nothing more is written upstream.
func (c *core) lost(r *guard.Refusal) { c.end(c.refused("FATAL", r)) }

// end ends the session with a FATAL at the next message boundary.
func (c *core) end(r report) {
	if c.ending == nil && !c.ended {
		c.ending = r.append(nil)
	}
}

// finish says that the server's side is over.
func (c *core) finish() {
	c.ended = true
	c.forget()
}

// over says that the client's bytes matter no more.
func (c *core) over() bool { return c.ended || c.ending != nil }

// shutdown ends the session once it is at rest outside a transaction.
func (c *core) shutdown() {
	c.stopping = true
	if c.phase != ready || c.track.both || c.track.state() == idle && !c.inject.active && c.status == 'I' && c.cBody == 0 {
		c.end(report{severity: "FATAL", code: "57P01", message: "terminating connection: the proxy is shutting down",
			detail: "Nothing that was answered is lost.", hint: "Connect again."})
	}
}

// idles says whether the client has all that it asked for, and the next word is its own.
func (c *core) idles() bool {
	return c.phase == ready && !c.over() && c.track.state() == idle && !c.track.both && !c.inject.active && c.setting == noSetting
}

// severed answers step ask: r is why the session was severed, or nil when the
// server ended it for a reason of its own. The answer goes to the client.
func (c *core) severed(r *guard.Refusal) []byte {
	c.ended = true
	if r != nil {
		return c.refused("FATAL", r).append(nil)
	}
	return c.held
}
