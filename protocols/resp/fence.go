package resp

import (
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard"
)

// fenceCommand deals with FENCE BIND, UNBIND, STATUS and HELP, and begins FENCE GATE.
func (c *core) fenceCommand(raw []byte, s *scanner) {
	word := s.arg(raw, 1)
	switch {
	case equalFold(word, "bind") && (s.argc == 3 || s.argc == 4):
		electionID, token := "", string(s.arg(raw, s.argc-1))
		if s.argc == 4 {
			electionID = string(s.arg(raw, 2))
		}
		c.fenceBind(electionID, token)
	case equalFold(word, "unbind") && s.argc == 2:
		c.fenceUnbind("")
	case equalFold(word, "unbind") && s.argc == 3 && c.ruling != nil:
		c.fenceUnbind(string(s.arg(raw, 2)))
	case equalFold(word, "status") && s.argc == 2:
		c.fenceAnswer(codeStatus)
	case equalFold(word, "help") && s.argc == 2:
		c.fenceAnswer(codeHelp)
	case equalFold(word, "gate"):
		c.own(gateCommand, raw, s, 2)
	default:
		c.fenceAnswer(codeUsage)
	}
}

func (c *core) fenceAnswer(what code) {
	if c.conn.multi {
		what = codeInMulti
	}
	c.substitute(what, fenceCommand)
}

// fenceBind begins a bind. Where the connection is in a state that the bind would
// disturb, or that would hide the server's answers, it is refused.
func (c *core) fenceBind(electionID, token string) {
	conn := &c.conn
	switch {
	case conn.multi:
		c.substitute(codeInMulti, fenceCommand)
	case conn.replyOff, conn.skipNext:
		c.substitute(codeReplyOff, fenceCommand)
	case conn.monitor:
		c.substitute(codeMonitor, fenceCommand)
	default:
		c.lead = nil // it has its own
		c.flow = flow{own: true, adds: c.ruling != nil}
		c.bind(c.credential(electionID, token))
	}
}

// fenceUnbind makes the session a reader. The answer is that of the CLIENT SETNAME which
// gives the connection its own name back, after all that was written under the other.
func (c *core) fenceUnbind(election string) {
	if c.conn.multi {
		// What is queued would run when the session counts as a reader.
		c.substitute(codeInMulti, fenceCommand)
		return
	}
	if election != "" {
		c.unbindOne(election)
		return
	}
	c.again, c.lead = nil, nil
	c.noRetry()
	c.unbind(&guard.Refusal{Reason: guard.NoCredential, Election: c.cfg.election})
	c.conn.skipNext = false
	if c.named {
		c.named = false
		c.up = appendCommand(c.up, "CLIENT", "SETNAME", c.conn.name.name)
		return
	}
	c.substitute(codeUnbound, fenceCommand)
}

// status is the reply to FENCE STATUS: pairs of names and values, a map in RESP3.
func (c *core) status() string {
	r := c.why()
	state, electionID, owner, reason, number, rules := "reader", r.Election, "", "", r.Held, r.Rules
	switch {
	case c.bound != nil:
		t := c.bound.term
		state, electionID, owner, number, rules = "bound", t.Election, t.Owner, t.Number, t.Number
	case c.again != nil:
		state, electionID = "pending", c.again.election
		reason = "binds after the next successful AUTH or HELLO"
	default:
		reason = c.refusalText(r)
	}
	var b []byte
	n := 7
	if c.ruling != nil {
		n++
	}
	if c.conn.proto == 3 {
		b = appendHead(b, '%', n)
	} else {
		b = appendHead(b, '*', 2*n)
	}
	for _, f := range [][2]string{{"state", state}, {"election", electionID}, {"owner", owner},
		{"leader", r.Leader}, {"reason", reason}} {
		b = appendBulk(appendBulk(b, f[0]), f[1])
	}
	b = appendNumber(appendBulk(b, "number"), number)
	b = appendNumber(appendBulk(b, "rules"), rules)
	if c.ruling != nil {
		b = c.appendTerms(appendBulk(b, "terms"))
	}
	return string(b)
}

// appendTerms appends all terms of the session, as an array of elections and numbers.
func (c *core) appendTerms(b []byte) []byte {
	n := len(c.more)
	if c.bound != nil {
		n++
	}
	b = appendHead(b, '*', n)
	for t := range c.terms {
		b = appendNumber(appendBulk(appendHead(b, '*', 2), t.term.Election), t.term.Number)
	}
	return b
}

func appendNumber(b []byte, n int64) []byte {
	b = append(b, ':')
	b = strconv.AppendInt(b, n, 10)
	return append(b, '\r', '\n')
}

func fenceHelp() string {
	lines := strings.Split(`FENCE <subcommand> [<arg> ...]. Subcommands are:
BIND [<election>] <token>
    Let this session write while the token is the live one of the election; without
    an election, of the listener's default one. With rules, besides what it holds.
UNBIND [<election>]
    Make this session a reader again, or, on a listener with rules, give one election up.
STATUS
    Say whether this session may write, for which election and number, and if not, why.
GATE <subcommand> [<arg> ...]
    Bind partitions, where the listener has gate_commands. Try FENCE GATE HELP.
HELP
    Print this help.`, "\n")
	b := appendHead(nil, '*', len(lines))
	for _, l := range lines {
		b = append(b, '+')
		b = append(b, l...)
		b = append(b, '\r', '\n')
	}
	return string(b)
}
