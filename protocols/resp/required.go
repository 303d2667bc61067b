package resp

import "github.com/fenceproxy/fenceproxy/guard"

// barred reports whether the session may not send the command because it has to be bound
// first.
//
// INVARIANT: where that is so, nothing of an unbound session's goes upstream but what may lead
// to its bind, and what leaves no trace: AUTH, HELLO, PING, RESET and QUIT.
func (c *core) barred(cmd *command) bool {
	if !c.cfg.required || c.bound != nil {
		return false
	}
	if cmd == nil {
		return true
	}
	switch cmd.verb {
	case verbFence, verbOwn, verbAuth, verbHello, verbReset, verbQuit:
		return false
	}
	return cmd.Name != "ping"
}

// turnAway ends a session that has to be bound once it has the reply to the command under
// way, where that was refused because of a credential that is not to be tried again.
func (c *core) turnAway(refused bool) {
	switch {
	case !refused || !c.cfg.required || c.bound != nil || c.lead != nil || c.conn.multi || c.waiting(),
		c.retry != nil && c.refusal.Reason != guard.Occupied, c.refusal.Reason == guard.NoCredential:
		return
	}
	c.flow = flow{step: stepFinish, sentinel: c.sentinel()}
}
