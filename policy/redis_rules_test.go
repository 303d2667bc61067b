package policy_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
)

// What the rules of this test are, and what the keys in them hold.
var (
	keyRules = []policy.Rule{
		{Kind: policy.Key, Patterns: []string{"a:*"}, Election: "a"},
		{Kind: policy.Key, Patterns: []string{"b:*"}, Election: "b"},
		{Kind: policy.Key, Patterns: []string{"t:{p}:*"}, Election: "t-{p}"},
		{Kind: policy.Key, Patterns: []string{"o:*"}, Access: policy.Open},
		{Kind: policy.Key, Patterns: []string{"d:*"}, Access: policy.Deny},
	}
	keyData = `SET a:s 5|SET b:s 5|SET t:1:s 5|SET o:s 5|SET a:ttl 1 EX 1000|RPUSH a:l 3 1 2|RPUSH b:l 9 8|HSET a:h f 1 g 2
		SADD a:set x y|SADD b:set x z|ZADD a:z 1 x 2 y|ZADD b:z 3 x|XADD a:x 1-1 f v|XADD b:x 1-1 f v|XGROUP CREATE a:x g 0|XGROUP CREATE b:x g 0
		XGROUP CREATE a:x streams 0|XREADGROUP GROUP g c COUNT 1 STREAMS a:x >|PFADD a:p q|PFADD b:p r|GEOADD a:geo 13.3 38.1 x|SETBIT a:bits 7 1
		SCRIPT LOAD "return redis.call('set',KEYS[1],'s')"`
	keyFunctions = "#!lua name=l\nredis.register_function('f', function(k) return redis.call('set',k[1],'f') end)"
)

