package resp

import "github.com/fenceproxy/fenceproxy/policy"

// A command is one of the server's commands and what the session must do about it.
type command struct {
	*policy.RedisCommand
	verb verb
	subs map[string]*command // made from those that the server lists

	unlisted bool // a subcommand that the server does not list: a word of the client's
}

// A verb is a command that the session must understand.
type verb uint8

const (
	verbNone verb = iota
	verbFence
	verbAuth
	verbHello
	verbReset
	verbQuit
	verbMulti
	verbExec
	verbDiscard
	verbMonitor
	verbSetName
	verbGetName
	verbReply
	verbCapa
	verbList
	verbSubscribe
	verbOwn
)

var verbs = map[string]verb{
	"auth": verbAuth, "hello": verbHello, "reset": verbReset, "quit": verbQuit,
	"multi": verbMulti, "exec": verbExec, "discard": verbDiscard,
	"monitor":   verbMonitor,
	"subscribe": verbSubscribe, "psubscribe": verbSubscribe, "ssubscribe": verbSubscribe,
	"unsubscribe": verbSubscribe, "punsubscribe": verbSubscribe, "sunsubscribe": verbSubscribe,
	"client|setname": verbSetName, "client|getname": verbGetName, "client|reply": verbReply,
	"client|capa":   verbCapa,
	"cluster|slots": verbList, "cluster|shards": verbList, "cluster|nodes": verbList,
	"cluster|replicas": verbList, "cluster|slaves": verbList,
}

// fenceCommand is this proxy's own.
var fenceCommand = &command{RedisCommand: &policy.RedisCommand{Name: "fence", Class: policy.RedisRead}, verb: verbFence}

// hostCommand stands for POST and Host:, at which the servers close the connection.
var hostCommand = &command{RedisCommand: &policy.RedisCommand{Name: "host:", Class: policy.RedisRead}}

func newCommand(p *policy.RedisCommand) *command {
	c := &command{RedisCommand: p, verb: verbs[p.Name]}
	for name, sub := range p.Subcommands() {
		if c.subs == nil {
			c.subs = make(map[string]*command)
		}
		c.subs[name] = newCommand(sub)
	}
	return c
}

// sub returns the subcommand with that lower-case name.
func (c *command) sub(name []byte) *command {
	if s := c.subs[string(name)]; s != nil {
		return s
	}
	s := newCommand(c.Sub(string(name)))
	s.unlisted = true
	return s
}

// maxName is longer than any name of a command or subcommand; a longer one is unknown.
const maxName = 128

// mayBeLong reports whether a command may be passed on without having been held whole.
func (v verb) mayBeLong() bool { return v == verbNone || v == verbSubscribe }

func nameOf(c *command) string {
	if c == nil {
		return ""
	}
	return c.Name
}

// lowered copies a name that fits into buf, in lower case.
func lowered(buf *[maxName]byte, name []byte) []byte {
	n := copy(buf[:], name)
	for i := range buf[:n] {
		buf[i] = lower(buf[i])
	}
	return buf[:n]
}
