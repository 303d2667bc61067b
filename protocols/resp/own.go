package resp

import (
	"bytes"
	"context"
	"net"
	"strings"

	"github.com/fenceproxy/fenceproxy/policy"
)

// Commands are those of one name that the proxy answers in the server's place.
type Commands interface {
	// Begin begins a conversation with the client at that address, at its first such command
	// and at the first after each RESET. It does not block.
	Begin(client net.Addr) Conversation
}

// A Conversation answers one session's commands, one after the other.
type Conversation interface {
	// Answer writes the one reply to a command into r. All earlier commands of the session
	// have been answered; the next one waits. ctx ends when the client leaves, when the session
	// ends and when the proxy stops: Answer then returns soon, with whatever reply it has.
	Answer(ctx context.Context, args [][]byte, r *Reply)
	// End is called once, after the last Answer. It returns soon.
	End()
}

// The names of commands that a Config may have Commands for.
const (
	OwnElection  = "election"   // ELECTION ...
	OwnFenceGate = "fence|gate" // FENCE GATE ...; args begin after GATE
)

// newOwn is a command that the proxy answers itself.
//
// INVARIANT: such a command never goes upstream, whether the listener has Commands for it or
// not: there are tokens in it.
func newOwn(name string) *command {
	return &command{RedisCommand: &policy.RedisCommand{Name: name, Class: policy.RedisRead}, verb: verbOwn}
}

var (
	electionCommand = newOwn(OwnElection)
	gateCommand     = newOwn(OwnFenceGate)
)

// A call is a command that the shell answers.
type call struct {
	name  string
	args  [][]byte
	proto int // the session's protocol, 2 or 3
}

// own begins an own command, given the number of words in its name. The shell is asked once
// every earlier reply has come; what it answers takes the place of a substitute's answer.
//
// INVARIANT: nothing is done for a client that could not be told what: where replies are
// off, or inside MULTI, whose EXEC it would be too early for.
func (c *core) own(cmd *command, raw []byte, s *scanner, words int) {
	conn := &c.conn
	switch {
	case !c.cfg.owns[cmd.Name]:
		c.substitute(codeNotHere, cmd)
	case conn.multi:
		c.substitute(codeInMulti, cmd)
	case conn.replyOff, conn.skipNext, conn.monitor:
		c.substitute(codeNotNow, cmd)
	case s.argc > maxSpans:
		c.substitute(codeTooMany, cmd)
	default:
		args := make([][]byte, 0, s.argc)
		for i := words; i < s.argc; i++ {
			args = append(args, bytes.Clone(s.arg(raw, i)))
		}
		c.flow = flow{call: &call{name: cmd.Name, args: args}, step: stepSettle, sentinel: c.sentinel()}
	}
}

// callShell asks the shell for the answer.
func (c *core) callShell() {
	c.flow.step = stepCall
	c.flow.call.proto = c.conn.proto
	c.ask = question{kind: askOwn, call: c.flow.call}
}

// call hands the shell the command that it was asked to answer, unless the session has ended
// since.
func (c *core) call() bool {
	c.calling = c.flow.step == stepCall
	return c.calling
}

// called takes the shell's answer, which must be one whole reply. At most one is kept: the
// next own command waits until this one's has been sent.
//
// INVARIANT: what was done is told, also when the session has ended over it: who resigns its
// own term by a bound session races with the next leader, whose fence ends that session.
func (c *core) called(reply []byte) {
	if !c.calling {
		return
	}
	c.calling = false
	// INVARIANT: the client's replies stay in step with its commands.
	var r replyReader
	if n, whole, err := r.advance(reply); err != nil || !whole || n != len(reply) || reply[0] == '>' || reply[0] == '|' {
		reply = []byte(errorLine(wordErr, "fenceproxy has no answer."))
	}
	c.answer = string(reply)
	if c.ended {
		c.close()
		return
	}
	name := c.flow.call.name
	c.ask, c.flow = question{}, flow{}
	c.substituteFor(codeOwn, name)
}

// ownAnswer passes on the answer whose substitute's will not come. All earlier replies have:
// they were waited for before the shell was asked.
func (c *core) ownAnswer() {
	if c.answer != "" {
		c.down = append(c.down, c.answer...)
		c.answer = ""
		c.replied()
	}
}

// notHere says that a listener has no such command.
func notHere(command string) string {
	setting := "election_commands"
	if command == OwnFenceGate {
		setting = "gate_commands"
	}
	return strings.ToUpper(strings.ReplaceAll(command, "|", " ")) + " is not set up on this listener (" + setting + ")."
}
