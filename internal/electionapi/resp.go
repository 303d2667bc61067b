package electionapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"net"
	"net/netip"
	"slices"
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
		if p.Code == InvalidArgument {
			p.Hint = "Try ELECTION HELP."
		}
		r.Refuse(string(p.Code), p.Message, p.Hint)
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
		return nil, usage("")
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
		return nil, usage(sub)
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
		if p := options(rest, map[string]any{"owner": &a.owner, "ttl": &a.ttl, "token": &a.token, "minfencing": &a.fencing}); p != nil {
			return nil, p
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
		if len(rest) == 0 || sub != "resign" && len(rest) > 1 {
			break
		}
		if p := options(rest[1:], map[string]any{"holdoff": &holdOff}); p != nil {
			return nil, p
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
	return nil, usage(sub)
}

func (c *conversation) watch(ctx context.Context, id string, rest [][]byte) (answer, *Problem) {
	var number *int64
	if len(rest)%2 == 1 {
		n, err := strconv.ParseInt(string(rest[0]), 10, 64)
		if err != nil || n < 0 {
			return nil, invalid("the number of a term must be a whole number, and not negative (0: nobody's)")
		}
		number, rest = &n, rest[1:]
	}
	ms := DefaultWatch.Milliseconds()
	if p := options(rest, map[string]any{"timeout": &ms}); p != nil {
		return nil, p
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
		return usage("auth")
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

// options reads pairs of a word and its value, each once at most, into *string or *int64, and
// says what is wrong with them. It repeats nothing of them: one may be a token.
func options(args [][]byte, to map[string]any) *Problem {
	known := strings.ToUpper(strings.Join(slices.Sorted(maps.Keys(to)), ", "))
	given := make(map[string]bool)
	for i := 0; i < len(args); i += 2 {
		word := string(bytes.ToLower(args[i]))
		name := strings.ToUpper(word)
		switch v, ok := to[word]; {
		case !ok:
			return invalid("an option is unknown; those of this command: " + known)
		case i+1 == len(args):
			return invalid(name + " has no value")
		case given[word]:
			return invalid(name + " is given twice")
		default:
			given[word] = true
			if p := option(name, string(args[i+1]), v); p != nil {
				return p
			}
		}
	}
	return nil
}

func option(name, value string, to any) *Problem {
	switch v := to.(type) {
	case *string:
		if *v = value; value == "" {
			return invalid(name + " is empty") // it would count as not given
		}
	case *int64:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return invalid(name + " must be a whole number" + unitOf[name])
		}
		*v = n
	}
	return nil
}

// unitOf is what an option's number counts.
var unitOf = map[string]string{
	"TTL": ", of milliseconds (100 to 86400000)", "HOLDOFF": ", of milliseconds (0 to 86400000)", "TIMEOUT": ", of milliseconds, and not negative",
	"MINFENCING": ", and not negative",
}

// commands are the subcommands, in the order of help.
var commands = []struct{ word, args, does string }{
	{"ACQUIRE", "<election> [OWNER <name>] [TTL <ms>] [TOKEN <token>] [MINFENCING <number>]", "Ask for the leadership, once. TOKEN asks again after an answer that was lost."},
	{"RENEW", "<election> <token>", "Keep the leadership for another lease."},
	{"RESIGN", "<election> <token> [HOLDOFF <ms>]", "Give the leadership up."},
	{"STATUS", "<election>", "Say who leads."},
	{"VALIDATE", "<election> <token>", "Say whether a token is the live leader's."},
	{"WATCH", "<election> [<number>] [TIMEOUT <ms>]", "Wait until another term than that number's leads (0: nobody's; none: the one now)."},
	{"AUTH", "<token>", "Authenticate, where the client's address alone does not do."},
	{"HELP", "", "Print this help."},
}

// usage is the problem of a command with too few or too many arguments.
func usage(sub string) *Problem {
	for _, c := range commands {
		if strings.EqualFold(c.word, sub) {
			return invalid("an argument is missing, or there are too many: ELECTION " + c.word + " " + c.args)
		}
	}
	return invalid("there is no such subcommand")
}

func help(r *resp.Reply) {
	r.Array(1 + 2*len(commands))
	r.Text("ELECTION <subcommand> [<arg> ...]. Subcommands are:")
	for _, c := range commands {
		r.Text(strings.TrimSpace(c.word + " " + c.args))
		r.Text("    " + c.does)
	}
}
