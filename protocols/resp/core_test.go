package resp

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/policy"
)

var update = flag.Bool("update", false, "rewrite the transcripts below testdata")

// testCommands are commands as a server describes them, for tests without one.
type testCommands map[string]*command

func (t testCommands) lookup(name []byte) (*command, bool) {
	c, known := t[string(name)]
	return c, known
}

func newTestCommands() testCommands {
	t := make(testCommands)
	add := func(name string, keys [3]int64, flags ...string) {
		e := []any{name, int64(-1), list(flags), keys[0], keys[1], keys[2], nil, nil, nil, nil}
		if name == "client" || name == "config" || name == "xgroup" || name == "cluster" {
			var subs []any
			for _, s := range map[string][]string{
				"client": {"id", "info", "setname", "getname", "reply", "no-touch"}, "config": {"get"}, "xgroup": {"create"},
				"cluster": {"slots", "shards", "nodes", "replicas", "slaves", "myid"},
			}[name] {
				pos := int64(0)
				var f []string
				if name == "xgroup" {
					pos, f = 2, []string{"write"}
				}
				subs = append(subs, []any{name + "|" + s, int64(-1), list(f), pos, pos, pos / 2})
			}
			e[9] = subs
		}
		p, err := policy.ParseRedisCommand(e)
		if err != nil {
			panic(err)
		}
		t[name] = newCommand(p)
	}
	one := [3]int64{1, 1, 1}
	for _, n := range strings.Fields("ping echo select auth hello reset quit multi exec discard watch unwatch subscribe monitor eval publish client config xgroup command cluster asking readonly") {
		add(n, [3]int64{})
	}
	add("get", one, "readonly")
	add("mget", [3]int64{1, -1, 1}, "readonly")
	add("set", one, "write")
	add("incr", one, "write")
	add("blpop", [3]int64{1, -2, 1}, "write", "blocking")
	add("mset", [3]int64{1, -1, 2}, "write")
	add("flushall", [3]int64{}, "write")
	add("swapdb", [3]int64{}, "write")
	add("shutdown", [3]int64{}, "admin")
	add("eval", [3]int64{}, "movablekeys")
	t["nosuch"] = nil
	return t
}

func list(s []string) []any {
	var l []any
	for _, x := range s {
		l = append(l, x)
	}
	return l
}

const testNonce = "fenceproxy:NONCE"

func testConfig() coreConfig {
	return coreConfig{
		nonce: testNonce, election: "jobs", localAddr: "127.0.0.1:1", commands: newTestCommands(),
		serves: func(id string) bool { return id != "elsewhere" },
		owns:   map[string]bool{OwnElection: true},
	}
}

func testBinding(n int64) *binding {
	t := guard.Term{Election: "jobs", Owner: "w", Number: n, Digest: election.Digest{1}}
	r := guard.Record{Highest: n, Holder: t.Digest, State: guard.Severed, Raise: guard.RaiseID{2}}
	return &binding{term: t, name: redisfence.ConnName(t), key: redisfence.Key("jobs"), value: redisfence.Encode(r)}
}

// boundCore is a core as it is after a bind.
func boundCore() *core {
	c := newCore(testConfig())
	c.bound = testBinding(7)
	c.worn = c.bound.name
	c.bound.credential = credential{election: "jobs", token: election.NewToken()}
	c.named = true
	return c
}

// A player plays a transcript. Lines that begin with C and S are bytes from the client
// and from the server, Go-quoted without the quotes; A is an answer of the shell's. The
// output that follows is U and D, bytes for the server and for the client, and Q, a
// question.
type player struct {
	c       *core
	pending []byte // the client's bytes that the core has not taken
	piece   int    // how many bytes are given at once; zero: all
	log     bytes.Buffer
}

func (p *player) feed() {
	for {
		b := p.pending
		if p.piece > 0 {
			b = b[:min(len(b), p.piece)]
		}
		n := p.c.fromClient(bytes.Clone(b))
		p.pending = p.pending[n:]
		if len(p.pending) == 0 || n < len(b) {
			return
		}
	}
}

func (p *player) collect() {
	note := func(kind string, b []byte) {
		if len(b) > 0 {
			q := strconv.Quote(string(b))
			p.log.WriteString(kind + " " + q[1:len(q)-1] + "\n")
		}
	}
	p.feed()
	note("U", p.c.up)
	note("D", p.c.down)
	p.c.up, p.c.down = p.c.up[:0], p.c.down[:0]
	switch q := p.c.ask; q.kind {
	case askAdmit:
		fmt.Fprintf(&p.log, "Q admit %s renew=%v\n", q.credential.Election, q.renew != nil)
	case askLive:
		p.log.WriteString("Q live\n")
	case askRecord:
		p.log.WriteString("Q record\n")
	case askTopology:
		p.log.WriteString("Q topology\n")
	case askOwn:
		fmt.Fprintf(&p.log, "Q own %s %q in RESP%d\n", q.call.name, q.call.args, q.call.proto)
		if !p.c.call() {
			p.log.WriteString("Q nothing more\n")
		}
	case askCommand:
		fmt.Fprintf(&p.log, "Q command %s\n", q.command)
	}
	if p.c.closed {
		p.log.WriteString("Q close\n")
	}
}

