package resp

// owes counts a command of the client's that was taken, unless no reply of its own will
// come: while CLIENT REPLY is off, for the command that it skips, and (see passed) for
// subscriptions, whose confirmations come as they come.
//
// The count is for the session's last words alone: they take the place of a reply that is
// owed. To a client that waits for nothing the connection only closes, as when the server
// closes it: libraries take an error that comes unasked for the reply to their next command,
// or for a fault of their own, at which some end the program. No safety rests on it.
func (c *core) owes(skipped bool) {
	if conn := &c.conn; !skipped && !conn.silent() && !conn.skipNext {
		c.owed++
	}
}

// replied counts a reply. Messages of RESP2 subscriptions and of MONITOR count as such: who
// has them waits for nothing else.
func (c *core) replied() { c.owed = max(0, c.owed-1) }

// awaited reports whether the client waits for a reply, or is about to.
func (c *core) awaited() bool { return c.owed > 0 || c.stream.active || len(c.cmd.held) > 0 }
