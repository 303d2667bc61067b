package resp

import (
	"slices"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
	"github.com/fenceproxy/fenceproxy/protocols"
)

// A core is one session's protocol: bytes from either side go in, bytes for either
// side and questions come out. It does no I/O, starts nothing and knows no clock. The
// shell calls it from one goroutine at a time, writes up to the server and down to the
// client, and empties both.
//
// Its state towards the fence:
//
//	reader --credential, server's yes--> binding --every check passed--> bound
//	   ^  ^------------refused--------------/                             |
//	   |-------------------- RESET, FENCE UNBIND -------------------------|
//	   any --permit ended, connection in doubt--> ended                   |
//	                                               ^---permit ended-------/
//
// INVARIANT: writes of the client's are put into up in the state bound only, but those that the
// listener's rules open, and bound is entered only from the shell's answer that the permit still lives, after the
// server answered every step of the bind as it must.
//
// INVARIANT: while the state is bound, nothing is put into up that removes or changes
// the connection's name: a takeover finds bound connections by their names.
type core struct {
	cfg coreConfig

	up   []byte // for the server
	down []byte // for the client
	ask  question

	cmd    collector     // the client's command under way, while it is held
	lower  [maxName]byte // the name being looked up
	stream streamer      // or while it is passed on, or dropped, in pieces
	served served        // the server's reply under way

	conn    connState
	flow    flow
	bound   *binding       // not nil: the session may write; of several the newest
	more    []*binding     // those that it is bound to besides, with rules
	worn    string         // the name of the connection while it is bound
	ruling  *ruling        // nil: the listener has no rules
	refusal *guard.Refusal // why it may not, while bound is nil
	again   *credential    // to bind with after the next successful AUTH
	retry   *credential    // to bind with before the next write: the refusal may pass; in a cluster
	replica bool           // it will not while the node is a replica
	early   bool           // it will when the node is known as a primary
	retried bool           // it was tried for the command under way

	lead protocols.Leadership // what to bind with by itself; nil: nothing, or the client has its own

	notBound *guard.Refusal // why a bind failed, for the log: the shell takes it out

	bindErr *guard.Refusal // why the last FENCE BIND failed; nil: it did not
	named   bool           // the connection may carry a bound name
	unasked bool           // the shell could not ask what the command is
	answer  string         // the reply to an own command, until its substitute's comes
	calling bool           // the shell has an own command, and answers with called
	anew    int            // how many RESETs were taken

	sentinels uint64 // how many were sent
	dead      bool   // the server was made to end the session: drop what the client sends
	poison    string // replaces the server's protocol error, if not empty
	owed      int    // replies that the client waits for, as far as can be told; see owes
	ended     bool   // at the next reply boundary: send last and close
	last      []byte
	closed    bool // everything for the client is in down: write it and close
}

// coreConfig is what a core is told once.
type coreConfig struct {
	nonce     string // random, for this session alone; see substitute
	election  string // the listener's default election, or empty
	serves    func(election string) bool
	fenceDB   int
	publish   bool   // readers may publish
	localAddr string // of our end of the connection upstream, as CLIENT INFO shows it
	commands  commandTable
	cluster   clusterMap           // nil: the server is no node of a cluster
	rules     *policy.Rules        // nil: none
	maybe     bool                 // it may be one all the same
	owns      map[string]bool      // own commands that the shell answers, by name
	lead      protocols.Leadership // nil: the listener does not campaign
	required  bool                 // who is not bound is served nothing
}

// A commandTable knows the server's commands by lower-case name.
type commandTable interface {
	// lookup returns the command; known is false when the server must be asked first. A
	// nil command that is known does not exist.
	lookup(name []byte) (c *command, known bool)
}

// A binding is what ties the session's connection to a term.
type binding struct {
	term       guard.Term
	credential credential
	name       string // the name of a connection that is bound to this term alone
	key        string // the fence's key
	value      string // what it must hold
	// direct: the connection is a Unix socket's, and nobody stands in between (Direct).
	direct bool
}

