package policy_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
)

var updateRedis = flag.Bool("update-redis", false, "rewrite testdata/redis/commands-*.txt")

func redisClient(t *testing.T, o *redis.Options) *redis.Client {
	o.DisableIdentity, o.ContextTimeoutEnabled, o.MaxRetries = true, true, -1
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// redisCommands asks the server for all its commands, subcommands included.
func redisCommands(t *testing.T, c *redis.Client) map[string]*policy.RedisCommand {
	t.Helper()
	list, err := c.Do(t.Context(), "COMMAND").Slice()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]*policy.RedisCommand)
	for _, e := range list {
		p, err := policy.ParseRedisCommand(e)
		if err != nil {
			t.Fatal(err)
		}
		all[p.Name] = p
		for _, s := range p.Subcommands() {
			all[s.Name] = s
		}
	}
	return all
}

func redisLine(c *policy.RedisCommand) string {
	s := fmt.Sprintf("%s %s", c.Name, c.Class)
	if c.First > 0 {
		s += fmt.Sprintf(" keys %d..%d step %d", c.First, c.Last, c.Step)
	}
	if c.Movable {
		s += " movable"
	}
	return s
}

// Every command that a server knows is classified, and as its golden file says. A server
// of another minor version than the file's may have more commands.
func TestRedisCommandsAreClassified(t *testing.T) {
	testenv.EachRedis(t, func(t *testing.T, v servers.RedisVersion, p *servers.Process) {
		c := redisClient(t, &redis.Options{Addr: p.Addr})
		all := redisCommands(t, c)
		var lines []string
		for _, p := range all {
			lines = append(lines, redisLine(p))
		}
		sort.Strings(lines)
		version := "# " + strings.Join(versionNumber.FindStringSubmatch(p.Version)[1:], ".") + "\n"
		golden := "testdata/redis/commands-" + v.Name + ".txt"
		if *updateRedis {
			if err := os.WriteFile(golden, []byte(version+strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		want := make(map[string]string)
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(line, " ")
			want[name] = strings.TrimSuffix(line, "\n")
		}
		delete(want, "#")
		same := strings.HasPrefix(string(text), version)
		for _, line := range lines {
			name, _, _ := strings.Cut(line, " ")
			switch want, known := want[name]; {
			case known && want != line:
				t.Errorf("got  %s\nwant %s", line, want)
			case !known && same:
				t.Errorf("not in the golden file: %s", line)
			}
		}
		if same && len(want) != len(lines) {
			t.Errorf("%d commands, %d in the golden file", len(lines), len(want))
		}
	})
}

// versionNumber finds major and minor in what a program says of itself.
var versionNumber = regexp.MustCompile(` v=(\d+)\.(\d+)\.`)

// redisData makes a key of each type and returns their names.
func redisData(t *testing.T, c *redis.Client) []string {
	t.Helper()
	for _, cmd := range []string{
		"SET str 5", "RPUSH lst a b c", "HSET hsh f 1 g 2", "SADD st a b", "ZADD zst 1 a 2 b", "XADD stm 1-1 f v",
		"PFADD hll a b c", "GEOADD geo 13.3 38.1 a 15.0 37.5 b", "XGROUP CREATE stm grp 0", "SETBIT bits 7 1",
	} {
		if err := c.Do(t.Context(), fields(cmd)...).Err(); err != nil {
			t.Fatal(cmd, err)
		}
	}
	return []string{"str", "lst", "hsh", "st", "zst", "stm", "hll", "geo", "bits", "missing"}
}

func fields(s string) []any {
	var a []any
	for f := range strings.FieldsSeq(s) {
		a = append(a, f)
	}
	return a
}

// vectors are argument lists with which a command is tried on a key.
func vectors(key string) [][]any {
	return [][]any{
		{}, {key}, {key, key}, {"1", key}, {key, "0"}, {key, "0", "-1"}, {key, "f"}, {key, "a"}, {key, "a", "b"}, {key, "- +"}, {key, "-", "+"},
		{"GET", key}, {key, "GET", "u8", "0"}, {key, "ALPHA", "LIMIT", "0", "1"}, {key, "15", "37", "200", "km", "WITHDIST"}, {"COUNT", "1", "STREAMS", key, "0"},
		{key, "FROMMEMBER", "a", "BYRADIUS", "100", "km"}, {key, "grp"}, {key, "(1", "(2"}, {key, "[a", "[b"}, {"0", "MATCH", "*"}, {"2", key, key}, {"return 1", "0"},
		{"return redis.call('get', KEYS[1])", "1", key}, {"*"}, {"1", "0"}, {key, "DESC"}, {"ENCODING", key}, {"USAGE", key}, {"channel", "message"},
	}
}

func digest(t *testing.T, c *redis.Client) string {
	t.Helper()
	s, err := c.Do(t.Context(), "DEBUG", "DIGEST").Text()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is classified as a read leaves the data as it is, whatever it is given.
func TestRedisReadsDoNotWrite(t *testing.T) {
	for _, v := range servers.RedisVersions() {
		t.Run(v.Name, func(t *testing.T) { readsDoNotWrite(t, v) })
	}
}

func readsDoNotWrite(t *testing.T, v servers.RedisVersion) {
	p := testenv.RedisVersion(t, v, "--enable-debug-command", "yes")
	watch := redisClient(t, &redis.Options{Addr: p.Addr})
	redisData(t, watch)
	before := digest(t, watch)
	messages := subscribe(t, p.Addr)
	// These are tried elsewhere, end the connection or turn it into something else.
	except := map[string]bool{"quit": true, "reset": true, "subscribe": true, "psubscribe": true, "ssubscribe": true,
		"client|reply": true, "hello": true, "auth": true, "multi": true, "client|tracking": true,
		"wait": true /* waits */}
	tried := 0
	for name, cmd := range redisCommands(t, watch) {
		if cmd.Class != policy.RedisRead || except[name] || cmd.Container {
			continue
		}
		c := redisClient(t, &redis.Options{Addr: p.Addr, PoolSize: 1, ReadTimeout: 2 * time.Second})
		for _, key := range []string{"str", "lst", "hsh", "st", "zst", "stm", "hll", "geo", "bits", "missing"} {
			calls, _ := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for _, v := range vectors(key) {
					p.Do(t.Context(), append(fields(strings.ReplaceAll(name, "|", " ")), v...)...)
				}
				return nil
			})
			for _, call := range calls {
				if err := call.Err(); err == nil || errors.Is(err, redis.Nil) {
					tried++
				}
			}
		}
		if now := digest(t, watch); now != before {
			t.Fatalf("%s changed the data", name)
		}
		_ = c.Close()
	}
	if tried < 500 {
		t.Errorf("only %d calls succeeded", tried)
	}
	messages(t)
}

// subscribe listens to all channels; what it returns fails the test if anything came but
// its own message.
func subscribe(t *testing.T, addr string) func(*testing.T) {
	t.Helper()
	c := redisClient(t, &redis.Options{Addr: addr})
	ctx, cancel := context.WithCancel(t.Context())
	sub := c.PSubscribe(ctx, "*")
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T) {
		t.Helper()
		defer cancel()
		defer sub.Close()
		if err := c.Publish(ctx, "last", "of all").Err(); err != nil {
			t.Fatal(err)
		}
		m, err := sub.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Channel != "last" {
			t.Errorf("a message was published: %v", m)
		}
	}
}

