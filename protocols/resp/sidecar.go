package resp

import (
	"cmp"

	"github.com/fenceproxy/fenceproxy/guard"
)

// A sidecar listener campaigns itself. A session of its that presents no credential is
// bound with the listener's own, before its next write or MULTI, by the way that any
// credential goes.
//
// INVARIANT: nothing but the origin of the credential differs. It is admitted, fenced and
// bound like a client's; until then the session reads. A client that presents a credential
// of its own, or unbinds itself, is treated as on any other listener from there on.

// follow begins to bind a session that the listener leads for by now, before a command that
// needs it. It reports true when the command is to be given again then.
func (c *core) follow(cmd *command, code code) bool {
	if c.bound != nil {
		return false
	}
	switch {
	case code == codeWrite, code == codeUnknown, code == codeLeader, code == codeBarred:
	case cmd != nil && cmd.verb == verbMulti:
	default:
		return false
	}
	cred, leads := c.lead.Credential()
	if !leads {
		c.noRetry()
		return false
	}
	if c.retry == nil || c.retry.token != cred.Token {
		c.noRetry()
		c.retry = &credential{election: cred.Election, token: cred.Token, lead: true}
	}
	return c.bindsNow()
}

// why is why the session may not write.
func (c *core) why() *guard.Refusal {
	if c.lead == nil {
		return c.refusal
	}
	if _, leads := c.lead.Credential(); !leads {
		return c.lead.Refusal()
	}
	if c.refusal.Reason != guard.NoCredential {
		return c.refusal
	}
	return &guard.Refusal{Reason: guard.NotElected, Election: c.lead.Election(), Detail: cmp.Or(c.refusal.Detail,
		"the listener leads by now, and the session is bound before its next write outside MULTI, with replies on")}
}
