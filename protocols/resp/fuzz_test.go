package resp

import (
	"bytes"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/redcon"

	"github.com/fenceproxy/fenceproxy/policy"
)

// give feeds a stream to a core in pieces of random lengths, answering that commands
// which the table lacks do not exist. It returns what the core sent up.
func give(c *core, stream []byte, random *rand.Rand) []byte {
	var up []byte
	for len(stream) > 0 || c.ask.kind == askCommand {
		if c.ask.kind == askCommand {
			c.cfg.commands.(testCommands)[c.ask.command] = nil
			c.asked(true)
		}
		k := len(stream)
		if random != nil && k > 0 {
			k = 1 + random.Intn(min(k, 1+random.Intn(20)))
		}
		n := c.fromClient(bytes.Clone(stream[:k]))
		stream = stream[n:]
		up = append(up, c.up...)
		c.up = c.up[:0]
		if c.waiting() && c.ask.kind != askCommand {
			break
		}
	}
	return up
}

// checkUp reads what was sent up with a decoder that is not ours, and checks the
// invariants: a reader sends reads and takes no bound name; a bound session touches no
// fence, and is a reader from where its name was taken off.
func checkUp(t *testing.T, up []byte, bound *binding, broken bool) {
	t.Helper()
	table := newTestCommands()
	for len(up) > 0 {
		if up[0] != '*' {
			if !broken {
				t.Fatalf("not a command: %.60q", up)
			}
			return // what the server will refuse; nothing follows it
		}
		if after, empty := bytes.CutPrefix(up, []byte("*0\r\n")); empty {
			up = after // in the place of an empty line after CLIENT REPLY SKIP
			continue
		}
		args, rest := decode(up)
		if rest == nil {
			return
		}
		up = rest
		if len(args) == 0 {
			if !broken {
				t.Fatal("an empty command was sent up")
			}
			return
		}
		name := strings.ToLower(string(args[0]))
		if strings.HasPrefix(name, strings.ToLower(testNonce)) || name == "host:" || name == "post" {
			continue
		}
		cmd := table[name]
		class := policy.RedisWrite
		if cmd != nil {
			if cmd.Container && len(args) > 1 {
				cmd = cmd.sub([]byte(strings.ToLower(string(args[1]))))
			}
			class = cmd.Class
		}
		if class == policy.RedisRefused || bound == nil && class != policy.RedisRead {
			t.Fatalf("%s command was sent up: %q", class, args)
		}
		switch {
		case cmd == nil:
		case cmd.verb == verbReset && len(args) == 1:
			bound = nil // the name is off: no write may follow
		case cmd.verb == verbSetName && len(args) == 3 && validName(args[2]):
			if own := string(args[2]); bound != nil && own != bound.name {
				bound = nil // likewise
			} else if bound == nil && strings.HasPrefix(own, "fenceproxy:") {
				t.Fatalf("name given: %q", args)
			}
		}
		for i, a := range args {
			if class == policy.RedisWrite && (cmd == nil || cmd.KeyAt(i, len(args))) && i > 0 && isFenceKey(a) {
				t.Fatalf("a fence's key is written: %q", args)
			}
		}
		for i, a := range args {
			if i >= 2 && (name == "auth" && len(args) == 3 || equalFold(args[i-2], "auth")) {
				continue // a password is what it is
			}
			if (name == "auth" || name == "hello") && strings.Contains(";"+string(a), ";token=a-token") || name == "fence" {
				t.Fatalf("a token was sent up: %q", args)
			}
		}
	}
}

// decode reads one command; no rest means that there is none. The decoder panics at some
// negative lengths.
func decode(b []byte) (args [][]byte, rest []byte) {
	defer func() {
		if recover() != nil {
			args, rest = nil, nil
		}
	}()
	complete, args, _, left, err := redcon.ReadNextCommand(b, nil)
	if err != nil || !complete {
		return nil, nil
	}
	return args, append([]byte{}, left...)
}

