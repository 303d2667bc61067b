package resp

import (
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
)

// On a listener with rules a session may be bound to several terms at once. Its connection
// then has the names of all of them, joined; the loss of any ends it.
//
// INVARIANT: a term that is added puts its name beside the others', by one CLIENT SETNAME: at no
// time the connection lacks the name of a term that the session still writes under.

// maxTerms bounds the terms of a session: a longer name would make CLIENT LIST slow.
const maxTerms = 64

// terms yields what the session is bound to, the oldest first.
func (c *core) terms(yield func(*binding) bool) {
	for _, b := range c.more {
		if !yield(b) {
			return
		}
	}
	if c.bound != nil {
		yield(c.bound)
	}
}

// holdsElection reports whether the session is bound to a term of the election.
func (c *core) holdsElection(election []byte) bool {
	for b := range c.terms {
		if b.term.Election == string(election) {
			return true
		}
	}
	return false
}

// nameWith is the connection's name with one more term.
func (c *core) nameWith(b *binding) string {
	if c.bound == nil {
		return b.name
	}
	return c.joined(b)
}

// joined is the name of all terms, and of one more that may be nil.
func (c *core) joined(last *binding) string {
	var names []string
	for b := range c.terms {
		names = append(names, b.name)
	}
	if last != nil {
		names = append(names, last.name)
	}
	return redisfence.JoinConnNames(names...)
}

// restName is the connection's name when the flow's term is none of the session's.
func (c *core) restName() string {
	if c.bound == nil {
		return c.conn.name.name
	}
	c.worn = c.joined(nil)
	return c.worn
}

// giveUp takes the term of an election from those that the session is bound to, and what
// was to be tried again of it. The connection keeps its name.
func (c *core) giveUp(election string) (had bool) {
	var left []*binding
	for b := range c.terms {
		if b.term.Election == election {
			had = true
		} else {
			left = append(left, b)
		}
	}
	if had {
		c.flow.off = true
		c.bound, c.more = nil, nil
		if n := len(left); n > 0 {
			c.bound, c.more = left[n-1], left[:n-1]
		}
	}
	var again *credential
	for r := c.retry; r != nil; r = r.then {
		if r.election != election {
			one := *r
			one.then = again
			again = &one
		}
	}
	if c.retry = again; again == nil {
		c.noRetry()
	}
	return had
}

// retryWith remembers a credential to bind with before the next write, with rules besides
// those that are remembered.
func (c *core) retryWith(cred *credential) {
	again := *cred
	if again.then = nil; c.ruling != nil {
		again.then = c.retry
	}
	c.retry = &again
}

// refused takes in why a bind failed.
func (c *core) refused(r *guard.Refusal) {
	c.refusal, c.notBound = r, r
	if c.ruling != nil {
		c.ruling.refused(r)
	}
}

// tooMany is the refusal of a term too many, or nil.
func (c *core) tooMany(election string) *guard.Refusal {
	if len(c.more)+1 < maxTerms || c.bound == nil || c.holdsElection([]byte(election)) {
		return nil
	}
	return &guard.Refusal{Reason: guard.NotAllowed, Election: election, Detail: "a session may hold 64 terms at once; FENCE UNBIND <election> gives one up"}
}

// held are the client's credentials of all that the session is bound to, the newest last.
func (c *core) held() *credential {
	var all []*binding
	for b := range c.terms {
		if !b.credential.lead {
			all = append(all, b)
		}
	}
	var cred *credential
	for i := len(all) - 1; i >= 0; i-- {
		one := all[i].credential
		one.then = cred
		cred = &one
	}
	return cred
}

// unbindOne gives up one of several terms. The answer is that of the CLIENT SETNAME that
// takes its name off, after all that was written under it.
func (c *core) unbindOne(election string) {
	had := c.giveUp(election)
	c.flow = flow{}
	c.conn.skipNext = false
	if !had {
		c.substitute(codeUnbound, fenceCommand)
		return
	}
	c.up = appendCommand(c.up, "CLIENT", "SETNAME", c.restName())
}
