package electionapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// Clients says which clients of a listener may send ELECTION commands.
type Clients struct {
	// Loopback lets clients of this machine, also those by a Unix socket.
	Loopback bool
	// Networks are those whose clients may.
	Networks []netip.Prefix
	// Token lets whoever has said ELECTION AUTH with it; empty: there is none.
	Token string
	// Serves says which elections; nil means all.
	Serves func(id string) bool
}

// RESP are the ELECTION commands of a listener for Redis.
func (s *Service) RESP(c Clients) resp.Commands {
	r := &respCommands{s: s, c: c, digest: sha256.Sum256([]byte(c.Token)), auth: c.Token != ""}
	r.c.Token = "" // its digest is enough
	return r
}

type respCommands struct {
	s      *Service
	c      Clients
	auth   bool
	digest [sha256.Size]byte
}

// Begin implements resp.Commands.
func (c *respCommands) Begin(client net.Addr) resp.Conversation {
	return &conversation{respCommands: c, from: client, allowed: c.allows(client)}
}

// allows reports whether a client at that address may without a token.
func (c *respCommands) allows(client net.Addr) bool {
	t, ok := client.(*net.TCPAddr)
	if !ok {
		_, socket := client.(*net.UnixAddr)
		return socket && c.c.Loopback
	}
	a := t.AddrPort().Addr().Unmap().WithZone("")
	if c.c.Loopback && a.IsLoopback() {
		return true
	}
	for _, n := range c.c.Networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// A conversation answers one session.
type conversation struct {
	*respCommands
	from    net.Addr
	allowed bool
}

// End implements resp.Conversation.
func (c *conversation) End() {}

// Answer implements resp.Conversation.
func (c *conversation) Answer(ctx context.Context, args [][]byte, r *resp.Reply) {
	a, p := c.answer(ctx, args, r)
	switch {
	case p != nil:
		r.Error(p.Code.Word(), p.text())
	case a != nil:
		a.write(r)
	}
}

// answer is nil, as is the problem, where r has the reply already.
//
// INVARIANT: only a client at an allowed address, or one that has shown the token, is
// answered anything but how to.
func (c *conversation) answer(ctx context.Context, args [][]byte, r *resp.Reply) (answer, *Problem) {
	if len(args) == 0 {
		return nil, problem(InvalidArgument)
	}
	sub, rest := strings.ToLower(string(args[0])), args[1:]
	switch sub {
	case "help":
		help(r)
		return nil, nil
	case "auth":
		return nil, c.authenticate(rest, r)
	}
	if !c.allowed {
		if c.auth {
			return nil, problem(Unauthenticated)
		}
		return nil, problem(Forbidden)
	}
	if len(rest) == 0 {
		return nil, problem(InvalidArgument)
	}
	id := string(rest[0])
	if p := checkID(id); p != nil {
		return nil, p
	}
	if c.c.Serves != nil && !c.c.Serves(id) {
		return nil, problem(NotServed)
	}
	rest = rest[1:]
	switch sub {
	case "acquire":
		var a acquisition
		if !options(rest, map[string]any{"owner": &a.owner, "ttl": &a.ttl, "token": &a.token, "minfencing": &a.fencing}) {
			return nil, problem(InvalidArgument)
		}
		return c.s.acquire(ctx, id, a, c.from)
	case "status":
		if len(rest) == 0 {
			return c.s.status(ctx, id)
		}
	case "watch":
		return c.watch(ctx, id, rest)
	case "renew", "resign", "validate":
		var holdOff int64
		if len(rest) == 0 || sub != "resign" && len(rest) > 1 || !options(rest[1:], map[string]any{"holdoff": &holdOff}) {
			break
		}
		token := string(rest[0])
		switch sub {
		case "renew":
			return c.s.renew(ctx, id, token)
		case "resign":
			return c.s.resign(ctx, id, token, holdOff)
		}
		return c.s.validate(ctx, id, token)
	}
	return nil, problem(InvalidArgument)
}

func (c *conversation) watch(ctx context.Context, id string, rest [][]byte) (answer, *Problem) {
	var number *int64
	if len(rest)%2 == 1 {
		n, err := strconv.ParseInt(string(rest[0]), 10, 64)
		if err != nil || n < 0 {
			return nil, problem(InvalidArgument)
		}
		number, rest = &n, rest[1:]
	}
	ms := DefaultWatch.Milliseconds()
	if !options(rest, map[string]any{"timeout": &ms}) {
		return nil, problem(InvalidArgument)
	}
	wait, p := watchTime(ms)
	if p != nil {
		return nil, p
	}
	return c.s.watch(ctx, id, number, wait)
}

// authenticate takes ELECTION AUTH. What was allowed stays so.
func (c *conversation) authenticate(args [][]byte, r *resp.Reply) *Problem {
	if len(args) != 1 {
		return problem(InvalidArgument)
	}
	sum := sha256.Sum256(args[0])
	if !c.auth || subtle.ConstantTimeCompare(sum[:], c.digest[:]) != 1 {
		p := problem(Unauthenticated)
		p.Message, p.Hint = "this is not the token of election_commands", ""
		return p
	}
	c.allowed = true
	r.OK()
	return nil
}

// options reads pairs of a word and its value, each once at most, into *string or *int64. It
// reports whether they are right.
func options(args [][]byte, to map[string]any) bool {
	if len(args)%2 != 0 {
		return false
	}
	for i := 0; i < len(args); i += 2 {
		word := string(bytes.ToLower(args[i]))
		switch v := to[word].(type) {
		case *string:
			if *v = string(args[i+1]); *v == "" {
				return false // it would count as not given
			}
		case *int64:
			n, err := strconv.ParseInt(string(args[i+1]), 10, 64)
			if err != nil {
				return false
			}
			*v = n
		default:
			return false // not known, or given twice
		}
		delete(to, word)
	}
	return true
}

func help(r *resp.Reply) {
	lines := strings.Split(`ELECTION <subcommand> [<arg> ...]. Subcommands are:
ACQUIRE <election> [OWNER <name>] [TTL <ms>] [TOKEN <token>] [MINFENCING <number>]
    Ask for the leadership, once. TOKEN asks again after an answer that was lost.
RENEW <election> <token>
    Keep the leadership for another lease.
RESIGN <election> <token> [HOLDOFF <ms>]
    Give the leadership up.
STATUS <election>
    Say who leads.
VALIDATE <election> <token>
    Say whether a token is the live leader's.
WATCH <election> [<number>] [TIMEOUT <ms>]
    Wait until another term than that number's leads (0: nobody's; none: the one now).
AUTH <token>
    Authenticate, where the client's address alone does not do.
HELP
    Print this help.`, "\n")
	r.Array(len(lines))
	for _, l := range lines {
		r.Text(l)
	}
}
