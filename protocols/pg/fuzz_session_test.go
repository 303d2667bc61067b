package pg

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// A session's history for the fuzzer: a byte that says how it starts, and then turns. A turn is
// a byte that says whose it is, a length of two bytes, and so many bytes of its messages.
const (
	startReader = iota
	startLeader
	startReplica
	startLogin
	startLoginToken
	startSidecar
	startRuledReader
	startRuledLeader
	starts
)

const (
	turnClient = iota
	turnServer
	turnLost
	turnShutdown
	turnDecides // the guard's next answer: ok where the turn has bytes
	turnLeads   // a sidecar listener leads where the turn has bytes
	turns
)

func appendTurn(b []byte, whose byte, bytes []byte) []byte {
	b = binary.BigEndian.AppendUint16(append(b, whose), uint16(len(bytes)))
	return append(b, bytes...)
}

// history writes a transcript down for the fuzzer.
func history(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	mark := markerPrefix + "00112233aabbccdd_01_insert"
	for _, l := range readScript(string(text)).lines {
		switch {
		case l == "" || l[0] == '#':
		case l == "reader":
			b = []byte{startReader}
		case l == "leader":
			b = []byte{startLeader}
		case l == "replica":
			b = []byte{startReplica}
		case l == "ruled reader":
			b = []byte{startRuledReader}
		case l == "ruled leader":
			b = []byte{startRuledLeader}
		case strings.HasPrefix(l, "login") && strings.Contains(l, "token"):
			b = []byte{startLoginToken}
		case strings.HasPrefix(l, "login") && strings.Contains(l, "sidecar"):
			b = []byte{startSidecar}
		case strings.HasPrefix(l, "login"):
			b = []byte{startLogin}
		case l == "! leads":
			b = appendTurn(b, turnLeads, []byte{1})
		case l == "! follows":
			b = appendTurn(b, turnLeads, nil)
		case l == "! lost":
			b = appendTurn(b, turnLost, nil)
		case l == "! shutdown":
			b = appendTurn(b, turnShutdown, nil)
		case l == "! ok":
			b = appendTurn(b, turnDecides, []byte{1})
		case l[0] == '!':
			b = appendTurn(b, turnDecides, nil)
		default:
			text := strings.ReplaceAll(strings.ReplaceAll(l[1:], "$TOKEN", testToken), "$MARK", mark)
			m, err := encode(text, l[0] == '<')
			if err != nil || len(m) > 0xffff {
				t.Fatalf("%s: %s: %v", file, l, err)
			}
			b = appendTurn(b, map[byte]byte{'>': turnClient, '<': turnServer}[l[0]], m)
		}
	}
	return b
}

// relive carries a history out, each turn's bytes in pieces of a size.
func relive(history []byte, piece int) *driver {
	if len(history) == 0 {
		return newDriver()
	}
	var d *driver
	switch history[0] % starts {
	case startReader:
		d = loggedIn()
	case startLeader:
		d = leading()
	case startRuledReader:
		d = loggedIn()
		d.c.ruled = &ruling{rules: ordersRules()}
	case startRuledLeader:
		d = leading()
		d.c.ruled = &ruling{rules: ordersRules()}
	case startReplica:
		d = loggedIn()
		d.c.replication = true
	default:
		d = newDriver()
		switch history[0] % starts {
		case startLoginToken:
			d.c.token, _ = election.ParseToken(testToken)
		case startSidecar:
			d.c.lead = &fakeLead{}
		}
	}
	for b := history[1:]; len(b) >= 3; {
		whose, n := b[0]%turns, int(binary.BigEndian.Uint16(b[1:]))
		n = min(n, len(b)-3)
		bytes := b[3 : 3+n]
		b = b[3+n:]
		switch whose {
		case turnClient, turnServer:
			for len(bytes) > 0 {
				k := min(piece, len(bytes))
				if whose == turnClient {
					d.client(bytes[:k])
				} else {
					// The other side's turn comes after the last piece: what it does may
					// depend on how far the server is.
					d.from = append(d.from, bytes[:k]...)
					d.turnServer()
				}
				bytes = bytes[k:]
			}
		case turnLost:
			d.c.lost(&guard.Refusal{Reason: guard.Stale, Election: "orders", Held: 7, Rules: 9, Leader: "w2"})
		case turnShutdown:
			d.c.shutdown()
		case turnDecides:
			d.decisions = append(d.decisions, map[bool]string{true: "ok", false: "stale"}[n > 0])
		case turnLeads:
			if lead, ok := d.c.lead.(*fakeLead); ok {
				lead.leads = n > 0
			}
		}
		d.turnServer()
		d.turnClient()
		d.turnServer()
	}
	return d
}

// A complainer is a testing.T, or rapid's.
type complainer interface {
	Helper()
	Errorf(format string, args ...any)
}