// keyTable says of commands which elections their writes need: their names, "open" where
// everybody may send them, "nobody" where a rule denies, "all" where it cannot be told what is
// written. Of one that begins with ? it is enough that what the server touches is among that; with !, it
// may fail. Where a server lacks the command, the line is left out there.
const keyTable = `
SET a:s 1                                     => a
SET "a:with space" 1                          => a
SET o:s 1                                     => open
SET d:s 1                                     => nobody
SET elsewhere 1                               => nobody
SET t:7:s 1                                   => t-7
SET t:7:s 1 GET EX 100                        => t-7
SETEX a:s 100 x                               => a
PSETEX b:s 100000 x                           => b
SETNX b:new 1                                 => b
GETSET a:s 2                                  => a
GETDEL a:s                                    => a
GETEX a:s EX 100                              => a
?GETEX a:s                                    => a
APPEND a:s x                                  => a
SETRANGE a:s 1 x                              => a
INCR a:s                                      => a
INCRBY b:s 2                                  => b
DECRBY b:s 2                                  => b
INCRBYFLOAT b:s 0.5                           => b
MSET a:s 1 b:s 2                              => a b
MSET a:s 1 o:s 2                              => a
MSET o:s 1 o:t 2                              => open
MSET a:s 1 d:s 2                              => nobody
MSETNX a:n 1 t:3:n 2                          => a t-3
DEL a:s b:s                                   => a b
UNLINK a:s t:1:s o:s                          => a t-1
?DEL a:none                                   => a
EXPIRE a:s 100                                => a
PEXPIREAT b:s 99999999999999                  => b
PERSIST a:ttl                                 => a
RENAME a:s b:new                              => a b
RENAMENX a:s o:new                            => a
RENAME o:s a:new                              => a
COPY a:s b:new                                => b
COPY a:s o:new                                => open
COPY b:s a:s REPLACE                          => a
MOVE a:s 1                                    => a
RESTORE a:new 0 $DUMP                         => a
LPUSH a:l x                                   => a
RPUSHX b:l x                                  => b
LINSERT a:l BEFORE 1 x                        => a
LSET a:l 0 x                                  => a
LREM a:l 0 1                                  => a
LTRIM a:l 0 1                                 => a
LPOP a:l                                      => a
RPOP b:l 2                                    => b
?BLPOP a:l b:l 1                              => a b
?BRPOP b:l a:l 1                              => a b
LMOVE a:l b:l LEFT RIGHT                      => a b
RPOPLPUSH a:l o:new                           => a
BRPOPLPUSH a:l b:new 1                        => a b
BLMOVE b:l a:l LEFT LEFT 1                    => a b
?LMPOP 2 a:l b:l LEFT                         => a b
?BLMPOP 1 2 a:l b:l RIGHT COUNT 2             => a b
HSET a:h f 2                                  => a
HSETNX a:h n 1                                => a
HINCRBY a:h f 1                               => a
HDEL a:h f                                    => a
HPEXPIRE a:h 100000 FIELDS 1 f                => a
HSETEX a:h FIELDS 1 f 9                       => a
HGETDEL a:h FIELDS 1 f                        => a
SADD b:set q                                  => b
SREM a:set x                                  => a
SPOP a:set                                    => a
SMOVE a:set b:set y                           => a b
SUNIONSTORE a:new a:set b:set                 => a
SINTERSTORE b:new a:set b:set                 => b
SDIFFSTORE o:new a:set b:set                  => open
ZADD a:z 5 q                                  => a
ZINCRBY a:z 1 x                               => a
ZREM b:z x                                    => b
ZPOPMIN a:z                                   => a
?BZPOPMAX a:z b:z 1                           => a b
?ZMPOP 2 a:z b:z MIN                          => a b
?BZMPOP 1 1 b:z MAX                           => b
ZRANGESTORE b:new a:z 0 -1                    => b
ZUNIONSTORE a:new 2 a:z b:z                   => a
ZINTERSTORE b:new 2 a:z b:z WEIGHTS 1 2       => b
ZDIFFSTORE t:4:new 2 a:z b:z                  => t-4
ZREMRANGEBYSCORE a:z 0 9                      => a
GEOADD a:geo 15 37 y                          => a
GEOSEARCHSTORE b:new a:geo FROMMEMBER x BYRADIUS 9 km => b
GEORADIUS a:geo 13 38 900 km                  => none
GEORADIUS a:geo 13 38 900 km STORE b:new      => b
GEORADIUS a:geo 13 38 900 km storedist t:1:g  => t-1
?GEORADIUS a:geo 13 38 900 km STORE b:one STORE a:two => a b
GEORADIUSBYMEMBER a:geo x 900 km STORE o:new  => open
SORT a:l                                      => none
SORT a:l LIMIT 0 2 DESC STORE b:new           => b
SORT a:l BY nosort GET a:* STORE o:new        => open
?SORT a:l STORE b:one STORE a:two             => a b
SORT_RO a:l                                   => none
SETBIT a:bits 3 1                             => a
BITFIELD a:bits SET u8 0 255                  => a
BITOP OR a:new a:bits b:s                     => a
PFADD a:p zz                                  => a
PFMERGE a:p a:p b:p                           => a
?PFCOUNT a:p b:p                              => a b
XADD a:x * f v                                => a
XTRIM a:x MAXLEN 0                            => a
XDEL b:x 1-1                                  => b
XSETID a:x 9-9                                => a
XGROUP CREATE b:x h 0                         => b
XGROUP SETID a:x g 0                          => a
XGROUP CREATECONSUMER a:x g d                 => a
XGROUP DELCONSUMER a:x g c                    => a
XGROUP DESTROY a:x g                          => a
XACK a:x g 1-1                                => a
XCLAIM a:x g d 0 1-1                          => a
XAUTOCLAIM a:x g d 0 0                        => a
XREADGROUP GROUP g c STREAMS b:x >            => b
XREADGROUP GROUP streams streams COUNT 1 NOACK STREAMS a:x > => a
XREADGROUP COUNT 1 GROUP streams c STREAMS a:x > => a
?XREADGROUP GROUP g c COUNT 9 STREAMS a:x b:x > > => a b
XREAD COUNT 1 STREAMS a:x 0                   => none
EVAL "return redis.call('set',KEYS[1],ARGV[1])" 1 a:s b:s => a
EVAL "redis.call('set',KEYS[1],1) redis.call('set',KEYS[2],1)" 2 a:s t:9:s => a t-9
EVAL "return redis.call('set','a:s',1)" 0     => all
EVAL_RO "return redis.call('get',KEYS[1])" 1 a:s => none
EVALSHA $SHA 1 b:s                            => b
FCALL f 1 t:2:s                               => t-2
!FCALL f 0                                    => all
MIGRATE $HOST $PORT a:s 0 2000 REPLACE        => a
MIGRATE $HOST $PORT "" 0 2000 REPLACE KEYS a:s b:s => a b
?MIGRATE $HOST $PORT a:s 0 2000 COPY REPLACE  => a
FLUSHALL                                      => all
FLUSHDB                                       => all
SCRIPT FLUSH                                  => all
SCRIPT LOAD "return 1"                        => all
FUNCTION DELETE l                             => all
PUBLISH a:c m                                 => all
SPUBLISH a:c m                                => all
!NOSUCH a:s                                   => all
GET a:s                                       => none
MGET a:s b:s d:s                              => none
SUNION a:set b:set                            => none
LRANGE a:l 0 -1                               => none
DUMP a:s                                      => none
OBJECT ENCODING a:s                           => none
TOUCH a:s                                     => none
VADD a:v VALUES 2 1 1 e                       => a
`

