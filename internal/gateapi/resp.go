package gateapi

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/admin"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// RESP are the FENCE GATE commands of a listener for Redis, for the gates of those names. A
// binding is its connection's: no other can keep or release it, and it does not outlive the
// connection by more than what its consumer was told.
func (a *API) RESP(names []string) resp.Commands {
	c := respCommands{a: a, gates: make(map[string]*guard.Gate)}
	for _, n := range names {
		c.gates[n] = a.gates[n]
	}
	return c
}

type respCommands struct {
	a     *API
	gates map[string]*guard.Gate
}

// Begin implements resp.Commands.
func (c respCommands) Begin(net.Addr) resp.Conversation {
	return &conversation{respCommands: c, mine: make(map[place]*kept)}
}

// A conversation has one connection's bindings.
type conversation struct {
	respCommands
	mine map[place]*kept
}

// A place is a partition of a gate.
type place struct{ gate, partition string }

// End implements resp.Conversation: the consumer is gone.
func (c *conversation) End() {
	for _, k := range c.mine {
		k.abandon()
	}
}

// Answer implements resp.Conversation.
func (c *conversation) Answer(ctx context.Context, args [][]byte, r *resp.Reply) {
	came := time.Now()
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	if e := c.answer(ctx, came, words, r); e != nil {
		r.Refuse(e.Code, e.Message, e.Hint)
	}
}

func (c *conversation) answer(ctx context.Context, came time.Time, args []string, r *resp.Reply) *admin.Error {
	if len(args) == 0 {
		return usage("")
	}
	sub, args := strings.ToLower(args[0]), args[1:]
	switch {
	case sub == "help" && len(args) == 0:
		gateHelp(r)
		return nil
	case sub == "list" && len(args) == 0:
		c.list(r, came)
		return nil
	case len(args) < 2:
		return usage(sub)
	}
	at := place{args[0], args[1]}
	g := c.gates[at.gate]
	if g == nil {
		return &admin.Error{Code: "unknown-gate", Message: "there is no such gate here", Hint: "Name it in the listener's gate_commands."}
	}
	args = args[2:]
	switch sub {
	case "bind":
		if len(args) == 0 {
			return usage(sub)
		}
		wait, e := milliseconds(sub, args[1:], "WAIT", 2*g.Config().PermitFor)
		if e != nil {
			return e
		}
		return c.bind(ctx, came, g, at, args[0], wait, r)
	case "keep":
		wait, e := milliseconds(sub, args, "TIMEOUT", 0)
		if e != nil {
			return e
		}
		return c.keep(ctx, came, at, wait, r)
	case "release":
		if len(args) > 0 {
			return usage(sub)
		}
		return c.release(ctx, at, r)
	}
	return usage(sub)
}

// takes are the subcommands with their arguments.
var takes = map[string]string{
	"bind": "BIND <gate> <partition> <token> [WAIT <ms>]", "keep": "KEEP <gate> <partition> [TIMEOUT <ms>]",
	"release": "RELEASE <gate> <partition>", "list": "LIST", "help": "HELP",
}

// usage is the refusal of a subcommand with too few or too many arguments.
func usage(sub string) *admin.Error {
	e := invalid("there is no such subcommand")
	if t := takes[sub]; t != "" {
		e = invalid("an argument is missing, or unknown: FENCE GATE " + t)
	}
	e.Hint = tryHelp
	return e
}

const tryHelp = "Try FENCE GATE HELP."

