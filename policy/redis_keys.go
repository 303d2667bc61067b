package policy

import "strings"

// keyUse says how it is found which keys a command writes. The zero value is that it
// cannot be told.
type keyUse uint8

const (
	keysUntold    keyUse = iota
	keysBySpec           // its written keys are where the specs say
	keysOfSort           // SORT, GEORADIUS: what follows STORE, where there is one
	keysOfStreams        // XREADGROUP
	keysOfMigrate        // MIGRATE
)

// A keySpec says where written keys of a command are: from begin on, or after a number
// that says how many there are.
type keySpec struct {
	begin      int
	last, step int // of a range: the last one from begin on, or from the end where it is negative
	counted    bool
	number     int // of a counted one: where its number is, and the first key
	first      int
}

// maxKeySpecs is how many lists of written keys a command may have.
const maxKeySpecs = 4

// specialKeys are commands whose key specs do not tell all. The servers themselves read them
// by code of their own.
var specialKeys = map[string]keyUse{
	"sort": keysOfSort, "georadius": keysOfSort, "georadiusbymember": keysOfSort,
	"xreadgroup": keysOfStreams, "migrate": keysOfMigrate,
}

// readKeys takes in the key specs of a command's description.
//
// INVARIANT: what is not understood leaves the command's keys untold, and so does a command
// without written keys: it may write any.
func (c *RedisCommand) readKeys(specs any, module bool) {
	if u, ok := specialKeys[c.Name]; ok && !module {
		c.use = u
		return
	}
	if module {
		// What its author says of a key, other than where it is, is not relied on.
		if c.First > 0 && c.Step > 0 && !c.moduleMoves {
			last := c.Last
			if last > 0 {
				last -= c.First
			}
			c.use, c.specs = keysBySpec, []keySpec{{begin: c.First, last: last, step: c.Step}}
		}
		return
	}
	list, _ := specs.([]any)
	var written, all []keySpec
	for _, one := range list {
		s, writes, isKey, ok := parseKeySpec(one)
		switch {
		case !ok:
			return
		case !isKey:
			continue
		case writes:
			written = append(written, s)
		}
		all = append(all, s)
	}
	if len(written) == 0 {
		written = all // it writes, so it writes these
	}
	if len(written) > 0 && len(written) <= maxKeySpecs {
		c.use, c.specs = keysBySpec, written
	}
}

// parseKeySpec reads one key spec. ok is false where it does not tell every key.
func parseKeySpec(v any) (s keySpec, writes, isKey, ok bool) {
	m := redisMap(v)
	isKey, ok = true, true
	for _, f := range redisStrings(m["flags"]) {
		switch f {
		case "rw", "ow", "rm":
			writes = true
		case "not_key":
			isKey = false
		case "incomplete":
			ok = false
		}
	}
	if !isKey {
		return s, false, false, true
	}
	begin, find := redisMap(m["begin_search"]), redisMap(m["find_keys"])
	index, ok1 := redisMap(begin["spec"])["index"].(int64)
	if begin["type"] != "index" || !ok1 || index < 1 {
		return s, writes, true, false
	}
	s.begin = int(index)
	number := func(key string) int {
		n, is := redisMap(find["spec"])[key].(int64)
		ok = ok && is
		return int(n)
	}
	switch find["type"] {
	case "range":
		s.last, s.step = number("lastkey"), number("keystep")
		ok = ok && number("limit") <= 1
	case "keynum":
		s.counted = true
		s.number, s.first, s.step = s.begin+number("keynumidx"), s.begin+number("firstkey"), number("keystep")
		ok = ok && s.number < s.first
	default:
		ok = false
	}
	return s, writes, true, ok && s.step > 0
}

// redisMap reads a map, or the pairs of an array.
func redisMap(v any) map[string]any {
	m := make(map[string]any)
	switch v := v.(type) {
	case map[any]any:
		for k, x := range v {
			if s, ok := k.(string); ok {
				m[strings.ToLower(s)] = x
			}
		}
	case []any:
		for i := 0; i+1 < len(v); i += 2 {
			if s, ok := v[i].(string); ok {
				m[strings.ToLower(s)] = v[i+1]
			}
		}
	}
	return m
}

// A KeyCursor finds the keys that a command writes in its arguments as they come.
type KeyCursor struct {
	c      *RedisCommand
	argc   int
	counts [maxKeySpecs]int
}

// Begin begins a command of argc arguments, its name counted. False means that it cannot be
// told in this way which keys it writes.
func (k *KeyCursor) Begin(c *RedisCommand, argc int) bool {
	*k = KeyCursor{c: c, argc: argc}
	if c == nil || c.use != keysBySpec {
		return false
	}
	for _, s := range c.specs {
		if s.begin >= argc || s.counted && s.number >= argc {
			return false
		}
	}
	return true
}

