package resp

import (
	"bytes"
	"math/rand"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/policy"
)

// keySpecOf is a key spec as COMMAND INFO describes it.
func keySpecOf(flag string, index int64, kind string, numbers ...any) []any {
	return []any{
		"flags", []any{flag},
		"begin_search", []any{"type", "index", "spec", []any{"index", index}},
		"find_keys", []any{"type", kind, "spec", numbers},
	}
}

// ruledCore is a core of a listener with rules, whose session holds a and not b.
func ruledCore(t testing.TB) *core {
	t.Helper()
	rules, err := policy.NewRules([]policy.Rule{
		{Kind: policy.Key, Patterns: []string{"a:*"}, Election: "jobs"},
		{Kind: policy.Key, Patterns: []string{"b:{p}"}, Election: "b-{p}"},
		{Kind: policy.Key, Patterns: []string{"o:*"}, Access: policy.Open},
		{Kind: policy.Key, Patterns: []string{"d:*"}, Access: policy.Deny},
	}, "", election.CheckID)
	if err != nil {
		t.Fatal(err)
	}
	one := func(from int64) []any {
		return keySpecOf("RW", from, "range", "lastkey", int64(0), "keystep", int64(1), "limit", int64(0))
	}
	table := newTestCommands()
	for name, specs := range map[string][]any{
		"set":     {one(1)},
		"incr":    {one(1)},
		"mset":    {keySpecOf("OW", 1, "range", "lastkey", int64(-1), "keystep", int64(2), "limit", int64(0))},
		"blpop":   {keySpecOf("RW", 1, "range", "lastkey", int64(-2), "keystep", int64(1), "limit", int64(0))},
		"eval":    {keySpecOf("RW", 2, "keynum", "keynumidx", int64(0), "firstkey", int64(1), "keystep", int64(1))},
		"copy":    {keySpecOf("RO", 1, "range", "lastkey", int64(0), "keystep", int64(1), "limit", int64(0)), one(2)},
		"rename":  {one(1), one(2)},
		"sort":    {},
		"migrate": {},
	} {
		p, err := policy.ParseRedisCommand([]any{name, int64(-1), []any{"write"}, int64(1), int64(1), int64(1), nil, nil, specs, nil})
		if err != nil {
			t.Fatal(err)
		}
		table[name] = newCommand(p)
	}
	cfg := testConfig()
	cfg.commands, cfg.rules, cfg.election = table, rules, ""
	c := newCore(cfg)
	c.bound = testBinding(7)
	c.worn, c.named = c.bound.name, true
	return c
}

// mayPass holds a command that was sent up against the rules.
func mayPass(t *testing.T, table commandTable, args [][]byte) {
	t.Helper()
	name := strings.ToLower(string(args[0]))
	if strings.HasPrefix(name, strings.ToLower(testNonce)) || name == "host:" || name == "post" {
		return
	}
	cmd, _ := table.lookup([]byte(name))
	if cmd != nil && cmd.Container && len(args) > 1 {
		cmd = cmd.sub([]byte(strings.ToLower(string(args[1]))))
	}
	if cmd != nil && cmd.Class != policy.RedisWrite {
		return
	}
	if cmd == nil {
		t.Fatalf("unknown, and sent up: %q", args)
	}
	keys, told := cmd.WrittenKeys(args, nil)
	if !told {
		t.Fatalf("it cannot be told what it writes, and it was sent up: %q", args)
	}
	for _, key := range keys {
		if !bytes.HasPrefix(key, []byte("a:")) && !bytes.HasPrefix(key, []byte("o:")) {
			t.Fatalf("%q is written: %q", key, args)
		}
	}
}