func FuzzClient(f *testing.F) {
	long := strings.Repeat("x", 20000)
	for _, s := range []string{
		"PING\r\nGET a\r\nSET a 1\r\n", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n",
		"CLIENT SETNAME x\r\nMULTI\r\nSET a 1\r\nEXEC\r\n", "\r\n*0\r\n*-1\r\nRESET\r\nSET a 1\r\n",
		"AUTH ;election=jobs;token=a-token-of-this-test x\r\nSET a 1\r\n", "HELLO 3 AUTH token=a-token-of-this-test b SETNAME c\r\n",
		"FENCE BIND a-token-of-this-test\r\nFENCE UNBIND\r\nSET a 1\r\n", "MSET a 1 fenceproxy:{x} 1\r\n", "FOO fenceproxy:{x}\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$20000\r\n" + long + "\r\nSET a b\r\n", "*2\r\n$3\r\nGET\r\n$20000\r\n" + long + "12PING\r\n",
		"*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$20000\r\n" + long + "\r\n$14\r\nfenceproxy:{x}\r\n$1\r\n1\r\nSET a 1\r\n",
		"*2000000000\r\n$3\r\nSET\r\n$1\r\na\r\n", "*2000000000\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n", "*2\r\n$20000\r\n" + long + "\r\n$1\r\na\r\n",
		"*2\r\n$6\r\nCLIENT\r\n$20000\r\n" + long + "\r\n", "*1\r\n$-1\r\n", "*1\r\n+1\r\n", "*x\r\n", "*1" + long[:100] + "\r\n", "*\x00\r\n", "\x00\r\nSET a 1\r\n",
		"set \"a\\x41\" 'b\\'c'\r\n", "set \"a\r\nPING\r\n", "POST / HTTP/1.1\r\nHost: x\r\n", "CLIENT REPLY OFF\r\n*1\r\n$-1\r\nSET a 1\r\n", "CLIENT REPLY SKIP\r\n\r\nSET a 1\r\n",
		"CLUSTER SLOTS\r\nSET a 1\r\n", "MULTI\r\ncluster nodes\r\nCLIENT GETNAME\r\nEXEC\r\n", "CLIENT REPLY SKIP\r\nCLUSTER SHARDS\r\nASKING\r\nSET a 1\r\n",
		"*1\r\r$4\rxPING..", "FENCE STATUS\r\nFENCE\r\nFENCE HELP\r\nMULTI\r\nFENCE STATUS\r\nHELLO 3\r\nAUTH token=a-token-of-this-test x\r\n",
	} {
		f.Add([]byte(s), int64(1), false)
		f.Add([]byte(s), int64(2), true)
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed int64, bound bool) {
		fresh := func() *core {
			c := newCore(testConfig())
			if bound {
				c = boundCore()
			}
			if seed%2 == 0 {
				c.cfg.cluster = &testCluster{}
			}
			return c
		}
		a := fresh()
		whole := give(a, stream, nil)
		b := fresh()
		pieces := give(b, stream, rand.New(rand.NewSource(seed)))
		if !bytes.Equal(whole, pieces) {
			t.Fatalf("whole  %q\npieces %q", whole, pieces)
		}
		if a.dead != b.dead || a.ended != b.ended || a.conn.multi != b.conn.multi || a.flow.step != b.flow.step {
			t.Fatalf("whole %+v\npieces %+v", a.conn, b.conn)
		}
		if len(whole) > 8*len(stream)+2*maxInline+1024 {
			t.Fatalf("%d bytes became %d", len(stream), len(whole))
		}
		if held := cap(b.cmd.held) + cap(b.stream.hold); held > 8*maxInline {
			t.Fatalf("%d bytes are held", held)
		}
		was := (*binding)(nil)
		if bound {
			was = testBinding(7)
		}
		checkUp(t, whole, was, a.dead)
	})
}