// Key reports whether argument i is a key that is written.
func (k *KeyCursor) Key(i int) bool {
	for n := range k.c.specs {
		s := &k.c.specs[n]
		if s.counted {
			if i >= s.first && (i-s.first)%s.step == 0 && (i-s.first)/s.step < k.counts[n] {
				return true
			}
			continue
		}
		last := s.begin + s.last
		if s.last < 0 {
			last = k.argc + s.last
		}
		if i >= s.begin && i <= last && (i-s.begin)%s.step == 0 {
			return true
		}
	}
	return false
}

// Number reports whether argument i says how many keys there are. Give it to Count then.
func (k *KeyCursor) Number(i int) bool {
	for n := range k.c.specs {
		if s := &k.c.specs[n]; s.counted && s.number == i {
			return true
		}
	}
	return false
}

// Count takes in the argument that says how many keys there are. False means that it is none
// that the server takes, or that there are no keys, and it cannot be told what is written.
func (k *KeyCursor) Count(i int, arg []byte) bool {
	count := 0
	for _, b := range arg {
		if b < '0' || b > '9' || count > k.argc {
			return false
		}
		count = 10*count + int(b-'0')
	}
	for n := range k.c.specs {
		if s := &k.c.specs[n]; s.counted && s.number == i {
			if count == 0 || count > k.argc-s.first {
				return false
			}
			k.counts[n] = count
		}
	}
	return true
}

// WrittenKeys appends to keys those that a whole command writes, its name the first of
// argv. told is false where it cannot be told: it may write any. It allocates nothing but
// room in keys.
func (c *RedisCommand) WrittenKeys(argv, keys [][]byte) (_ [][]byte, told bool) {
	if c == nil {
		return keys, false
	}
	switch c.use {
	case keysBySpec:
		var k KeyCursor
		if !k.Begin(c, len(argv)) {
			return keys, false
		}
		before := len(keys)
		for i, arg := range argv {
			switch {
			case k.Number(i):
				if !k.Count(i, arg) {
					return keys, false
				}
			case k.Key(i):
				keys = append(keys, arg)
			}
		}
		return keys, len(keys) > before
	case keysOfSort:
		// The servers' last STORE counts, and which words they take for it depends on those
		// before: each of them counts here.
		for i := 1; i < len(argv)-1; i++ {
			if word := argv[i]; isWord(word, "store") || isWord(word, "storedist") {
				keys = append(keys, argv[i+1])
			}
		}
		return keys, true
	case keysOfStreams:
		return streamKeys(argv, keys)
	case keysOfMigrate:
		return migratedKeys(argv, keys)
	}
	return keys, false
}

// streamKeys are the keys of XREADGROUP, read as the servers read it: what is named before
// STREAMS may be called STREAMS too.
func streamKeys(argv, keys [][]byte) (_ [][]byte, told bool) {
	for i := 1; i < len(argv); i++ {
		switch word := argv[i]; {
		case isWord(word, "group"):
			i += 2
		case isWord(word, "count"), isWord(word, "block"):
			i++
		case isWord(word, "noack"):
		case isWord(word, "streams"):
			rest := argv[i+1:]
			if len(rest) == 0 || len(rest)%2 != 0 {
				return keys, false
			}
			return append(keys, rest[:len(rest)/2]...), true
		default:
			return keys, false
		}
	}
	return keys, false
}

// migratedKeys are the keys that MIGRATE takes away: MIGRATE host port key db timeout ..., or
// all that follows KEYS where key is empty.
func migratedKeys(argv, keys [][]byte) (_ [][]byte, told bool) {
	if len(argv) < 6 {
		return keys, false
	}
	before := len(keys)
	if len(argv[3]) > 0 {
		keys = append(keys, argv[3])
	}
	for i := 6; i < len(argv); i++ {
		if isWord(argv[i], "keys") {
			keys = append(keys, argv[i+1:]...)
			break
		}
	}
	return keys, len(keys) > before
}

// isWord compares an argument with a lower-case word as the servers do: they stop at a NUL.
func isWord(arg []byte, word string) bool {
	for i := range len(word) {
		if i == len(arg) || lower(arg[i]) != word[i] {
			return false
		}
	}
	return len(arg) == len(word) || arg[len(word)] == 0
}

// Targets are what a whole command writes, its name the first of argv: keys, or what is
// not known. A nil command is one that the server does not know.
func (c *RedisCommand) Targets(argv [][]byte) []Target {
	if c == nil {
		return []Target{{What: "a command that the server does not know"}}
	}
	if c.Class != RedisWrite {
		return nil
	}
	keys, told := c.WrittenKeys(argv, nil)
	if !told {
		return []Target{{What: strings.ToUpper(strings.ReplaceAll(c.Name, "|", " "))}}
	}
	var all []Target
	for _, key := range keys {
		all = append(all, Target{Kind: Key, Name: string(key)})
	}
	return all
}
