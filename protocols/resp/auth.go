package resp

import (
	"bytes"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/policy"
)

// Stand-ins that name a command to people.
var (
	authCommand  = &command{RedisCommand: &policy.RedisCommand{Name: "auth"}}
	helloCommand = &command{RedisCommand: &policy.RedisCommand{Name: "hello"}}
)

func arguments(raw []byte, s *scanner) []string {
	args := make([]string, s.argc)
	for i := range args {
		args[i] = string(s.arg(raw, i))
	}
	return args
}

// auth deals with AUTH: a credential in the user name is taken out, and used once the
// server has said yes.
func (c *core) auth(raw []byte, s *scanner) bool {
	if s.argc > maxSpans {
		c.substitute(codeTooLong, authCommand)
		return true
	}
	args := arguments(raw, s)
	var cred *credential
	if s.argc == 3 {
		args[1], cred = c.splitUser(args[1])
	} else {
		c.strip(args, 1) // no user name; but nothing that looks like a token goes upstream
	}
	switch {
	case cred != nil && c.conn.multi:
		c.substitute(codeInMulti, authCommand)
	case cred == nil && c.again == nil || c.conn.multi:
		c.up = appendCommand(c.up, args...)
		c.passed(nil, s.argc)
	default:
		c.present(appendCommand(nil, args...), flow{cred: cred})
	}
	return true
}

// hello deals with HELLO: like AUTH, and the protocol and the name that it sets are kept
// track of.
func (c *core) hello(raw []byte, s *scanner) bool {
	switch {
	case c.conn.multi:
		c.substitute(codeInMulti, helloCommand)
		return true
	case s.argc > maxSpans:
		c.substitute(codeTooLong, helloCommand)
		return true
	}
	args := arguments(raw, s)
	f := flow{hello: true}
	c.strip(args[:min(len(args), 2)], 1)
	for i := 2; i < len(args); {
		switch opt := cString([]byte(args[i])); {
		case equalFold(opt, "auth") && i+2 < len(args):
			user, cred := c.splitUser(args[i+1])
			args[i+1] = user
			if cred != nil {
				f.cred = cred
			}
			i += 3
		case equalFold(opt, "setname") && i+1 < len(args):
			c.strip(args[:i+2], i+1)
			name := []byte(args[i+1])
			own := &ownName{set: len(name) > 0, name: args[i+1]}
			switch {
			case bytes.HasPrefix(name, []byte(redisfence.Prefix)):
				c.substitute(codeName, helloCommand)
				return true
			case c.bound != nil && validName(name):
				// The bound name stays until the connection is known to be unbound.
				f.name, args[i+1] = own, c.worn
			}
			i += 2
		default:
			// INVARIANT: no SETNAME goes upstream unread. The server refuses HELLO at this
			// option; were it one of a server to come, what follows is left out.
			c.strip(args, i)
			args = args[:i+1]
			i = len(args)
		}
	}
	c.present(appendCommand(nil, args...), f)
	return true
}

// strip takes whatever looks like a credential out of the arguments from position i on.
func (c *core) strip(args []string, i int) {
	for ; i < len(args); i++ {
		if strings.Contains(strings.ToLower(args[i]), "token") {
			args[i], _ = c.splitUser(args[i])
		}
	}
}

// present sends AUTH or HELLO, and follows what it answers where answers come.
func (c *core) present(cmd []byte, f flow) {
	conn := &c.conn
	if f.cred != nil {
		c.lead = nil // it has its own
	}
	if !conn.replyOff && !conn.skipNext && !conn.monitor {
		c.authenticate(cmd, f)
		return
	}
	c.up = append(c.up, cmd...)
	conn.skipNext = false
	if f.cred != nil && c.bound == nil {
		c.refusal = &guard.Refusal{Reason: guard.NotAllowed, Election: f.cred.election,
			Detail: "the credential was presented while CLIENT REPLY or MONITOR hides the server's answer"}
	}
	if f.name != nil {
		conn.name = *f.name
	}
}

// resets passes RESET on. It takes the connection's name off.
//
// INVARIANT: the session is unbound here, before RESET is in up; it is bound again by a
// bind of its own, after RESET's reply.
func (c *core) resets() bool {
	cred := c.again
	if cred == nil && c.lead == nil {
		cred = c.retry
	}
	if c.bound != nil {
		election := c.bound.term.Election
		if held := c.held(); held != nil {
			cred = held
		}
		c.unbind(&guard.Refusal{Reason: guard.NoCredential, Election: election})
	}
	c.again, c.named = nil, false
	c.anew++
	c.noRetry()
	c.up = appendCommand(c.up, "RESET")
	c.conn = connState{proto: 2, quit: c.conn.quit}
	if cred != nil {
		c.flow = flow{}
		c.bind(cred)
	}
	return true
}