// The read-only forms of scripts and functions can neither write nor publish: every
// command that is not a read is tried in them.
func TestRedisReadOnlyScriptsCannotWrite(t *testing.T) {
	for _, v := range servers.RedisVersions() {
		t.Run(v.Name, func(t *testing.T) { readOnlyScriptsCannotWrite(t, v) })
	}
}

func readOnlyScriptsCannotWrite(t *testing.T, v servers.RedisVersion) {
	p := testenv.RedisVersion(t, v, "--enable-debug-command", "yes")
	c := redisClient(t, &redis.Options{Addr: p.Addr})
	keys := redisData(t, c)
	ctx := t.Context()
	const body = "return redis.pcall(unpack(ARGV))"
	sha, err := c.ScriptLoad(ctx, body).Result()
	if err != nil {
		t.Fatal(err)
	}
	lib := "#!lua name=l\nredis.register_function{function_name='f', callback=function(KEYS, ARGV) return redis.pcall(unpack(ARGV)) end, flags={'no-writes'}}\n" +
		"redis.register_function{function_name='g', callback=function(KEYS, ARGV) return redis.pcall(unpack(ARGV)) end}"
	if err := c.FunctionLoad(ctx, lib).Err(); err != nil {
		t.Fatal(err)
	}
	before := digest(t, c)
	messages := subscribe(t, p.Addr)
	for name, cmd := range redisCommands(t, c) {
		if cmd.Class == policy.RedisRead || cmd.Container || name == "shutdown" {
			continue
		}
		outers := [][]any{{"EVAL_RO", body, "0"}, {"FCALL_RO", "f", "0"}, {"FCALL_RO", "g", "0"}, {"EVALSHA_RO", sha, "0"}}
		for k, key := range keys {
			_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, v := range vectors(key) {
					args := append([]any{}, outers[(i+k)%len(outers)]...)
					args = append(args, fields(strings.ReplaceAll(name, "|", " "))...)
					p.Do(ctx, append(args, v...)...)
				}
				return nil
			})
		}
		if now := digest(t, c); now != before {
			t.Fatalf("%s wrote from a read-only script", name)
		}
	}
	messages(t)
}