func TestKeysThatCommandsWrite(t *testing.T) {
	rules, err := policy.NewRules(keyRules, "", election.CheckID)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range servers.RedisVersions() {
		t.Run(v.Name, func(t *testing.T) {
			p := testenv.RedisVersion(t, v, "--notify-keyspace-events", "KEA")
			k := newKeyLab(t, p.Addr)
			host, port, _ := strings.Cut(testenv.RedisVersion(t, v).Addr, ":") // to migrate to
			tried := 0
			for line := range strings.Lines(keyTable) {
				command, want, ok := strings.Cut(strings.TrimSpace(line), "=>")
				if !ok {
					continue
				}
				less, fails := strings.HasPrefix(line, "?"), strings.HasPrefix(line, "!")
				command = strings.NewReplacer("$HOST", host, "$PORT", port, "$SHA", k.sha).Replace(strings.TrimLeft(command, "?!"))
				argv := splitWords(t, command)
				for i := range argv {
					if string(argv[i]) == "$DUMP" {
						argv[i] = k.dump
					}
				}
				cmd := k.commands.find(argv)
				if cmd == nil && !fails {
					continue // of another version
				}
				tried++
				got, needs := neededOf(rules, cmd, argv)
				if want = strings.TrimSpace(want); got != want {
					t.Errorf("%s: got %s, want %s", command, got, want)
				}
				touched, err := k.run(t, argv)
				if err != nil && !fails {
					t.Errorf("%s: %v", command, err)
				}
				k.check(t, rules, command, got, needs, touched, less || fails)
			}
			t.Logf("%d commands", tried)
			if tried < 120 {
				t.Errorf("only %d", tried)
			}
		})
	}
}

// neededOf is what a session needs to send a command, in the words of the table.
func neededOf(rules *policy.Rules, cmd *policy.RedisCommand, argv [][]byte) (string, []string) {
	targets := cmd.Targets(argv)
	switch {
	case len(targets) == 0:
		return "none", nil
	case targets[0].Kind == policy.Unknown:
		return "all", nil
	}
	switch d := rules.Decide(targets); {
	case d.Deny:
		return "nobody", nil
	case d.Open:
		return "open", nil
	default:
		slices.Sort(d.Elections)
		return strings.Join(d.Elections, " "), d.Elections
	}
}

