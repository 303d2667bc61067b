package resp

import (
	"bytes"

	"github.com/fenceproxy/fenceproxy/guard"
)

// A flow is what the core does with the server while the client's bytes wait: see whether
// AUTH or HELLO succeeds, and bind.
//
//	settle -> authenticate -> (admit) -> look -> name -> (live) -> bound
//	settle ------------------^   ^        |       |         |
//	                             |        v       v         v
//	                             \-------- unname        ended
//	                                        |
//	                                        v
//	                                     refused
//
// In a cluster name is followed by (record) before (live). CLUSTER SLOTS and the like go
//
//	settle -> list -> none, or list -> (refresh) -> list -> none
//
// and a command of the proxy's own
//
//	settle -> call -> none
//
// settle and authenticate end when a sentinel's answer comes. In the steps from look on,
// no other reply is owed, so that the next ones are the answers to what was sent.
type flow struct {
	step  step
	own   bool // FENCE BIND: the client awaits our answer
	retry bool // the bind is tried again, before a write
	hello bool
	auth  []byte      // AUTH or HELLO, until it is sent
	cred  *credential // to bind with; those that were presented with it come next
	adds  bool        // to the terms that the session is bound to already
	off   bool        // the connection's name is not, or may not be, what it was before

	sentinel           uint64 // whose answer ends the step
	erred, aMap, anArr bool   // replies seen while authenticating
	ok                 bool
	name               *ownName

	binding *binding
	db      int      // the client's database
	owed    int      // replies that the step still lacks
	replies [][]byte // that it has
	tries   int
	failed  *guard.Refusal // why, while the name is taken off; nil: to try again

	list      nodeList // the answer that is awaited names nodes of a cluster
	command   []byte   // which asks for it
	refreshed bool

	call *call // an own command
}

type step uint8

const (
	stepNone         step = iota
	stepSettle            // wait until every earlier reply has come
	stepAuthenticate      // wait until AUTH's or HELLO's has
	stepAdmit             // the guard is asked
	stepLook              // CLIENT INFO: is this connection one that can be bound?
	stepName              // CLIENT SETNAME, HELLO, GET: is this a primary, and the fence the permit's?
	stepUnname            // take a bound name off
	stepList              // CLUSTER SLOTS or the like is asked
	stepRecord            // in a cluster: does its record say what the permit says?
	stepLive              // does the permit still live?
	stepRefresh           // the proxy looks at the cluster anew
	stepCall              // the shell answers a command of the proxy's own
	stepFinish            // the last sentinel of a session that is drained
)

// maxTries is how often a bind looks anew at a fence that was not as the permit said.
const maxTries = 3

// maxAnswer bounds what is kept of one answer in a flow.
const maxAnswer = 16 << 10

// keeps is how much is kept of an answer.
func (s step) keeps() int {
	if s == stepList {
		return maxList
	}
	return maxAnswer
}

// captures reports whether the next replies are answers in a flow, not the client's.
func (s step) captures() bool { return s >= stepLook && s <= stepList }

// authenticate sends AUTH or HELLO and learns whether it succeeded. It is sent when every
// earlier reply has come: the servers since Redis 7.2 do not answer one that fails while a
// reply is pending.
func (c *core) authenticate(cmd []byte, f flow) {
	f.auth = cmd
	f.step, f.sentinel = stepSettle, c.sentinel()
	c.conn.skipNext = false
	c.flow = f
}

// bind begins to bind with the credential, once every earlier reply has come.
func (c *core) bind(cred *credential) {
	c.flow.cred = cred
	c.flow.step, c.flow.sentinel = stepSettle, c.sentinel()
}

// reached takes in a sentinel's answer.
func (c *core) reached(n uint64) {
	f := &c.flow
	if n < f.sentinel {
		return
	}
	switch f.step {
	case stepSettle:
		switch {
		case f.auth != nil:
			c.up = append(c.up, f.auth...)
			f.auth = nil
			f.step, f.sentinel = stepAuthenticate, c.sentinel()
		case f.list != noList:
			c.askList()
		case f.call != nil:
			c.callShell()
		default:
			c.admit(nil)
		}
	case stepAuthenticate:
		c.authenticated()
	case stepFinish:
		c.end("")
	}
}

// authenticated looks at what AUTH or HELLO answered.
//
// INVARIANT: a credential is used only after the server said yes; no answer is none.
func (c *core) authenticated() {
	f := c.flow
	c.flow = flow{}
	if f.erred || f.hello && !f.aMap && !f.anArr || !f.hello && !f.ok {
		return
	}
	if f.hello {
		switch {
		case f.aMap:
			c.conn.proto = 3
		case f.anArr:
			c.conn.proto = 2
		}
		if f.name != nil {
			c.conn.name = *f.name
		}
	}
	cred := f.cred
	if cred == nil {
		cred = c.again
	}
	if cred != nil {
		c.flow.cred = cred
		c.admit(nil)
	}
}