func TestRedisUnknownIsAWrite(t *testing.T) {
	p, err := policy.ParseRedisCommand([]any{"newcommand", int64(-2), []any{"fast"}, int64(0), int64(0), int64(0)})
	if err != nil {
		t.Fatal(err)
	}
	if p.Class != policy.RedisWrite {
		t.Errorf("class %v", p.Class)
	}
	if s := p.Sub("whatever"); s.Class != policy.RedisWrite {
		t.Errorf("subcommand: class %v", s.Class)
	}
	client, err := policy.ParseRedisCommand([]any{"client", int64(-2), []any{}, int64(0), int64(0), int64(0)})
	if err != nil {
		t.Fatal(err)
	}
	if s := client.Sub("newword"); s.Class != policy.RedisRefused || !client.Container {
		t.Errorf("an unknown word of CLIENT: class %v", s.Class)
	}
	if s := client.Sub("kill"); s.Class != policy.RedisRefused {
		t.Errorf("CLIENT KILL: class %v", s.Class)
	}
	for _, bad := range []any{nil, "x", []any{}, []any{1, 2, 3, 4, 5, 6}, []any{"a", int64(1), nil, "x", int64(0), int64(0)}} {
		if _, err := policy.ParseRedisCommand(bad); err == nil {
			t.Errorf("%v was understood", bad)
		}
	}
}

// Modules call some commands readonly that change the server.
func TestRedisModuleFlagsAreNotAlwaysBelieved(t *testing.T) {
	for name, want := range map[string]policy.RedisClass{
		"FT.SEARCH": policy.RedisRead, "JSON.GET": policy.RedisRead, "FT.CREATE": policy.RedisWrite,
		"FT.DICTADD": policy.RedisWrite, "_FT.DICTADD": policy.RedisWrite, "FT.DICTDEL": policy.RedisWrite,
		"FT.ALIASADD": policy.RedisWrite, "FT.ALIASUPDATE": policy.RedisWrite, "FT.ALIASDEL": policy.RedisWrite,
		"FT._ALIASADDIFNX": policy.RedisWrite, "FT._ALIASDELIFX": policy.RedisWrite,
		"FT.CONFIG": policy.RedisWrite, "graph.CONFIG": policy.RedisWrite, "_FT.DEBUG": policy.RedisWrite,
	} {
		flag := "readonly"
		if name == "FT.CREATE" {
			flag = "write"
		}
		p, err := policy.ParseRedisCommand([]any{name, int64(-1), []any{flag, "module"}, int64(0), int64(0), int64(0)})
		if err != nil {
			t.Fatal(err)
		}
		if p.Class != want {
			t.Errorf("%s: class %v, want %v", name, p.Class, want)
		}
	}
}