// No stream of bytes gets a write past the rules, whole or in pieces.
func FuzzRules(f *testing.F) {
	long := strings.Repeat("x", 20000)
	for _, s := range []string{
		"SET a:1 1\r\nSET b:1 1\r\nSET o:1 1\r\nSET d:1 1\r\nSET x 1\r\nGET b:1\r\n", "MSET a:1 1 a:2 2\r\nMSET a:1 1 b:1 2\r\n", "COPY b:1 a:1\r\nCOPY a:1 b:1\r\nRENAME a:1 b:1\r\n",
		"EVAL x 1 a:1\r\nEVAL x 1 b:1\r\nEVAL x 0\r\nEVAL x 2 a:1 b:1\r\nEVAL x 01 a:1\r\nEVAL x -1 a:1\r\nEVAL x 9 a:1\r\nEVAL x 1\r\nEVAL\r\n",
		"SORT b:1\r\nSORT b:1 STORE a:1\r\nSORT a:1 STORE b:1\r\nSORT a:1 store a:1 store b:1\r\nSORT b:1 STORE\r\n", "MIGRATE h 1 a:1 0 1\r\nMIGRATE h 1 \"\" 0 1 KEYS a:1 b:1\r\n",
		"FLUSHALL\r\nPUBLISH c m\r\nNOSUCH a:1\r\nXGROUP CREATE a:1\r\n", "MULTI\r\nSET a:1 1\r\nSET b:1 1\r\nEXEC\r\n", "BLPOP a:1 0\r\nBLPOP a:1 b:1 0\r\n",
		"*3\r\n$3\r\nSET\r\n$3\r\na:1\r\n$20000\r\n" + long + "\r\nSET b:1 1\r\n", "*3\r\n$3\r\nSET\r\n$3\r\nb:1\r\n$20000\r\n" + long + "\r\nSET a:1 1\r\n",
		"*5\r\n$4\r\nMSET\r\n$3\r\na:1\r\n$20000\r\n" + long + "\r\n$3\r\nb:1\r\n$1\r\n1\r\nSET a:1 1\r\n", "*4\r\n$4\r\nEVAL\r\n$20000\r\n" + long + "\r\n$1\r\n1\r\n$3\r\na:1\r\n",
		"*4\r\n$4\r\nEVAL\r\n$20000\r\n" + long + "\r\n$1\r\n1\r\n$3\r\nb:1\r\nSET a:1 1\r\n", "*3\r\n$4\r\nEVAL\r\n$20000\r\n" + long + "\r\n$1\r\n0\r\n", "*3\r\n$3\r\nSET\r\n$20000\r\na:" + long[:19998] + "\r\n$1\r\n1\r\n",
		"*2\r\n$4\r\nSORT\r\n$20000\r\n" + long + "\r\n", "*3\r\n$3\r\nSET\r\n$23\r\nfenceproxy:{jobs}:fence\r\n$20000\r\n" + long + "\r\n", "*2000000000\r\n$3\r\nSET\r\n$3\r\nb:1\r\n",
		"CLIENT SETNAME x\r\nSET a:1 1\r\nCLIENT REPLY OFF\r\nSET b:1 1\r\nSET a:1 1\r\n", "FENCE STATUS\r\nFENCE UNBIND elsewhere\r\nSET a:1 1\r\n", "FENCE UNBIND jobs\r\nSET o:1 1\r\n",
	} {
		f.Add([]byte(s), int64(1))
		f.Add([]byte(s), int64(2))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed int64) {
		a, b := ruledCore(t), ruledCore(t)
		table := newTestCommands()
		for name := range table {
			table[name], _ = a.cfg.commands.lookup([]byte(name))
		}
		for _, name := range []string{"copy", "rename", "sort", "migrate"} {
			table[name], _ = a.cfg.commands.lookup([]byte(name))
		}
		whole := give(a, stream, nil)
		pieces := give(b, stream, rand.New(rand.NewSource(seed)))
		if !bytes.Equal(whole, pieces) {
			t.Fatalf("whole  %q\npieces %q", whole, pieces)
		}
		if held := cap(b.cmd.held) + cap(b.stream.hold); held > 8*maxInline {
			t.Fatalf("%d bytes are held", held)
		}
		for up := whole; len(up) > 0 && up[0] == '*'; {
			args, rest := decode(up)
			if rest == nil || len(args) == 0 {
				return
			}
			up = rest
			mayPass(t, table, args)
		}
	})
}

func TestRulesAllocateNothing(t *testing.T) {
	c := ruledCore(t)
	b := []byte(strings.Repeat("*3\r\n$3\r\nSET\r\n$3\r\na:1\r\n$1\r\n1\r\n*5\r\n$4\r\nMSET\r\n$3\r\na:1\r\n$1\r\n1\r\n$3\r\no:1\r\n$1\r\n1\r\n*4\r\n$4\r\nEVAL\r\n$1\r\nx\r\n$1\r\n1\r\n$3\r\na:1\r\n*2\r\n$4\r\nMGET\r\n$3\r\nb:1\r\n", 16))
	if n := testing.AllocsPerRun(100, func() {
		c.fromClient(b)
		c.up = c.up[:0]
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A term that is added has its name beside the others', from before its fence is read.
func TestNamesAreJoined(t *testing.T) {
	c := ruledCore(t)
	c.cfg.serves = func(string) bool { return true }
	c.fromClient([]byte("FENCE BIND b-1 " + election.NewToken().Reveal() + "\r\n"))
	c.up = nil
	c.reached(c.sentinels)
	b := testBinding(3)
	b.term.Election, b.name = "b-1", "fenceproxy:b-1:3:0100000000000000"
	c.admitted(b, nil)
	c.up = nil
	c.answered([]byte("$40\r\nid=3 addr=127.0.0.1:1 name=x db=0 multi=-1\r\n"))
	if up := string(c.up); !strings.HasPrefix(up, "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$57\r\nfenceproxy:jobs:7:0100000000000000,b-1:3:0100000000000000\r\n") {
		t.Errorf("sent %q", up)
	}
	if !c.holdsElection([]byte("jobs")) || c.holdsElection([]byte("b-1")) {
		t.Error("it holds what it does not, or lost what it has")
	}
}

func BenchmarkRules(b *testing.B) {
	c := ruledCore(b)
	stream := []byte(strings.Repeat("*3\r\n$3\r\nSET\r\n$16\r\na:y:000000000001\r\n$3\r\nxxx\r\n", 16))
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		c.fromClient(stream)
		c.up = c.up[:0]
	}
}