// A keyLab is a server and what it says that its keys are.
type keyLab struct {
	c        *redis.Client
	commands commandTable
	sub      *redis.PubSub
	sha      string
	dump     []byte // of a value
	n        int
}

type commandTable map[string]*policy.RedisCommand

// find is nil where the server has no such command.
func (c commandTable) find(argv [][]byte) *policy.RedisCommand {
	cmd := c[strings.ToLower(string(argv[0]))]
	if cmd != nil && cmd.Container && len(argv) > 1 {
		return cmd.Sub(strings.ToLower(string(argv[1])))
	}
	return cmd
}

func newKeyLab(t *testing.T, addr string) *keyLab {
	k := &keyLab{c: redisClient(t, &redis.Options{Addr: addr}), commands: redisCommands(t, redisClient(t, &redis.Options{Addr: addr}))}
	var err error
	if k.sha, err = k.c.ScriptLoad(t.Context(), "return redis.call('set',KEYS[1],'s')").Result(); err != nil {
		t.Fatal(err)
	}
	if err := k.c.FunctionLoad(t.Context(), keyFunctions).Err(); err != nil {
		t.Fatal(err)
	}
	if err := k.c.Set(t.Context(), "a:s", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if k.dump, err = k.c.Dump(t.Context(), "a:s").Bytes(); err != nil {
		t.Fatal(err)
	}
	k.sub = redisClient(t, &redis.Options{Addr: addr}).PSubscribe(t.Context(), "__keyevent@*__:*", "end")
	for range 2 {
		if _, err := k.sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = k.sub.Close() })
	return k
}

// load makes the keys anew.
func (k *keyLab) load(t *testing.T) {
	t.Helper()
	p := k.c.Pipeline()
	p.FlushAll(t.Context())
	for line := range strings.FieldsFuncSeq(keyData, func(r rune) bool { return r == '|' || r == '\n' }) {
		p.Do(t.Context(), anys(splitWords(t, strings.TrimSpace(line)))...)
	}
	if _, err := p.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// run runs a command on fresh data, and returns the keys that the server says were touched:
// by its notifications, and by what the keys hold before and after.
func (k *keyLab) run(t *testing.T, argv [][]byte) (touched map[string]bool, err error) {
	t.Helper()
	k.load(t)
	before := k.contents(t)
	k.events(t)
	err = k.c.Do(t.Context(), anys(argv)...).Err()
	if err == redis.Nil {
		err = nil
	}
	touched = k.events(t)
	after := k.contents(t)
	for key, was := range before {
		if after[key] != was {
			touched[key] = true
		}
	}
	for key := range after {
		if _, was := before[key]; !was {
			touched[key] = true
		}
	}
	return touched, err
}

// events are the keys in the notifications so far.
func (k *keyLab) events(t *testing.T) map[string]bool {
	t.Helper()
	k.n++
	end := fmt.Sprint(k.n)
	if err := k.c.Publish(t.Context(), "end", end).Err(); err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]bool)
	for {
		m, err := k.sub.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Channel == "end" && m.Payload == end {
			return keys
		}
		keys[m.Payload] = true
	}
}

// contents is what each key holds, and until when.
func (k *keyLab) contents(t *testing.T) map[string]string {
	t.Helper()
	ctx := t.Context()
	keys, err := k.c.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	p := k.c.Pipeline()
	for _, key := range keys {
		p.Dump(ctx, key)
		p.Do(ctx, "PEXPIRETIME", key)
	}
	cmds, err := p.Exec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for i, key := range keys {
		all[key] = cmds[2*i].String() + cmds[2*i+1].String()
	}
	return all
}

