package respdiff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// An argument is what COMMAND DOCS says of one of a command's arguments.
type argument struct {
	name, kind, token            string
	optional, multiple, repeated bool // repeated: the token, too
	args                         []argument
}

// A doc is what the server says of one command.
type doc struct {
	name  string // "client|id"
	group string
	args  []argument
}

// docs asks the server for all that it documents, subcommands included.
func docs(do func(...any) *redis.Cmd) (map[string]doc, error) {
	list, err := do("COMMAND", "DOCS").Slice()
	if err != nil {
		return nil, err
	}
	all := make(map[string]doc)
	for i := 0; i+1 < len(list); i += 2 {
		readDoc(all, fmt.Sprint(list[i]), list[i+1])
	}
	return all, nil
}

func readDoc(all map[string]doc, name string, v any) {
	d := doc{name: name}
	for key, value := range pairs(v) {
		switch key {
		case "group":
			d.group = fmt.Sprint(value)
		case "arguments":
			d.args = readArguments(value)
		case "subcommands":
			subs, _ := value.([]any)
			for i := 0; i+1 < len(subs); i += 2 {
				readDoc(all, fmt.Sprint(subs[i]), subs[i+1])
			}
		}
	}
	all[name] = d
}

func readArguments(v any) []argument {
	list, _ := v.([]any)
	var all []argument
	for _, e := range list {
		var a argument
		for key, value := range pairs(e) {
			switch key {
			case "name":
				a.name = fmt.Sprint(value)
			case "type":
				a.kind = fmt.Sprint(value)
			case "token":
				a.token = fmt.Sprint(value)
			case "flags":
				flags := fmt.Sprint(value)
				a.optional = strings.Contains(flags, "optional")
				a.multiple = strings.Contains(flags, "multiple")
				a.repeated = strings.Contains(flags, "multiple_token")
			case "arguments":
				a.args = readArguments(value)
			}
		}
		all = append(all, a)
	}
	return all
}

// pairs reads a map that came flat.
func pairs(v any) map[string]any {
	m := make(map[string]any)
	list, _ := v.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = list[i+1]
	}
	return m
}

// calls makes calls of a command: one with what must be there, one for each thing that may
// be there besides, and one for each choice.
func (d doc) calls() [][]string {
	base := strings.Split(d.name, "|")
	var all [][]string
	add := func(choose map[string]int, with string) {
		g := generator{doc: d, choose: choose, with: with}
		call := slices.Concat(base, g.list(d.args, 0))
		if !slices.ContainsFunc(all, func(c []string) bool { return slices.Equal(c, call) }) {
			all = append(all, call)
		}
	}
	add(nil, "")
	var walk func(list []argument, with string, depth int)
	walk = func(list []argument, with string, depth int) {
		for _, a := range list {
			own := with
			if a.optional && own == "" {
				own = a.name
				add(nil, own)
			}
			if a.kind == "oneof" {
				for i := range a.args {
					add(map[string]int{a.name: i}, own)
				}
			}
			if a.multiple {
				add(map[string]int{a.name: 1}, own)
			}
			if depth < 2 {
				walk(a.args, own, depth+1)
			}
		}
	}
	walk(d.args, "", 0)
	return all
}

// A generator makes one call.
type generator struct {
	doc
	choose map[string]int // of a oneof's choices, or a second time what may come several times
	with   string         // the optional argument that is there
	nth    int            // which of several
}

func (g *generator) list(args []argument, depth int) []string {
	var out []string
	for _, a := range args {
		if a.optional && a.name != g.with && depth == 0 {
			continue
		}
		if a.optional && depth > 0 && a.name != g.with && g.choose[a.name] == 0 {
			continue
		}
		out = append(out, g.one(a, depth)...)
	}
	return out
}

func (g *generator) one(a argument, depth int) []string {
	var out []string
	if a.token != "" {
		out = append(out, a.token)
	}
	times := 1
	if a.multiple && g.choose[a.name] == 1 && a.kind != "oneof" {
		times = 2
	}
	for n := range times {
		g.nth = n
		if n > 0 && a.repeated && a.token != "" {
			out = append(out, a.token)
		}
		switch a.kind {
		case "oneof":
			if len(a.args) > 0 {
				out = append(out, g.one(a.args[min(g.choose[a.name], len(a.args)-1)], depth+1)...)
			}
		case "block":
			out = append(out, g.list(a.args, depth+1)...)
		case "pure-token":
		default:
			out = append(out, g.value(a))
		}
	}
	g.nth = 0
	return out
}

// keys are names of data of each kind; see seed.
var keys = map[string]string{
	"string": "str", "list": "lst", "set": "st", "sorted-set": "zst", "hash": "hsh", "stream": "stm",
	"hyperloglog": "hll", "geo": "geo", "bitmap": "bits", "generic": "str",
}