// judgeUpstream looks at every message that went to the server.
func (d *driver) judgeUpstream(t complainer) {
	t.Helper()
	for b := d.up; len(b) >= 5; {
		bound := d.bound >= 0 && len(d.up)-len(b) >= d.bound
		typ, n := header(b)
		if n < 4 || 1+n > len(b) {
			return
		}
		body := b[5 : 1+n]
		b = b[1+n:]
		// An empty one calls nothing: it stands for a message that comes in the middle of the login.
		if typ == 'F' && !bound && len(body) > 0 && !(len(body) >= 4 && readingCall(binary.BigEndian.Uint32(body))) {
			t.Errorf("a FunctionCall that may write went upstream unbound: %q", body)
		}
		if typ != 'Q' && typ != 'P' {
			continue
		}
		_, text, ok := statement(typ, body)
		if !ok || len(text) > policy.MaxSQLText {
			continue
		}
		v := d.c.sql.Inspect(text)
		if v.Fence == policy.FenceSets && bytes.Contains(text, []byte(testToken)) {
			t.Errorf("a token went upstream: %q", text)
		}
		own := strings.TrimPrefix(string(text), "SHOW ")
		mark := string(text[bytes.LastIndexByte(text, '\n')+1:])
		mark, behind := strings.CutPrefix(mark, ";")
		command, reads, _ := replicates(text)
		switch {
		case d.c.ruled != nil && (string(text) == openSQL || d.isOpen(bytes.TrimPrefix(text, []byte(openSQL+";")))):
		case marks(own, d.c.nonce),
			v.Reason == policy.SQLUnparsed && behind && marks(mark, d.c.nonce):
		case bound:
			d.keepsRules(t, text)
		case
			v.Fence == policy.FenceSets,
			v.Reason == policy.SQLReads && v.Fence == policy.FenceUnused,
			d.c.replication && command && reads && typ == 'Q':
		default:
			t.Errorf("went upstream unbound: %q", text)
		}
	}
}

// isOpen says whether everybody may send a text, wherever its names without a schema are.
func (d *driver) isOpen(text []byte) bool {
	all := d.c.sql.Targets(text)
	ok, _ := all.OpenToAll(policy.SearchPath{Known: true, Schemas: []string{"scratch"}}, d.c.ruled.rules)
	return ok && len(all.Writes) > 0
}

// keepsRules says whether a bound session's text names nothing that its election does not rule.
func (d *driver) keepsRules(t complainer, text []byte) {
	t.Helper()
	if d.c.ruled == nil {
		return
	}
	all := d.c.sql.Targets(text)
	path := policy.SearchPath{Known: true, Schemas: []string{"orders"}}
	if r := d.c.ruled.rules.Decide(all.Writing(path, d.c.ruled.rules)); len(r.Elections) > 0 && !slices.Equal(r.Elections, []string{"orders"}) {
		t.Errorf("went upstream without the term of %v: %q", r.Elections, text)
	}
}

// marks reports whether a text is a marker and nothing else.
func marks(text, nonce string) bool {
	return strings.HasPrefix(text, nonce) && !strings.ContainsAny(text, " ;'\"\\")
}

// oneLastWord checks that nothing follows a FATAL.
func (d *driver) oneLastWord(t complainer) {
	t.Helper()
	for b := d.down; len(b) >= 5; {
		typ, n := header(b)
		if n < 4 || 1+n > len(b) {
			return
		}
		body := b[5 : 1+n]
		b = b[1+n:]
		if severity := string(field(body, 'V')); typ == 'E' && n < maxHeld && (severity == "FATAL" || severity == "PANIC") && len(b) > 0 {
			t.Errorf("after a FATAL: %q", b)
		}
	}
}

// Whatever client and server send, in whatever pieces: nothing panics or goes round in circles,
// only reads go upstream unbound, no token does, one FATAL is the last word, memory is bounded,
// and the pieces make no difference.
func FuzzSession(f *testing.F) {
	files, err := filepath.Glob("testdata/*.transcript")
	if err != nil || len(files) == 0 {
		f.Fatal("no transcripts", err)
	}
	for i, file := range files {
		f.Add(history(f, file), uint8(i))
	}
	f.Fuzz(func(t *testing.T, history []byte, piece uint8) { checkHistory(t, history, int(piece)+1) })
}

func checkHistory(t complainer, history []byte, piece int) {
	t.Helper()
	d := relive(history, 1<<20)
	d.judgeUpstream(t)
	d.oneLastWord(t)
	if d.steps > 50*(len(history)+100) {
		t.Errorf("%d steps for %d bytes", d.steps, len(history))
	}
	if c := d.c; c.track.len() > maxUnits || len(c.ends.statements)+len(c.ends.portals)+len(c.ends.undo) > 3*maxEndings || len(c.held) > maxHeld ||
		cap(c.track.q) > 4*maxUnits {
		t.Errorf("memory: %d units, %d names, %d bytes", c.track.len(), len(c.ends.statements)+len(c.ends.portals), len(c.held))
	}
	p := relive(history, piece)
	if !bytes.Equal(d.up, p.up) || !bytes.Equal(d.down, p.down) {
		t.Errorf("in pieces of %d upstream\n%q\nwhole\n%q\nto the client\n%q\nwhole\n%q", piece, p.up, d.up, p.down, d.down)
	}
}

// The same for histories that are made of messages, of which more come to something.
func FuzzHistories(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(drawHistory))
}