// admit asks the guard, again after the fence was not as the permit of renew said.
func (c *core) admit(renew *binding) {
	f := &c.flow
	f.binding, f.replies = nil, nil
	// From here on the session writes only with the new credential, and the others that it has.
	if f.adds {
		c.giveUp(f.cred.election)
		if f.own {
			c.again = nil
		}
	} else {
		c.unbind(&guard.Refusal{Reason: guard.NoCredential, Election: f.cred.election})
		c.again = nil
		c.noRetry()
	}
	if f.cred.refusal != nil {
		c.fail(f.cred.refusal)
		return
	}
	if r := c.tooMany(f.cred.election); r != nil {
		c.fail(r)
		return
	}
	f.step = stepAdmit
	c.ask = question{kind: askAdmit, renew: renew, retry: f.retry,
		credential: guard.Credential{Election: f.cred.election, Token: f.cred.token}}
}

// admitted takes the guard's answer: a term to bind to, or a refusal.
func (c *core) admitted(b *binding, refusal *guard.Refusal) {
	c.ask = question{}
	if c.flow.step != stepAdmit || c.ended {
		return
	}
	if refusal != nil {
		if maySoon(refusal) && !c.flow.cred.lead && (!c.flow.own || c.cfg.cluster != nil) {
			// Few libraries connect again after an error: without this the session would
			// stay a reader for ever.
			c.retryWith(c.flow.cred)
		}
		c.fail(refusal)
		return
	}
	b.credential = *c.flow.cred
	c.flow.binding = b
	c.send(stepLook, [][]string{{"CLIENT", "INFO"}})
}

// maySoon reports whether a refusal is of something that is out of reach for a while.
func maySoon(r *guard.Refusal) bool {
	return r.Reason == guard.FenceUnavailable || r.Reason == guard.BackendUnknown || r.Reason == guard.Occupied
}

// send puts a step's commands into up and awaits as many answers.
func (c *core) send(s step, cmds [][]string) {
	f := &c.flow
	f.step, f.owed, f.replies = s, len(cmds), f.replies[:0]
	for _, cmd := range cmds {
		c.up = appendCommand(c.up, cmd...)
	}
}

// answered takes in an answer to what the step sent. More bytes than maxAnswer come cut.
func (c *core) answered(reply []byte) {
	f := &c.flow
	if f.step == stepList {
		c.listed(reply)
		return
	}
	f.replies = append(f.replies, bytes.Clone(reply))
	if f.owed--; f.owed > 0 {
		return
	}
	switch f.step {
	case stepLook:
		c.look(f.replies[0])
	case stepName:
		c.nameGiven(f.replies)
	case stepUnname:
		c.unnamed(f.replies[0])
	}
}

// confirmed takes the shell's answer whether the permit still lives: the last look
// before the client's next byte.
func (c *core) confirmed(live bool, refusal *guard.Refusal) {
	c.ask = question{}
	if c.flow.step != stepLive || c.ended {
		return
	}
	if !live {
		c.end(c.refusalLine(refusal))
		return
	}
	if c.bound != nil {
		c.more = append(c.more, c.bound)
	}
	c.bound = c.flow.binding
	c.ruling.forget(c.bound.term.Election)
	c.finish(nil)
}

// fail ends the flow with a refusal: the session is a reader. A bound name is taken off
// first.
func (c *core) fail(r *guard.Refusal) {
	if c.named && c.again == nil && (c.bound == nil || c.flow.off) {
		c.flow.failed = r
		c.unname()
		return
	}
	c.finish(r)
}

// finish ends the flow.
func (c *core) finish(r *guard.Refusal) {
	own := c.flow.own
	var next *credential
	if c.flow.cred != nil {
		next = c.flow.cred.then
	}
	c.flow = flow{retry: c.flow.retry}
	if r != nil {
		c.refused(r)
	}
	if next != nil && c.again == nil {
		c.flow.cred, c.flow.adds = next, true
		c.admit(nil)
		return
	}
	c.flow = flow{}
	c.served.kept, c.served.line = nil, nil // a session at rest holds no memory of it
	if own {
		c.bindErr = r
		c.substitute(codeBind, fenceCommand)
		c.turnAway(r != nil)
	}
}

// doubt ends a session whose connection may or may not carry a name.
func (c *core) doubt(what string) {
	f := &c.flow
	r := &guard.Refusal{Reason: guard.Unbindable, Election: f.cred.election,
		Held: f.binding.term.Number, Detail: what + "; the connection is closed"}
	c.notBound = r
	c.end(c.refusalLine(r))
}