// seed is a script that makes the data anew, whatever there is.
const seed = `for _, k in ipairs({'str', 'lst', 'st', 'zst', 'hsh', 'stm', 'hll', 'geo', 'bits', 'dst', 'new', 'n', 'str2', 'vec'}) do redis.call('DEL', k) end
redis.call('SET', 'str', '5') redis.call('RPUSH', 'lst', 'a', 'b', 'c', '1') redis.call('SADD', 'st', '1', '2', '3')
redis.call('ZADD', 'zst', '1', 'a', '2', 'b', '3', 'c') redis.call('HSET', 'hsh', 'f', '1', 'g', '2')
redis.call('XADD', 'stm', '1-1', 'f', 'v') redis.call('XADD', 'stm', '1-2', 'f', 'w') redis.call('XGROUP', 'CREATE', 'stm', 'grp', '0')
redis.call('XREADGROUP', 'GROUP', 'grp', 'con', 'COUNT', '1', 'STREAMS', 'stm', '>')
redis.call('PFADD', 'hll', 'a', 'b') redis.call('GEOADD', 'geo', '13.3', '38.1', 'a', '15.0', '37.5', 'b') redis.call('SETBIT', 'bits', '7', '1') return 1`

const library = "#!lua name=lib\nredis.register_function{function_name='f', callback=function(k, a) return {k, a} end, flags={'no-writes'}}"

// value makes up a value by an argument's name, or else by its type.
func (g *generator) value(a argument) string {
	group := g.group
	switch a.name {
	case "destination", "destkey", "dst", "newkey", "storekey", "storedistkey":
		return "dst"
	case "timeout":
		if a.kind == "double" {
			return "0.01"
		}
		return "10"
	case "milliseconds":
		if strings.HasPrefix(g.name, "xread") {
			return "10"
		}
		return "100000"
	case "numkeys", "numfields", "num-matches", "numreplicas":
		return fmt.Sprint(1 + g.choose["key"] + g.choose["field"]*map[bool]int{true: 1}[g.choose["key"] == 0])
	case "numlocal", "cursor", "index", "protover", "rank", "entries-added", "entriesread", "entries_read", "entries_added":
		return map[string]string{"cursor": "0", "protover": "3", "rank": "1", "numlocal": "0"}[a.name] + map[bool]string{true: "0"}[strings.HasPrefix(a.name, "ind") || strings.HasPrefix(a.name, "ent")]
	case "longitude":
		return "14"
	case "latitude":
		return "38"
	case "radius", "width", "height":
		return "200"
	case "member", "member1", "pivot", "element":
		if group == "set" {
			return []string{"1", "new"}[g.nth]
		}
		return []string{"a", "new"}[g.nth]
	case "member2":
		return "b"
	case "field":
		return []string{"f", "g"}[g.nth]
	case "groupname", "group":
		return "grp"
	case "consumer", "consumername":
		return "con"
	case "id", "last-id", "lastid", "max-deleted-id", "max_deleted_entry_id", "threshold", "start-id":
		switch {
		case g.name == "xadd" && a.name == "id":
			return "5-1"
		case g.name == "xsetid" || g.name == "xgroup|setid" || g.name == "xgroup|create":
			return "9-9"
		case strings.HasPrefix(g.name, "xread"):
			return map[bool]string{true: ">", false: "0"}[g.name == "xreadgroup"]
		}
		return "1-1"
	case "start", "min":
		switch {
		case strings.Contains(g.name, "lex"):
			return "[a"
		case group == "stream":
			return "-"
		case a.name == "min":
			return "-inf"
		}
		return "0"
	case "stop", "end", "max":
		switch {
		case strings.Contains(g.name, "lex"):
			return "[z"
		case g.name == "xrevrange" || group == "stream":
			return "+"
		case a.name == "max":
			return "+inf"
		}
		return "-1"
	case "encoding":
		return "u8"
	case "bit":
		return "1"
	case "script":
		return "return {KEYS[1], ARGV[1]}"
	case "sha1":
		return testenv.ExpandCase("{{sha return 1}}")
	case "function":
		return "f"
	case "function-code":
		return strings.NewReplacer("lib", "other", "'f'", "'g'").Replace(library)
	case "library-name", "library-name-pattern":
		return "lib"
	case "version":
		return "5"
	case "command", "command-name":
		return "get"
	case "category", "categoryname":
		return "read"
	case "username":
		return "default"
	case "parameter":
		return "maxmemory"
	case "section":
		return "server"
	case "event":
		return "command"
	case "destination-db", "db":
		return "1"
	case "type":
		return "string"
	case "by-pattern", "get-pattern":
		return "w_*"
	case "operation":
		return "AND"
	case "unix-time-seconds":
		return "9999999999"
	case "unix-time-milliseconds":
		return "9999999999000"
	case "min-idle-time", "ms":
		return "0"
	case "key", "source", "src", "key1", "key2", "sourcekey", "keys":
		if name, ok := keys[group]; ok && a.kind == "key" {
			return []string{name, "new"}[g.nth]
		}
	}
	switch a.kind {
	case "integer":
		return "1"
	case "double":
		return "1.5"
	case "pattern":
		return "*"
	case "key":
		return "str"
	}
	return []string{"v", "w"}[g.nth]
}
