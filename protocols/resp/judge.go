package resp

import (
	"bytes"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/policy"
)

// fencePrefix begins the keys of fences. Nobody writes them through the proxy.
const fencePrefix = redisfence.Prefix + "{"

func isFenceKey(arg []byte) bool { return bytes.HasPrefix(arg, []byte(fencePrefix)) }

// identify finds the command with that name. known is false when the shell must ask the
// server first. bad is not zero when the command cannot be judged at all.
func (c *core) identify(name []byte) (cmd *command, known bool, bad code) {
	name = lowered(&c.lower, name)
	switch string(name) {
	case "fence":
		return fenceCommand, true, 0
	case OwnElection:
		return electionCommand, true, 0
	case "host:", "post":
		return hostCommand, true, 0
	}
	cmd, known = c.cfg.commands.lookup(name)
	if known {
		return cmd, true, 0
	}
	if c.unasked {
		c.unasked = false
		return nil, true, codeUnasked
	}
	c.ask = question{kind: askCommand, command: string(name)}
	return nil, false, 0
}

// validWord reports whether a word may be the name of a command or subcommand. The servers
// compare names only up to a NUL once they hash alike: "reset\x0030" can be RESET, by
// chance and until the next restart. No such name is passed on.
func validWord(word []byte) bool {
	return len(word) <= maxName && bytes.IndexByte(word, 0) < 0
}

// command judges a whole command and puts it, or what takes its place, into up. It
// reports false when the shell must be asked first: give it the command again then.
func (c *core) command(raw []byte, s *scanner) bool {
	name := s.arg(raw, 0)
	if !validWord(name) {
		c.substitute(codeNoName, nil)
		return true
	}
	cmd, known, bad := c.identify(name)
	switch {
	case !known:
		return false
	case bad != 0:
		c.substitute(bad, nil)
		return true
	}
	if cmd != nil && cmd.Container && s.argc > 1 {
		word := s.arg(raw, 1)
		if !validWord(word) {
			c.substitute(codeNoName, cmd)
			return true
		}
		cmd = cmd.sub(lowered(&c.lower, word))
	}
	if cmd != nil && cmd.verb != verbNone && !c.barred(cmd) && c.special(cmd, raw, s) {
		return true
	}
	code := c.verdict(cmd)
	if c.ruling != nil && code != codeBarred {
		code = c.ruled(cmd, raw, s.argc)
	}
	if c.lead != nil && c.follow(cmd, code) {
		return false
	}
	if c.retry != nil && cmd != nil {
		// Inside MULTI it would be too late to bind.
		if (code == codeWrite || code == codeBarred || cmd.verb == verbMulti) && c.bindsNow() {
			return false
		}
		if code == codeWrite && c.replica {
			c.sendAway(cmd, raw, s)
			return true
		}
		if code == codeWrite && c.early {
			code = codeEarly
		}
	}
	c.retried = false
	if code == 0 && c.touchesFence(cmd, raw, s.argc) {
		code = codeFenceKey
	}
	if code != 0 {
		c.substitute(code, cmd)
		c.turnAway(code == codeBarred)
		return true
	}
	c.up = append(c.up, raw...)
	c.passed(cmd, s.argc)
	return true
}

// verdict says why the session may not send the command, or zero. No command is one
// that the server does not know: a write.
//
// INVARIANT: zero for a write only while the session is bound, but for messages where the
// listener's rule opens them.
func (c *core) verdict(cmd *command) code {
	if c.barred(cmd) {
		return codeBarred
	}
	class := policy.RedisWrite
	if cmd != nil {
		class = cmd.Class
	}
	switch {
	case class == policy.RedisRead, c.cfg.publish && cmd != nil && cmd.Publishes():
		return 0
	case class == policy.RedisRefused:
		return codeNotAllowed
	case c.bound != nil && (class == policy.RedisWrite || class == policy.RedisLeader):
		return 0
	case class == policy.RedisLeader:
		return codeLeader
	case cmd == nil:
		return codeUnknown
	}
	return codeWrite
}

// mustLook reports whether argument i of n may be a key that the command writes.
func (c *core) mustLook(cmd *command, i, n int) bool {
	if cmd == nil {
		return i > 0
	}
	return cmd.Class == policy.RedisWrite && cmd.KeyAt(i, n)
}

// touchesFence reports whether a whole command that writes names a fence's key.
func (c *core) touchesFence(cmd *command, raw []byte, argc int) bool {
	if cmd != nil && cmd.Class != policy.RedisWrite {
		return false
	}
	if !bytes.Contains(raw, []byte(fencePrefix)) {
		return false
	}
	_, pos, _ := scanHead(raw, 0, '*')
	for i := range argc {
		size, at, f := scanHead(raw, pos, '$')
		if f != foundWhole {
			return true // cannot be: raw is whole
		}
		pos = at + int(size) + 2
		if c.mustLook(cmd, i, argc) && isFenceKey(raw[at:at+int(size)]) {
			return true
		}
	}
	return false
}

