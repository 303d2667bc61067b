package pg

import (
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// A sidecar listener campaigns itself. A session of its that presents no credential is
// bound with the listener's own, by the way that any credential goes: at its login, or,
// where the listener leads later only, before the next message that begins something.
//
// Invariant: nothing but the origin of the credential differs. It is admitted, fenced and
// bound like a client's; until then the session reads.

// followsLead reports whether the session is one that the listener's own credential is for.
func (c *core) followsLead() bool {
	return c.lead != nil && c.token.IsZero() && c.election == c.lead.Election()
}

// offered takes the listener's own credential, if there is one for this session now.
func (c *core) offered() bool {
	if !c.followsLead() || c.standby {
		return false
	}
	cred, ok := c.lead.Credential()
	if ok {
		c.own = cred
	}
	return ok
}

// asks reports, after login, whether there is a credential to be admitted with: the
// client's, unless it was refused already, or the listener's. A client that presented one
// is treated as on any other listener from here on.
func (c *core) asks(refused *guard.Refusal) bool {
	if refused != nil || !c.token.IsZero() || c.replication {
		c.lead = nil
		return refused == nil && !c.token.IsZero()
	}
	return c.offered()
}

// follow binds a session that the listener leads for by now, before a message of size bytes
// that begins something. It reports true when the message is to be looked at as ever.
//
// Invariant: the session is bound at rest and outside a transaction only. The message waits
// meanwhile, and nothing else of the client's is under way.
func (c *core) follow(typ byte, in []byte, size int) (step, bool) {
	switch {
	case c.lead == nil, c.isBound() && c.own.Token.IsZero():
		return step{}, true
	case c.setting == noSetting:
		if c.tried || c.track.state() != idle || c.status != 'I' || !c.followsLead() {
			return step{}, true
		}
		switch begins, need := begins(typ, in, size); {
		case need > len(in):
			return step{next: read, need: need}, false
		case !begins || !c.offered():
			return step{}, true
		}
		c.setting = admitting
		return step{next: admit}, false
	case c.own.Token.IsZero():
		return step{}, true // SET fence.… is under way
	case c.setting == admitted:
		c.setting = injected
		c.out = append(c.out[:0], c.injection()...)
		return step{write: c.out, next: wait}, false
	}
	c.tried = c.setting == refused
	c.setting, c.own = noSetting, guard.Credential{}
	return step{}, true
}

// begins reports whether a message may begin a transaction, or run something; need is how
// much of it must be known. A Bind of the unnamed statement goes on with what came before:
// the Query by which the session is made read-write would drop that statement.
func begins(typ byte, in []byte, size int) (is bool, need int) {
	switch typ {
	case 'Q', 'P', 'F':
		return true, 0
	case 'B':
		need = min(size, 5+maxNames)
		if len(in) < need {
			return false, need
		}
		if _, rest, ok := cut(in[5:need]); ok {
			statement, _, ok := cut(rest)
			return ok && len(statement) > 0, need
		}
	}
	return false, 0
}

// whyUnled is why a session that follows the listener's leadership may not write.
func (c *core) whyUnled() *guard.Refusal {
	if c.standby {
		return onStandby(c.election)
	}
	if _, leads := c.lead.Credential(); !leads {
		return c.lead.Refusal()
	}
	if c.unled != nil {
		return c.unled
	}
	return &guard.Refusal{Reason: guard.NotElected, Election: c.election,
		Detail: "the listener leads by now; the session is bound before its next transaction, and this one began as a reader's"}
}

// notesWish notes that a reader who may be bound without a word of its own asked to be
// read-only. (Where that was rolled back, it stays a reader: the server says so.)
func (c *core) notesWish(v policy.SQLVerdict) {
	switch {
	case c.lead == nil:
	case v.Resets:
		c.wish = c.wishAtStart
	case v.AsksReadOnly:
		c.wishOpen = true
	}
}

const (
	// ledTimeout bounds an admission that no client asked for: it holds up a message that
	// may only read.
	ledTimeout = 5 * time.Second
	// ledRetry is how long after a refusal at least there is no other. It is ten times what
	// the refusal took, so that readers are held up for a small part of their time.
	ledRetry = time.Second
)

func (s *session) admitTimeout() time.Duration {
	if s.core.own.Token.IsZero() {
		return s.cfg.AdmitTimeout
	}
	return min(s.cfg.AdmitTimeout, ledTimeout)
}

// tooSoon reports whether the listener's own credential was refused just now.
func (s *session) tooSoon() bool {
	return !s.core.own.Token.IsZero() && time.Now().Before(s.ledAgain)
}

// refusedFor takes in how long an admission took that was refused.
func (s *session) refusedFor(r *guard.Refusal, took time.Duration) {
	if r != nil && !s.core.own.Token.IsZero() {
		s.ledAgain = time.Now().Add(max(ledRetry, 10*took))
	}
}