// connState is the state of the connection upstream, as far as it matters here.
type connState struct {
	proto    int // 2 or 3
	multi    bool
	replyOff bool
	replyOn  bool // CLIENT REPLY ON was passed on since, and not answered yet
	skipNext bool // CLIENT REPLY SKIP came last
	monitor  bool
	quit     bool // QUIT was passed on: the server will close
	name     ownName
	inMulti  *ownName // a name given inside MULTI, which counts at EXEC
}

// silent reports whether, as far as is known, no replies come.
func (s *connState) silent() bool { return s.replyOff && !s.replyOn }

// An ownName is the name that the client gave its connection.
type ownName struct {
	set  bool
	name string
}

// question is what the core needs to know before it reads more from the client.
type question struct {
	kind       questionKind
	credential guard.Credential // for askAdmit
	command    string           // for askCommand
	call       *call            // for askOwn
	renew      *binding         // for askAdmit: the fence was not as this one's permit said
	retry      bool             // for askAdmit: nobody waits for the answer but the next write
}

type questionKind uint8

const (
	askNothing  questionKind = iota
	askAdmit                 // admit the credential; answer with admitted
	askLive                  // does the permit still live? answer with confirmed
	askCommand               // what is this command? answer by the table, then clear ask
	askRecord                // does the cluster say severed, as the permit? answer with recorded
	askTopology              // look at the cluster anew; answer with refreshed
	askOwn                   // answer a command of the proxy's own; answer with called
)

func newCore(cfg coreConfig) *core {
	c := &core{cfg: cfg, lead: cfg.lead}
	c.conn.proto = 2
	c.cmd.reset()
	c.refusal = &guard.Refusal{Reason: guard.NoCredential, Election: cfg.election}
	if cfg.rules != nil {
		c.ruling = new(ruling)
	}
	return c
}

// waiting reports whether the core takes no bytes from the client now: it waits for the
// server or for the shell's answer.
func (c *core) waiting() bool {
	return !c.ended && (c.flow.step != stepNone || c.ask.kind != askNothing)
}

// holds reports whether the core still uses the permit that it was last given.
func (c *core) holds() bool { return c.bound != nil || c.flow.binding != nil }

// holding reports whether the core still uses the permit of that binding.
func (c *core) holding(b *binding) bool {
	return b == c.bound && b != nil || b == c.flow.binding || slices.Contains(c.more, b)
}

// asked takes in that the shell asked the server what a command is, or could not.
func (c *core) asked(ok bool) {
	c.ask = question{}
	c.unasked = !ok
}

// drain ends the session once the replies that are owed have come.
func (c *core) drain() {
	conn := &c.conn
	if c.waiting() || c.dead || len(c.cmd.held) > 0 || c.stream.active || conn.replyOff || conn.skipNext || conn.monitor {
		c.end("")
		return
	}
	c.flow = flow{step: stepFinish, sentinel: c.sentinel()}
}

// unbind makes the session a reader. The shell releases the permit.
func (c *core) unbind(why *guard.Refusal) {
	c.bound, c.more = nil, nil
	c.refusal = why
	c.ruling.forget("")
}

// end makes the session close at the next reply boundary, after the line given if the
// client waits for a reply. From now on nothing of the client's is put into up.
func (c *core) end(line string) {
	if c.ended {
		return
	}
	c.ended = true
	c.up = c.up[:0]
	c.last = []byte(line)
	c.bound, c.more, c.flow, c.ask = nil, nil, flow{}, question{}
	c.close()
}

// close says the last words of a session that has ended, unless it is too early: within a reply,
// and while the shell has an own command, whose answer the client gets before them.
func (c *core) close() {
	if c.closed || c.calling || !c.served.between() {
		return
	}
	c.closed = true
	c.ownAnswer()
	if c.awaited() {
		c.down = append(c.down, c.last...)
	}
}

// over takes in that the server's side is over: nothing that is still to come is waited for.
func (c *core) over() {
	c.calling = false
	if c.flow.step == stepCall {
		c.flow, c.ask = flow{}, question{}
	}
	if c.ended {
		c.close()
	} else if c.served.between() {
		c.ownAnswer()
	}
}

// A credential is what the client presented, checked as far as that goes without asking.
type credential struct {
	election string
	token    election.Token
	refusal  *guard.Refusal // it cannot be asked for at all
	lead     bool           // it is the listener's own
	then     *credential    // presented with it; with rules
}