// passed takes in what a command that is wholly in up does to the connection.
func (c *core) passed(cmd *command, argc int) {
	conn := &c.conn
	conn.skipNext = false
	if cmd == nil {
		return
	}
	switch cmd.verb {
	case verbQuit:
		conn.quit = true
	case verbMulti:
		conn.multi = conn.multi || argc == 1
	case verbExec, verbDiscard:
		if argc != 1 {
			return
		}
		if conn.multi && conn.inMulti != nil && cmd.verb == verbExec {
			conn.name = *conn.inMulti
		}
		conn.multi, conn.inMulti = false, nil
	case verbMonitor:
		conn.monitor = true
	case verbSubscribe:
		if !conn.multi {
			c.owed--
		}
	}
}

// special deals with commands that need more than a verdict. It reports false when the
// command is to be judged like any other.
func (c *core) special(cmd *command, raw []byte, s *scanner) bool {
	switch cmd.verb {
	case verbFence:
		c.fenceCommand(raw, s)
	case verbOwn:
		c.own(cmd, raw, s, 1)
	case verbAuth:
		return c.auth(raw, s)
	case verbHello:
		return c.hello(raw, s)
	case verbReset:
		return s.argc == 1 && c.resets()
	case verbSetName:
		return s.argc == 3 && c.setName(s.arg(raw, 2), cmd)
	case verbGetName:
		return s.argc == 2 && c.getName()
	case verbReply:
		return s.argc == 3 && c.reply(s.arg(raw, 2), raw)
	case verbCapa:
		staysHere(raw, s.argc)
		return false
	case verbList:
		return c.list(cmd, raw)
	default:
		return false
	}
	return true
}

// staysHere makes the capability redirect in CLIENT CAPA one that no server knows, which is
// to be ignored.
//
// INVARIANT: no client is sent past the proxy. It would present its user name there, and the
// token in it. (Redirections of a cluster lead to the proxy itself.)
func staysHere(raw []byte, argc int) {
	_, pos, _ := scanHead(raw, 0, '*')
	for range argc {
		size, at, f := scanHead(raw, pos, '$')
		if f != foundWhole {
			return // cannot be: raw is whole
		}
		pos = at + int(size) + 2
		if equalFold(cString(raw[at:at+int(size)]), "redirect") {
			raw[at] = '-'
		}
	}
}

// reply follows CLIENT REPLY. Inside MULTI it takes effect in the middle of EXEC's
// reply; replies are then not relied on until CLIENT REPLY ON or RESET.
//
// INVARIANT: replies that were off are relied on again when the server has said OK: it refuses
// CLIENT REPLY ON, silently, where the user may not send it and, in RESP2, while subscribed.
func (c *core) reply(mode, raw []byte) bool {
	conn := &c.conn
	c.up = append(c.up, raw...)
	conn.skipNext = false
	mode = cString(mode)
	switch {
	case equalFold(mode, "off"):
		conn.replyOff, conn.replyOn = true, false
	case equalFold(mode, "skip"):
		conn.replyOff = conn.replyOff || conn.multi
		conn.skipNext = !conn.silent()
	case equalFold(mode, "on"):
		conn.replyOn = conn.replyOff && !conn.multi
	}
	return true
}

// setName keeps the name of a bound connection: the client's own name is remembered,
// and the bound one set again, so that the server answers, and counts in MULTI, as ever.
func (c *core) setName(name []byte, cmd *command) bool {
	switch {
	case bytes.HasPrefix(name, []byte(redisfence.Prefix)):
		// INVARIANT: a bound session's own name, which it gets back when it is unbound, is none
		// of a fence's.
		c.substitute(codeName, cmd)
		return true
	case c.bound == nil || !validName(name):
		return false // the server refuses a bad name, and keeps the one it has
	}
	c.remember(name)
	c.up = appendCommand(c.up, "CLIENT", "SETNAME", c.worn)
	c.conn.skipNext = false
	return true
}

func (c *core) remember(name []byte) {
	own := ownName{set: len(name) > 0, name: string(name)}
	if c.conn.multi {
		c.conn.inMulti = &own
		return
	}
	c.conn.name = own
}

// getName lets the server answer the client's own name.
func (c *core) getName() bool {
	if c.bound == nil {
		return false
	}
	own := c.conn.name
	if c.conn.multi && c.conn.inMulti != nil {
		own = *c.conn.inMulti
	}
	switch {
	case own.set:
		c.up = appendCommand(c.up, "ECHO", own.name)
	case c.cfg.cluster != nil && c.conn.multi:
		c.up = appendCommand(c.up, "ECHO", "") // a key would lead to another node
	case c.cfg.cluster != nil:
		c.substitute(codeNoOwnName, nil)
	default:
		c.up = appendCommand(c.up, "GET", fencePrefix+"}:none") // nobody can make this key
	}
	c.conn.skipNext = false
	return true
}

// validName reports whether the servers take the name for a connection.
func validName(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return true
}
