package policy

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
)

// RedisClass says who may send a Redis command. The zero value is RedisWrite: what is
// not known is a write.
type RedisClass uint8

// The classes of Redis commands.
const (
	// RedisWrite changes data, or publishes, or may: for bound sessions only.
	RedisWrite RedisClass = iota
	// RedisRead reads data, or reads or sets the state of its own connection: for
	// everybody.
	RedisRead
	// RedisLeader changes nothing, but shows what other sessions do: for bound
	// sessions only.
	RedisLeader
	// RedisRefused administers the server, or would undo fencing: for nobody.
	RedisRefused
)

// String is the class in one word.
func (c RedisClass) String() string {
	switch c {
	case RedisRead:
		return "read"
	case RedisLeader:
		return "leader"
	case RedisRefused:
		return "refused"
	}
	return "write"
}

// A RedisCommand is what a server's command table says of one command, and what
// follows from that. It is not changed after ParseRedisCommand made it.
type RedisCommand struct {
	// Name is the server's own name of the command in lower case: "get", or
	// "client|setname" for a subcommand. A renamed command keeps it.
	Name  string
	Class RedisClass
	// First, Last and Step say which arguments are keys, as COMMAND does: First is
	// zero where there is none, and a negative Last counts from the end.
	First, Last, Step int
	// Movable means that First, Last and Step do not name every key: any argument
	// may be one.
	Movable bool
	// Container means that the second word of the command selects a subcommand.
	Container bool

	flags []string
	subs  map[string]*RedisCommand

	use         keyUse    // how its written keys are found
	specs       []keySpec // where they are
	moduleMoves bool      // a module's command that has keys elsewhere, too
}

// Sub returns the subcommand with the name given in lower case. One that the server
// does not list is classified by its name alone.
func (c *RedisCommand) Sub(name string) *RedisCommand {
	if s := c.subs[name]; s != nil {
		return s
	}
	full := c.Name + "|" + strings.Clone(name)
	return &RedisCommand{
		Name: full, Class: classifyRedis(full, c.flags),
		First: c.First, Last: c.Last, Step: c.Step, Movable: true,
	}
}

// Subcommands are the subcommands that the server lists, by their own lower-case names.
func (c *RedisCommand) Subcommands() iter.Seq2[string, *RedisCommand] { return maps.All(c.subs) }

// Publishes reports whether the command sends a message to subscribers and does nothing
// else. Its class is RedisWrite.
func (c *RedisCommand) Publishes() bool { return c.Name == "publish" || c.Name == "spublish" }

// Scripts reports whether the command runs a script or a function. The server does not hold
// those to the keys that they are given.
func (c *RedisCommand) Scripts() bool {
	return c.Name == "eval" || c.Name == "evalsha" || c.Name == "fcall"
}

// KeyAt reports whether argument i of a command with n arguments, its name counted,
// may be a key.
func (c *RedisCommand) KeyAt(i, n int) bool {
	if i < 1 {
		return false
	}
	if c.Movable {
		return true
	}
	last := c.Last
	if last < 0 {
		last += n
	}
	return c.First > 0 && c.Step > 0 && i >= c.First && i <= last && (i-c.First)%c.Step == 0
}

// ErrRedisCommand means that a reply to COMMAND INFO is not understood.
var ErrRedisCommand = errors.New("command description not understood")

// ParseRedisCommand reads one element of the reply to COMMAND or COMMAND INFO: strings,
// int64s and slices of them, as a client library decodes it.
func ParseRedisCommand(v any) (*RedisCommand, error) { return parseRedisCommand(v, 0) }

func parseRedisCommand(v any, depth int) (*RedisCommand, error) {
	e, ok := v.([]any)
	if !ok || len(e) < 6 || depth > 1 {
		return nil, fmt.Errorf("%w: %T of %d elements", ErrRedisCommand, v, len(e))
	}
	name, ok := e[0].(string)
	if !ok || name == "" {
		return nil, fmt.Errorf("%w: its name is a %T", ErrRedisCommand, e[0])
	}
	c := &RedisCommand{Name: strings.ToLower(name), flags: redisStrings(e[2])}
	var numbers [3]int
	for i := range numbers {
		n, ok := e[3+i].(int64)
		if !ok {
			return nil, fmt.Errorf("%w: %q has a key position of type %T", ErrRedisCommand, name, e[3+i])
		}
		numbers[i] = int(n)
	}
	c.First, c.Last, c.Step = numbers[0], numbers[1], numbers[2]
	c.Class = classifyRedis(c.Name, c.flags)
	module := false
	for _, f := range c.flags {
		// A module's key positions are whatever its author wrote down.
		c.Movable = c.Movable || f == "movablekeys" || f == "module"
		c.moduleMoves = c.moduleMoves || f == "movablekeys"
		module = module || f == "module"
	}
	if len(e) > 8 {
		c.readKeys(e[8], module)
	}
	if len(e) > 9 {
		if subs, _ := e[9].([]any); len(subs) > 0 {
			c.Container, c.subs = true, make(map[string]*RedisCommand, len(subs))
			for _, s := range subs {
				sub, err := parseRedisCommand(s, depth+1)
				if err != nil {
					return nil, err
				}
				_, short, ok := strings.Cut(sub.Name, "|")
				if !ok {
					return nil, fmt.Errorf("%w: %q has a subcommand %q", ErrRedisCommand, name, sub.Name)
				}
				c.subs[short] = sub
			}
		}
	}
	if arity, _ := e[1].(int64); len(c.subs) > 0 && arity <= -2 && c.Class == RedisWrite {
		c.Class = RedisRead // without its second word the server runs nothing
	}
	c.Container = c.Container || redisContainers[c.Name]
	return c, nil
}

func redisStrings(v any) []string {
	list, _ := v.([]any)
	s := make([]string, 0, len(list))
	for _, x := range list {
		if f, ok := x.(string); ok {
			s = append(s, strings.ToLower(f))
		}
	}
	return s
}

// classifyRedis decides by the names that are listed, then by the server's flags.
//
// INVARIANT: the last line is RedisWrite. Only what is named as a read, or what the
// server itself allows on a read-only replica, is a read.
func classifyRedis(name string, flags []string) RedisClass {
	if c, ok := redisNamed[name]; ok {
		return c
	}
	container, sub, isSub := strings.Cut(name, "|")
	if isSub && sub == "help" && redisContainers[container] {
		return RedisRead
	}
	var readonly, write, admin, module bool
	for _, f := range flags {
		switch f {
		case "readonly":
			readonly = true
		case "write":
			write = true
		case "admin":
			admin = true
		case "module":
			module = true
		}
	}
	switch {
	case admin:
		return RedisRefused
	case write:
		return RedisWrite
	case readonly && module && suspectModule(name):
		return RedisWrite
	case readonly:
		return RedisRead
	case isSub && redisClosed[container]:
		return RedisRefused
	}
	return RedisWrite
}

// suspectModule reports whether a module's command is of a kind that modules like to call
// readonly although it changes the server: FT.CONFIG, GRAPH.CONFIG, FT.DEBUG, and the
// internal ones such as _FT.DICTADD.
func suspectModule(name string) bool {
	return strings.HasPrefix(name, "_") || strings.HasSuffix(name, ".config") || strings.HasSuffix(name, ".debug")
}