func FuzzServer(f *testing.F) {
	sub := "-ERR unknown command '" + testNonce + ":w:set', with args beginning with: \r\n"
	for _, s := range []string{
		"+OK\r\n:1\r\n$3\r\nabc\r\n$-1\r\n*-1\r\n*0\r\n", sub + "+OK\r\n" + sub, "*2\r\n*1\r\n:1\r\n$0\r\n\r\n+x\r\n",
		"%1\r\n+a\r\n:1\r\n~2\r\n_\r\n#t\r\n,1.5\r\n(123\r\n=7\r\ntxt:abc\r\n!3\r\nERR\r\n>2\r\n+a\r\n+b\r\n|1\r\n+k\r\n+v\r\n:3\r\n",
		"$?\r\n;3\r\nabc\r\n;0\r\n*?\r\n:1\r\n*2\r\n:1\r\n:2\r\n.\r\n%?\r\n+a\r\n:1\r\n.\r\n+x\r\n", strings.Repeat("*1\r\n", 40000) + ":1\r\n+OK\r\n",
		"-" + strings.Repeat("e", 5000) + "\r\n+OK\r\n", "*1\r\n-ERR " + testNonce + ":w:x\r\n", "?\r\n", "*9223372036854775807\r\n*9223372036854775807\r\n", ".\r\n",
	} {
		f.Add([]byte(s), int64(1))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed int64) {
		run := func(random *rand.Rand) (string, bool, bool) {
			c := newCore(testConfig())
			rest := stream
			for len(rest) > 0 {
				k := len(rest)
				if random != nil {
					k = 1 + random.Intn(min(k, 20))
				}
				if err := c.fromServer(rest[:k]); err != nil {
					return "", true, false
				}
				rest = rest[k:]
			}
			return string(c.down), false, c.served.between()
		}
		whole, bad, end := run(nil)
		pieces, bad2, end2 := run(rand.New(rand.NewSource(seed)))
		if whole != pieces || bad != bad2 || end != end2 {
			t.Fatalf("whole %q %v %v\npieces %q %v %v", whole, bad, end, pieces, bad2, end2)
		}
		if strings.Contains(whole, "\n-ERR unknown command '"+testNonce+":w:") || strings.HasPrefix(whole, "-ERR unknown command '"+testNonce+":w:") {
			t.Fatalf("a substitute's error was passed on: %q", whole)
		}
	})
}

// FuzzClusterServer gives what a node of a cluster may send: while a list of nodes is
// awaited, and when none is.
func FuzzClusterServer(f *testing.F) {
	files, err := filepath.Glob("testdata/cluster/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no transcripts", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "S "); ok && !strings.Contains(text, testNonce) {
				if said, err := strconv.Unquote(`"` + text + `"`); err == nil && len(said) < 2000 {
					for list := range byte(6) {
						f.Add([]byte(said), int64(list), list)
					}
				}
			}
		}
	}
	asks := []string{"", "CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES", "CLUSTER REPLICAS x", "CLUSTER SLAVES x"}
	f.Fuzz(func(t *testing.T, stream []byte, seed int64, list byte) {
		ask := asks[int(list)%len(asks)]
		run := func(random *rand.Rand) (c *core, asked, bad bool) {
			c = newCore(testClusterConfig())
			c.conn.proto = 2 + int(seed&1)
			if ask != "" {
				c.fromClient([]byte(ask + "\r\n"))
				if err := c.fromServer([]byte("-ERR unknown command '" + testNonce + ":S:1'\r\n")); err != nil {
					t.Fatal(err)
				}
			}
			for rest := stream; len(rest) > 0; {
				k := len(rest)
				if random != nil {
					k = 1 + random.Intn(min(k, 20))
				}
				if err := c.fromServer(rest[:k]); err != nil {
					return c, asked, true
				}
				rest = rest[k:]
				if c.ask.kind == askTopology {
					asked = true
					c.refreshed()
				}
			}
			return c, asked, false
		}
		a, asked, bad := run(nil)
		b, _, bad2 := run(rand.New(rand.NewSource(seed)))
		// A server that is about to be asked again sends nothing before that.
		if !asked && (bad != bad2 || a.ended != b.ended || !bad && !bytes.Equal(a.down, b.down)) {
			t.Fatalf("whole %q %v\npieces %q %v", a.down, bad, b.down, bad2)
		}
		if n := cap(a.served.kept); n > maxList+maxIdleBuffer {
			t.Fatalf("%d bytes are held", n)
		}
		if line, _, _ := bytes.Cut(a.down, []byte("\r\n")); isRedirection.Match(line) && !isOurs.Match(line) {
			t.Fatalf("a redirection says %q", line)
		}
	})
}

var (
	isRedirection = regexp.MustCompile(`^-(MOVED|ASK)( |$)`)
	isOurs        = regexp.MustCompile(`^-(MOVED|ASK) \d+ proxy:\d+$`)
)