// check holds what was touched against what was needed.
func (k *keyLab) check(t *testing.T, rules *policy.Rules, command, got string, needs []string, touched map[string]bool, less bool) {
	t.Helper()
	if got == "all" || got == "nobody" {
		return
	}
	ruled := make(map[string]bool)
	for key := range touched {
		var m policy.Match
		rules.FindKey([]byte(key), &m)
		switch {
		case m.Access == policy.Open && got != "none":
		case m.Access == policy.Fenced && slices.Contains(needs, string(m.Election)):
			ruled[string(m.Election)] = true
		default:
			t.Errorf("%s: the server touched %q, and it needs %s", command, key, got)
		}
	}
	if missing := len(needs) - len(ruled); missing > 0 && !less || got == "open" && len(touched) == 0 {
		t.Errorf("%s: it needs %s, and the server touched only %v", command, got, slices.Sorted(maps.Keys(touched)))
	}
}

// splitWords splits a line at spaces; double quotes keep them, with the escapes of redis-cli.
func splitWords(t *testing.T, line string) [][]byte {
	t.Helper()
	var words [][]byte
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if line[0] != '"' {
			word, rest, _ := strings.Cut(line, " ")
			words, line = append(words, []byte(word)), rest
			continue
		}
		var b []byte
		i := 1
		for ; line[i] != '"'; i++ {
			if line[i] != '\\' {
				b = append(b, line[i])
				continue
			}
			i++
			switch line[i] {
			case 'x':
				var x byte
				if _, err := fmt.Sscanf(line[i+1:i+3], "%02x", &x); err != nil {
					t.Fatal(err)
				}
				b = append(b, x)
				i += 2
			case 'n':
				b = append(b, '\n')
			default:
				b = append(b, line[i])
			}
		}
		words, line = append(words, b), line[i+1:]
	}
	return words
}

func anys(argv [][]byte) []any {
	all := make([]any, len(argv))
	for i, a := range argv {
		all[i] = a
	}
	return all
}

// keyVectors are argument lists with which a command that writes is tried on two keys.
func keyVectors(x, y string) [][]string {
	return [][]string{
		{x}, {x, y}, {y, x}, {x, "1"}, {x, "0", "1"}, {x, "f", "1"}, {x, y, "1"}, {x, y, "LEFT", "RIGHT"}, {x, y, "LEFT", "RIGHT", "1"}, {x, y, "x"},
		{"1", x, "LEFT"}, {"2", x, y, "MIN"}, {"2", x, y, "LEFT", "COUNT", "9"}, {"1", "2", x, y, "LEFT"}, {"1", "1", x, "MAX"}, {x, "2", x, y}, {x, "1", y, "WEIGHTS", "2"},
		{x, "0", "-1", y}, {x, y, "0", "-1"}, {x, "STORE", y}, {x, "LIMIT", "0", "1", "STORE", y, "STORE", x}, {x, "BY", "STORE", "STORE", y}, {x, "GET", "store", "ALPHA", "STORE", y},
		{x, "13", "38", "900", "km", "STORE", y}, {x, "x", "900", "km", "STORE", y, "storedist", x}, {x, "x", "900", "km", "COUNT", "1", "STOREDIST", y},
		{"OR", x, y}, {"AND", x, y, x}, {"NOT", x, y}, {x, "f", "2", "g", "3"}, {x, "NX", "1", "q"}, {x, "1", "q"}, {x, "100"}, {x, "EX", "100"}, {x, "PERSIST"},
		{x, "BEFORE", "1", "q"}, {x, "1", "2", "3", "4"}, {x, "*", "f", "v"}, {x, "MAXLEN", "0"}, {x, "g", "1-1"}, {x, "g", "d", "0", "1-1"}, {x, "g", "0", "MKSTREAM"},
		{"GROUP", "g", "c", "STREAMS", x, ">"}, {"GROUP", "g", "c", "COUNT", "2", "STREAMS", x, y, ">", ">"}, {"COUNT", "1", "GROUP", "streams", "c", "STREAMS", x, ">"},
		{"return redis.call('set',KEYS[1],1)", "1", x, y}, {"return redis.call('del',KEYS[1],KEYS[2])", "2", y, x}, {"f", "1", x}, {x, "FROMMEMBER", "x", "BYRADIUS", "9", "km"},
		{x, y, "FROMMEMBER", "x", "BYRADIUS", "900", "km"}, {x, "REPLACE", y}, {x, y, "REPLACE"}, {x, y, "DB", "1"}, {x, "FIELDS", "1", "f"}, {x, "100", "FIELDS", "1", "f"}, {x, "FIELDS", "1", "f", "v"},
		{x, "VALUES", "2", "1", "1", "e"}, {x, "e"}, {x, "[a", "[z"}, {x, "(1", "(2"}, {x, "u8", "0", "1"}, {x, "SET", "u8", "0", "9"}, {x, "7", "1"}, {"0", x, y}, {"01", x}, {"x", x},
	}
}