func (p *player) do(t *testing.T, line string) {
	t.Helper()
	kind, rest, _ := strings.Cut(line, " ")
	text, err := strconv.Unquote(`"` + rest + `"`)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	switch kind {
	case "C":
		p.pending = append(p.pending, text...)
	case "S":
		for i := 0; i < len(text); {
			n := len(text) - i
			if p.piece > 0 {
				n = min(n, p.piece)
			}
			if err := p.c.fromServer([]byte(text[i : i+n])); err != nil {
				fmt.Fprintf(&p.log, "Q error\n")
			}
			i += n
		}
	case "A":
		p.answer(t, text)
	default:
		t.Fatalf("what is %q?", line)
	}
}

func (p *player) answer(t *testing.T, text string) {
	t.Helper()
	refusal := &guard.Refusal{Reason: guard.Stale, Election: "jobs", Held: 7, Rules: 9, Leader: "other"}
	if reply, ok := strings.CutPrefix(text, "own "); ok {
		p.c.called([]byte(reply))
		return
	}
	switch text {
	case "permit":
		p.c.admitted(testBinding(7), nil)
	case "stale":
		p.c.admitted(nil, refusal)
	case "live":
		p.c.confirmed(true, nil)
	case "recorded":
		p.c.recorded(isRecorded, nil)
	case "changed":
		p.c.recorded(isChanged, nil)
	case "early":
		p.c.recorded(isEarly, nil)
	case "unknown":
		p.c.recorded(isUnknown, nil)
	case "new node":
		p.c.cfg.cluster.(*testCluster).later = true
		p.c.refreshed()
	case "no new node":
		p.c.refreshed()
	case "replica":
		p.c.cfg.cluster.(*testCluster).replica = true
	case "primary":
		p.c.cfg.cluster.(*testCluster).replica = false
	case "dead":
		p.c.confirmed(false, refusal)
	case "ended":
		p.c.end(p.c.refusalLine(refusal))
	case "drain":
		p.c.drain()
	case "over":
		p.c.over()
	case "no command":
		p.c.cfg.commands.(testCommands)[p.c.ask.command] = nil
		p.c.asked(true)
	case "is client":
		p.c.cfg.commands.(testCommands)[p.c.ask.command] = p.c.cfg.commands.(testCommands)["client"]
		p.c.asked(true)
	case "cannot ask":
		p.c.asked(false)
	default:
		t.Fatalf("what is the answer %q?", text)
	}
}

// play plays the inputs of a transcript and returns it with its outputs.
func play(t *testing.T, cfg coreConfig, lines []string, piece int) string {
	t.Helper()
	p := &player{c: newCore(cfg), piece: piece}
	for _, line := range lines {
		kind, _, _ := strings.Cut(line, " ")
		switch kind {
		case "#", "":
			p.log.WriteString(line + "\n")
		case "C", "S", "A":
			p.log.WriteString(line + "\n")
			p.do(t, line)
			p.collect()
		}
	}
	return p.log.String()
}

// sides are all bytes for the server, and all for the client.
func sides(transcript string) (up, down string) {
	for line := range strings.Lines(transcript) {
		text := strings.TrimSuffix(line[min(2, len(line)):], "\n")
		switch line[0] {
		case 'U':
			up += text
		case 'D':
			down += text
		}
	}
	return up, down
}

func TestTranscripts(t *testing.T) { transcripts(t, "testdata/core/*.txt", testConfig) }

func TestClusterTranscripts(t *testing.T) {
	transcripts(t, "testdata/cluster/*.txt", testClusterConfig)
}

func transcripts(t *testing.T, pattern string, cfg func() coreConfig) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
			got := play(t, cfg(), lines, 0)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(b) {
				t.Errorf("got:\n%s\nwant:\n%s", got, b)
			}
			up, down := sides(got)
			for piece := 1; piece < 6; piece++ {
				if u, d := sides(play(t, cfg(), lines, piece)); u != up || d != down {
					t.Errorf("in pieces of %d:\nup   %s\nnot  %s\ndown %s\nnot  %s", piece, u, up, d, down)
				}
			}
			// All that the client sends at once: it must make no difference either.
			var first, others []string
			for _, l := range lines {
				if rest, ok := strings.CutPrefix(l, "C "); ok {
					first = append(first, rest)
				} else {
					others = append(others, l)
				}
			}
			all := append([]string{"C " + strings.Join(first, "")}, others...)
			if strings.Contains(got, "A ended") || strings.Contains(got, "A drain") || strings.Contains(got, "A primary") {
				return // an end does not wait for bytes that have not come yet
			}
			if u, d := sides(play(t, cfg(), all, 0)); u != up || d != down {
				t.Errorf("coalesced:\nup   %s\nnot  %s\ndown %s\nnot  %s", u, up, d, down)
			}
		})
	}
}