// milliseconds reads a word and the time that follows it.
func milliseconds(sub string, args []string, word string, otherwise time.Duration) (time.Duration, *admin.Error) {
	switch {
	case len(args) == 0:
		return otherwise, nil
	case len(args) != 2 || !strings.EqualFold(args[0], word):
		return 0, usage(sub)
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil || n < 1 || n > maxWait.Milliseconds() {
		e := invalid(word + " must be " + waitBounds)
		e.Hint = tryHelp
		return 0, e
	}
	return time.Duration(n) * time.Millisecond, nil
}

func (c *conversation) bind(ctx context.Context, came time.Time, g *guard.Gate, at place, token string, wait time.Duration, r *resp.Reply) *admin.Error {
	t, e := tokenOf(token)
	if e != nil {
		return e
	}
	k, until, e := c.a.bindFor(ctx, g, at.partition, t, wait)
	if e != nil {
		return e
	}
	k.listen(+1) // until the connection ends
	if old := c.mine[at]; old != nil {
		old.abandon()
	}
	c.forget()
	c.mine[at] = k
	if until.IsZero() {
		return errorOf(k.b.Err())
	}
	term := k.b.Term()
	r.Map(5)
	for _, f := range [][2]string{{"partition", at.partition}, {"election", term.Election}, {"owner", term.Owner}} {
		r.Text(f[0])
		r.Text(f[1])
	}
	r.Text("number")
	r.Number(term.Number)
	trusted(r, until, came)
	return nil
}

// maxMine is how many bindings of a connection are kept with those that are over.
const maxMine = 1000

// forget forgets bindings that are over and of which no trust is left, where there are many.
// The others are as many as the gates let be bound.
func (c *conversation) forget() {
	if len(c.mine) < maxMine {
		return
	}
	for at, k := range c.mine {
		select {
		case <-k.b.Free():
			delete(c.mine, at)
		default:
		}
	}
}

// trusted says for how long a binding is, counted from when the command came.
func trusted(r *resp.Reply, until, came time.Time) {
	r.Text("trusted_ms")
	r.Number(max(0, until.Sub(came).Milliseconds()))
}

var notBound = &admin.Error{Code: "unknown-binding", Message: "this connection has no binding of that partition",
	Hint: "Stop working on it; bind it again with the live token."}

// keep answers when the binding has ended, or after some time how long it is trusted.
func (c *conversation) keep(ctx context.Context, came time.Time, at place, wait time.Duration, r *resp.Reply) *admin.Error {
	k := c.mine[at]
	if k == nil {
		return notBound
	}
	var timeout <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-k.b.Done():
	case <-timeout:
	case <-ctx.Done():
	}
	until := k.tell()
	if until.IsZero() {
		return errorOf(k.b.Err())
	}
	r.Map(1)
	trusted(r, until, came)
	return nil
}

func (c *conversation) release(ctx context.Context, at place, r *resp.Reply) *admin.Error {
	k := c.mine[at]
	if k == nil {
		return notBound
	}
	delete(c.mine, at)
	k.b.Release()
	select {
	case <-k.b.Free():
	case <-ctx.Done():
	}
	r.OK()
	return nil
}

// list tells of the connection's own bindings: clients that have shown nothing see no others.
func (c *conversation) list(r *resp.Reply, came time.Time) {
	r.Array(len(c.mine))
	for at, k := range c.mine {
		term, state := k.b.Term(), "live"
		until := k.tell()
		if until.IsZero() {
			state, until = "ended", came
		}
		r.Map(7)
		for _, f := range [][2]string{{"gate", at.gate}, {"partition", at.partition}, {"election", term.Election}, {"owner", term.Owner}, {"state", state}} {
			r.Text(f[0])
			r.Text(f[1])
		}
		r.Text("number")
		r.Number(term.Number)
		trusted(r, until, came)
	}
}

func gateHelp(r *resp.Reply) {
	lines := strings.Split(`FENCE GATE <subcommand> [<arg> ...]. Subcommands are:
BIND <gate> <partition> <token> [WAIT <ms>]
    Bind the partition to this connection while the token is the live one of its election.
    WAIT is how long to wait for an earlier consumer to be gone.
KEEP <gate> <partition> [TIMEOUT <ms>]
    Wait until the binding is lost, and say why; or, after TIMEOUT, say for how long it is
    trusted: trusted_ms, counted from before this command was sent.
RELEASE <gate> <partition>
    Say that the work has stopped: the partition is free for another.
LIST
    List this connection's bindings.
HELP
    Print this help.`, "\n")
	r.Array(len(lines))
	for _, l := range lines {
		r.Text(l)
	}
}