// Whatever a command that writes is given: no key that the server says it touched is missing
// among those that it is said to write.
func TestNoKeyIsMissed(t *testing.T) {
	versions := servers.RedisVersions()
	if os.Getenv("FENCEPROXY_LONG") == "" {
		versions = []servers.RedisVersion{servers.Redis8} // which has the most commands
	}
	for _, v := range versions {
		t.Run(v.Name, func(t *testing.T) {
			p := testenv.RedisVersion(t, v, "--notify-keyspace-events", "KEA")
			k := newKeyLab(t, p.Addr)
			// These end what is tried here, or would wait; they are in the table.
			except := map[string]bool{"function|flush": true, "function|delete": true, "function|restore": true, "migrate": true,
				"blpop": true, "brpop": true, "blmove": true, "blmpop": true, "brpoplpush": true, "bzpopmin": true, "bzpopmax": true, "bzmpop": true}
			seen, commands := 0, make(map[string]bool)
			for name, cmd := range k.commands {
				if cmd.Class != policy.RedisWrite || cmd.Container || except[name] {
					continue
				}
				for _, pair := range [][2]string{{"a:s", "b:s"}, {"a:l", "b:l"}, {"a:h", "b:new"}, {"a:set", "b:set"}, {"a:z", "b:z"}, {"a:x", "b:x"}, {"a:geo", "b:new"}, {"a:p", "b:p"}, {"none", "a:l"}} {
					n := k.missing(t, cmd, name, keyVectors(pair[0], pair[1]))
					seen += n
					if n > 0 {
						commands[name] = true
					}
				}
			}
			t.Logf("%d touches of keys by %d commands", seen, len(commands))
			if len(commands) < 80 {
				t.Errorf("only %d commands touched anything: %v", len(commands), slices.Sorted(maps.Keys(commands)))
			}
		})
	}
}

// missing tries a command and reports how many notifications there were.
func (k *keyLab) missing(t *testing.T, cmd *policy.RedisCommand, name string, vectors [][]string) (seen int) {
	t.Helper()
	ctx := t.Context()
	k.load(t)
	k.events(t)
	p := k.c.Pipeline()
	var all [][][]byte
	for i, v := range vectors {
		var argv [][]byte
		for _, a := range append(strings.Split(name, "|"), v...) {
			argv = append(argv, []byte(a))
		}
		all = append(all, argv)
		p.Do(ctx, anys(argv)...)
		p.Publish(ctx, "end", fmt.Sprintf("%d", -i-1))
	}
	_, _ = p.Exec(ctx) // most are errors
	for i, argv := range all {
		keys, told := cmd.WrittenKeys(argv, nil)
		for {
			m, err := k.sub.ReceiveMessage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if m.Channel == "end" {
				if m.Payload == fmt.Sprintf("%d", -i-1) {
					break
				}
				continue
			}
			seen++
			if told && !slices.ContainsFunc(keys, func(key []byte) bool { return string(key) == m.Payload }) && !strings.HasSuffix(m.Channel, ":expired") {
				t.Errorf("%q: the server touched %q (%s), and %q are said to be written", argv, m.Payload, m.Channel, keys)
			}
		}
	}
	return seen
}