func TestHistories(t *testing.T) { rapid.Check(t, drawHistory) }

func drawHistory(t *rapid.T) {
	client := rapid.OneOf(
		rapid.Map(rapid.SampledFrom(clientTexts), func(s string) []byte { return appendQuery(nil, s) }),
		rapid.Map(rapid.SampledFrom(clientTexts), func(s string) []byte { return appendParse(nil, "", s) }),
		rapid.Map(rapid.SampledFrom(clientTexts), func(s string) []byte { return appendParse(nil, "n", s) }),
		rapid.SampledFrom([][]byte{msg("B"), msg("E"), msg("D"), msg("C"), syncs, flushes, msg("F"), msg("X"), copyEnd, copyGood, copyFail, bindTo("n", "n"),
			executeOf("n", 0), {'!'}, {'Q', 0, 0, 0, 3}, {'Q', 0, 0, 0, 4}, {'P', 0, 0, 0, 6, 0, 0}, {'p', 0, 0, 0, 5, 0}, {'Q', 0, 0, 0}}),
	)
	server := rapid.OneOf(
		rapid.SampledFrom([][]byte{[]byte("Z\x00\x00\x00\x05I"), []byte("Z\x00\x00\x00\x05I"), []byte("Z\x00\x00\x00\x05T"), []byte("Z\x00\x00\x00\x05E")}),
		rapid.Map(rapid.SampledFrom(serverLines), func(s string) []byte {
			b, err := encode(s, true)
			if err != nil {
				panic(err)
			}
			return b
		}),
	)
	b := []byte{byte(rapid.IntRange(0, starts-1).Draw(t, "start"))}
	for range rapid.IntRange(1, 30).Draw(t, "turns") {
		switch whose := rapid.SampledFrom([]byte{turnClient, turnClient, turnClient, turnServer, turnServer, turnServer, turnServer, turnDecides, turnDecides, turnLeads, turnLost, turnShutdown}).Draw(t, "whose"); whose {
		case turnClient, turnServer:
			from := client
			if whose == turnServer {
				from = server
			}
			var all []byte
			for range rapid.IntRange(1, 3).Draw(t, "messages") {
				all = append(all, from.Draw(t, "message")...)
			}
			// Sometimes a turn ends in the middle of a message.
			if rapid.IntRange(0, 9).Draw(t, "cut") == 0 {
				all = all[:rapid.IntRange(0, len(all)).Draw(t, "at")]
			}
			b = appendTurn(b, whose, all)
		case turnDecides, turnLeads:
			b = appendTurn(b, whose, make([]byte, rapid.IntRange(0, 1).Draw(t, "ok")))
		default:
			b = appendTurn(b, whose, nil)
		}
	}
	checkHistory(t, b, rapid.IntRange(1, 9).Draw(t, "piece"))
}

var clientTexts = []string{"SELECT 1", "SELECT nothing", "INSERT INTO t VALUES (1)", "BEGIN", "COMMIT", "ROLLBACK", "SELECT 1; COMMIT", "COPY t FROM STDIN", "COPY t TO STDOUT",
	"DISCARD ALL", "RESET ALL", "SET default_transaction_read_only=off", "SET default_transaction_read_only=on", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
	"SET fence.token='" + testToken + "'", "SET fence.election='orders'", "SET fence.election='forbidden'", "SET fence.election='other';SET fence.token='" + testToken + "'",
	"SET LOCAL fence.token='" + testToken + "'", "SELECT set_config('fence.token','" + testToken + "',false)", "RESET fence.token", "SHOW fence.status",
	"SELECT 1; SET fence.token='" + testToken + "'", "SET FENCE.\"token\" TO '" + testToken + "'", `SET U&"\0066ence".token='` + testToken + "'", "SET fence.token='short'",
	"PREPARE TRANSACTION 'x'", "COMMIT PREPARED 'x'", "SELECT '" + strings.Repeat("x", 5000) + "'", "INSERT INTO t VALUES ('" + strings.Repeat("x", 5000) + "')",
	"IDENTIFY_SYSTEM", "START_REPLICATION 0/1", "DROP_REPLICATION_SLOT a", "SELECT '\\'", "SELECT 'é'", "", "DEALLOCATE ALL"}

var serverLines = []string{"1", "2", "3", "n", "T", "t", "D", "I", "s", `C "SELECT 1"`, `C "SET"`, `C "COPY 1"`, `C "SET"`, `C "SET"`, "G", "H", "W", "c", `d "x"`, "R", "K",
	"S default_transaction_read_only off", "S default_transaction_read_only on", "S default_transaction_read_only on", "S client_encoding SJIS", "S standard_conforming_strings off",
	`E ERROR 42601 "no"`, `E ERROR 25006 "no"`, `E ERROR 08P01 "no"`, `E FATAL 57P01 "no"`, `E FATAL 53300 "no"`, `N WARNING 01000 "x"`, `A "" "" "" "a" ""`, "raw 5300000003",
	`E ERROR 42601 "at or near \"` + markerPrefix + `00112233aabbccdd_01_insert\""`}
