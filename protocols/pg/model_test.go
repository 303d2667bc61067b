package pg

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A modelServer answers messages as Postgres does: what it skips after an error, what COPY
// swallows, and when it flushes. It runs next to the core, and without it.
type modelServer struct {
	in, out, sent []byte // received, answered, flushed
	status        byte
	skip          bool
	copying       byte // 0, 'Q' or 'E'
	parsed        string
	readOnly      bool
	startReadOnly bool
	fenced        bool // refuses writes in the way the proxy should
	reported      bool
	closed        bool
}

func newModel(readOnly, fenced bool) *modelServer {
	return &modelServer{status: 'I', readOnly: readOnly, startReadOnly: readOnly, reported: readOnly, fenced: fenced}
}

func (m *modelServer) atRest() bool {
	return len(m.in) == 0 && !m.closed && m.copying == 0 && !m.skip && len(m.out) == 0
}

// step processes one message.
func (m *modelServer) step() bool {
	if len(m.in) < 5 || m.closed {
		return false
	}
	typ, n := header(m.in)
	if n < 4 || frontendLimit(typ) == 0 {
		m.closed = true
		return false
	}
	if len(m.in) < 1+n {
		return false
	}
	body := m.in[5 : 1+n]
	m.message(typ, body)
	m.in = m.in[1+n:]
	return true
}

func (m *modelServer) flush() {
	m.sent = append(m.sent, m.out...)
	m.out = m.out[:0]
}

func (m *modelServer) say(typ byte, strs ...string) {
	m.out = appendMessage(m.out, typ, strs...)
}

func (m *modelServer) ready() {
	if m.readOnly != m.reported {
		m.reported = m.readOnly
		m.say('S', "default_transaction_read_only", map[bool]string{true: "on", false: "off"}[m.readOnly])
	}
	m.out = append(m.out, 'Z', 0, 0, 0, 5, m.status)
	m.flush()
}

func (m *modelServer) fail(extended bool, code, msg string) {
	m.say('E', "SERROR", "VERROR", "C"+code, "M"+msg, "")
	m.flush()
	if m.status == 'T' {
		m.status = 'E'
	}
	if extended {
		m.skip = true
	} else {
		m.ready()
	}
}

func (m *modelServer) message(typ byte, body []byte) {
	if m.copying != 0 {
		m.copyMessage(typ, body)
		return
	}
	if m.skip && typ != 'S' {
		return
	}
	switch typ {
	case 'Q':
		text, _ := queryText(body)
		if m.run(string(text), false) {
			m.ready()
		}
	case 'P':
		_, text, _ := parseText(body)
		m.parsed = string(text)
		if code, msg := m.refuses(m.parsed); code != "" {
			m.fail(true, code, msg)
			return
		}
		m.say('1')
	case 'B':
		m.say('2')
	case 'D':
		m.say('n')
	case 'E':
		m.run(m.parsed, true)
	case 'C':
		m.say('3')
	case 'S':
		m.skip = false
		m.ready()
	case 'H':
		m.flush()
	case 'F':
		if m.fenced {
			m.fail(false, "25006", "")
			return
		}
		m.out = append(m.out, 'V', 0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff)
		m.ready()
	}
}

func (m *modelServer) copyMessage(typ byte, body []byte) {
	extended := m.copying == 'E'
	switch typ {
	case 'd':
		if bytes.Contains(body, []byte("bad")) {
			m.copying = 0
			m.fail(extended, "22P02", "")
		}
	case 'c':
		m.copying = 0
		m.say('C', "COPY 1")
		if !extended {
			m.ready()
		}
	case 'f':
		m.copying = 0
		m.fail(extended, "57014", "")
	case 'H', 'S':
	default:
		m.copying = 0
		m.fail(extended, "08P01", "unexpected message type")
	}
}

func (m *modelServer) refuses(text string) (code, msg string) {
	switch {
	case strings.HasPrefix(text, markerPrefix), strings.Contains(text, "\n;"+markerPrefix):
		return "42601", `syntax error at or near "` + text + `"`
	case m.fenced && (strings.HasPrefix(text, "INSERT") || strings.HasPrefix(text, "COPY")):
		return "25006", ""
	case strings.Contains(text, "nothing"):
		return "42703", ""
	}
	return "", ""
}

// run executes a text and reports whether it came to its end.
func (m *modelServer) run(text string, extended bool) bool {
	if code, msg := m.refuses(text); code != "" {
		m.fail(extended, code, msg)
		return false
	}
	switch {
	case text == "COPY t FROM STDIN":
		m.out = append(m.out, "G\x00\x00\x00\x07\x00\x00\x00"...)
		m.flush()
		m.copying = 'Q'
		if extended {
			m.copying = 'E'
			m.parsed = "SELECT 1"
		}
		return false
	case text == "SELECT fails()":
		m.fail(extended, "22012", "")
		return false
	case text == "BEGIN":
		m.status = 'T'
		m.say('C', "BEGIN")
	case text == "ROLLBACK":
		m.status = 'I'
		m.say('C', "ROLLBACK")
	case text == "DISCARD ALL":
		m.parsed = "SELECT 1"
		if m.status != 'I' {
			m.fail(extended, "25001", "")
			return false
		}
		m.readOnly = m.startReadOnly
		m.say('C', "DISCARD ALL")
	case strings.HasPrefix(text, "SET "):
		for _, s := range strings.Split(strings.TrimSuffix(text, ";"), ";") {
			if s == "SET default_transaction_read_only=off" {
				m.readOnly = false
			}
			m.say('C', "SET")
		}
	case m.readOnly && strings.HasPrefix(text, "INSERT"):
		m.fail(extended, "25006", "")
		return false
	default:
		if !extended {
			m.out = append(m.out, "T\x00\x00\x00\x06\x00\x00"...)
		}
		m.say('C', "OK")
	}
	return true
}

// outcome writes what a client saw without what may differ: words, and reports.
func outcome(stream []byte) string {
	var b strings.Builder
	for _, l := range strings.Split(show(stream, false), "\n") {
		f := strings.Fields(l)
		switch {
		case len(f) == 0 || f[0] == "S":
		case f[0] == "E":
			b.WriteString(strings.Join(f[:3], " ") + "\n")
		default:
			b.WriteString(l + "\n")
		}
	}
	return b.String()
}

var (
	selects  = appendQuery(nil, "SELECT 1")
	syncs    = []byte("S\x00\x00\x00\x04")
	flushes  = []byte("H\x00\x00\x00\x04")
	copyEnd  = []byte("c\x00\x00\x00\x04")
	copyGood = []byte("d\x00\x00\x00\x08good")
	copyBad  = []byte("d\x00\x00\x00\x08bad!")
	copyFail = appendMessage(nil, 'f', "no")
)

func msg(line string) []byte {
	b, err := encode(line, false)
	if err != nil {
		panic(err)
	}
	return b
}

// tidy draws what a client that keeps to the protocol sends.
func tidy(t *rapid.T, leader bool) []byte {
	var b []byte
	texts := []string{"SELECT 1", "SELECT nothing", "SELECT fails()", "INSERT INTO t VALUES (1)", "BEGIN", "ROLLBACK"}
	text := rapid.SampledFrom(texts)
	queries := text
	if !leader {
		// Statements behind a COMMIT in one group are refused: see a transcript.
		text = rapid.SampledFrom(texts[:4])
	} else {
		queries = rapid.SampledFrom(append(texts, "DISCARD ALL"))
	}
	for range rapid.IntRange(1, 12).Draw(t, "units") {
		switch rapid.IntRange(0, 7).Draw(t, "unit") {
		case 0, 1:
			b = appendQuery(b, queries.Draw(t, "query"))
		case 2, 3: // an extended group, its Sync perhaps missing
			for range rapid.IntRange(0, 6).Draw(t, "messages") {
				switch rapid.IntRange(0, 6).Draw(t, "message") {
				case 0:
					b = appendParse(b, rapid.SampledFrom([]string{"", "s"}).Draw(t, "name"), text.Draw(t, "parse"))
				case 1:
					b = append(b, msg("B")...)
				case 2:
					b = append(b, msg("D")...)
				case 3, 4:
					b = append(b, msg("E")...)
				case 5:
					b = append(b, msg("C")...)
				case 6:
					b = append(b, flushes...)
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "sync") > 0 {
				b = append(b, syncs...)
			}
		case 4:
			b = append(b, msg("F")...)
		case 5:
			if !leader {
				continue
			}
			extended := rapid.Bool().Draw(t, "extended")
			if extended {
				b = appendParse(b, "", "COPY t FROM STDIN")
				b = append(append(b, msg("B")...), msg("E")...)
				if rapid.Bool().Draw(t, "libpq") {
					b = append(b, syncs...)
				}
			} else {
				b = appendQuery(b, "COPY t FROM STDIN")
			}
			for range rapid.IntRange(0, 3).Draw(t, "rows") {
				b = append(b, rapid.SampledFrom([][]byte{copyGood, copyGood, copyBad}).Draw(t, "row")...)
			}
			b = append(b, rapid.SampledFrom([][]byte{copyEnd, copyEnd, copyFail}).Draw(t, "end")...)
			if extended {
				b = append(b, syncs...)
			}
		case 6:
			b = append(b, syncs...)
		case 7:
			if !leader {
				continue
			}
			// What follows it in one Sync group would be read-only: a known limit.
			b = appendParse(b, "", "DISCARD ALL")
			if rapid.Bool().Draw(t, "describe") {
				b = append(append(b, msg("D")...), syncs...)
			}
			b = append(append(append(b, msg("B")...), msg("E")...), syncs...)
		}
	}
	return append(b, syncs...)
}

// wild draws anything.
func wild(t *rapid.T) []byte {
	var b []byte
	menu := [][]byte{selects, syncs, flushes, copyEnd, copyGood, copyBad, copyFail, msg("B"), msg("D"), msg("E"), msg("C"), msg("F"),
		appendQuery(nil, "DISCARD ALL"), appendQuery(nil, "COPY t FROM STDIN"), appendQuery(nil, "SELECT fails()"), appendQuery(nil, "BEGIN"),
		appendParse(nil, "", "SELECT 1"), appendParse(nil, "", "COPY t FROM STDIN"), appendParse(nil, "", "SELECT nothing"), appendParse(nil, "d", "DISCARD ALL"),
		appendQuery(nil, "INSERT INTO t VALUES (1)"), appendParse(nil, "", "INSERT INTO t VALUES (1)"),
		appendQuery(nil, "SET fence.token='"+testToken+"'"), appendParse(nil, "", "SET fence.token='"+testToken+"'"),
		appendQuery(nil, "SET fence.election='a';SET fence.token='"+testToken+"'"),
		{'!', 0, 0, 0, 4}, {'Q', 0, 0, 0, 2}, appendQuery(nil, "SELECT '"+strings.Repeat("x", 5000)+"'")}
	for range rapid.IntRange(1, 25).Draw(t, "messages") {
		b = append(b, menu[rapid.IntRange(0, len(menu)-1).Draw(t, "message")]...)
	}
	return b
}

// converse runs a client's bytes through core and server, which take turns at random.
func converse(t *rapid.T, d *driver, m *modelServer, client []byte) {
	done := 0 // of d.up
	for {
		switch rapid.IntRange(0, 2).Draw(t, "turn") {
		case 0:
			n := min(len(client), rapid.IntRange(1, 40).Draw(t, "bytes"))
			d.client(client[:n])
			client = client[n:]
		case 1:
			m.step()
		case 2:
			n := min(len(m.sent), rapid.IntRange(1, 40).Draw(t, "bytes"))
			d.server(m.sent[:n])
			m.sent = m.sent[n:]
		}
		m.in = append(m.in, d.up[done:]...)
		done = len(d.up)
		if len(client) > 0 {
			continue
		}
		// To the end.
		for m.step() || len(m.sent) > 0 || done < len(d.up) {
			d.server(m.sent)
			m.sent = nil
			m.in = append(m.in, d.up[done:]...)
			done = len(d.up)
		}
		return
	}
}

// A client that keeps to the protocol sees through the proxy what it would see at a server
// that refuses a reader's writes, and in the end the tracker knows that all is at rest.
func TestStreamStaysInStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leader := rapid.Bool().Draw(t, "leader")
		client := tidy(t, leader)

		direct := newModel(false, !leader)
		direct.in = append(direct.in, client...)
		for direct.step() {
		}

		d := loggedIn()
		m := newModel(true, false)
		switch {
		case leader && rapid.Bool().Draw(t, "sidecar"):
			// It is bound before the first query, and nobody sees a difference.
			d.c.lead, d.decisions = &fakeLead{leads: true}, []string{"ok"}
			client = append(slices.Clone(selects), client...)
			direct = newModel(false, false)
			direct.in = append(direct.in, client...)
			for direct.step() {
			}
		case leader:
			d = leading()
			m.readOnly, m.reported = false, false
		}
		d.c.proofs = rapid.SampledFrom([][]string{nil, {"7:a0"}}).Draw(t, "proofs")
		converse(t, d, m, client)
		if got, want := outcome(d.down), outcome(direct.sent); got != want {
			t.Fatalf("client sends\n%s\nsees\n%s\nshould see\n%s", show(client, true), got, want)
		}
		if d.c.lead != nil && !d.c.isBound() {
			t.Fatal("the sidecar's session was not bound")
		}
		if len(d.in) > 0 {
			t.Fatalf("still waiting with %s", show(d.in, true))
		}
		if m.atRest() != (d.c.track.state() == idle) {
			t.Fatalf("client sends\n%s\nserver at rest: %v, tracker %+v", show(client, true), m.atRest(), d.c.track)
		}
	})
}

// A client that waits for each answer before it sends on gets each answer when the server gives
// it: no message of its own stays here for the sake of a later one.
func TestNothingWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leader := rapid.Bool().Draw(t, "leader")
		client := tidy(t, leader)
		direct := newModel(false, !leader)
		d := loggedIn()
		m := newModel(true, false)
		if leader {
			d = leading()
			m.readOnly, m.reported = false, false
		}
		d.c.proofs = rapid.SampledFrom([][]string{nil, {"7:a0"}}).Draw(t, "proofs")
		done := 0
		for rest := client; len(rest) > 0; {
			_, n := header(rest)
			direct.in = append(direct.in, rest[:1+n]...)
			for direct.step() {
			}
			d.client(rest[:1+n])
			rest = rest[1+n:]
			for done < len(d.up) || len(m.sent) > 0 {
				m.in = append(m.in, d.up[done:]...)
				done = len(d.up)
				for m.step() {
				}
				d.server(m.sent)
				m.sent = nil
			}
			if got, want := outcome(d.down), outcome(direct.sent); got != want {
				t.Fatalf("client sent\n%s\nsees\n%s\nshould see\n%s", show(client[:len(client)-len(rest)], true), got, want)
			}
		}
	})
}

// Whatever a client sends, a token stays here, a reader stays a reader, and no message
// waits for ever while the server is at rest.
func TestWildClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := loggedIn()
		m := newModel(true, false)
		if rapid.Bool().Draw(t, "leader") {
			d = leading()
			m.readOnly, m.reported = false, false
		}
		d.c.proofs = rapid.SampledFrom([][]string{nil, {"7:a0"}}).Draw(t, "proofs")
		d.c.prepared = false
		if rapid.Bool().Draw(t, "sidecar") {
			d.c.lead = &fakeLead{leads: rapid.Bool().Draw(t, "leads")}
		}
		d.decisions = rapid.SliceOfN(rapid.SampledFrom([]string{"ok", "stale"}), 0, 4).Draw(t, "decisions")
		client := wild(t)
		converse(t, d, m, client)
		if bytes.Contains(d.up, []byte(testToken)) || bytes.Contains(d.down, []byte(markerPrefix)) {
			t.Fatalf("client sends\n%s\nupstream\n%s", show(client, true), show(d.up, true))
		}
		if !d.c.isBound() && (strings.Contains(show(d.up, true), `"INSERT`) || strings.Contains(show(d.up, true), `"COPY`)) {
			t.Fatalf("a write went upstream\n%s", show(d.up, true))
		}
		if len(d.in) > 0 && !d.clientOver && m.atRest() && (d.c.hold() || d.c.drains()) {
			t.Fatalf("client sends\n%s\nwaits for ever with\n%s\ntracker %+v", show(client, true), show(d.in, true), d.c.track)
		}
	})
}

func TestPipelinedSyncsCostNothing(t *testing.T) {
	var tr tracker
	for range 1_000_000 {
		tr.sent('S')
	}
	for range 500_000 {
		tr.sent('P')
		tr.sent('S')
	}
	if len(tr.q) != 2 {
		t.Errorf("%d units", len(tr.q))
	}
	for i := range 1_500_000 {
		if tr.state() != willDrain {
			t.Fatalf("at rest after %d", i)
		}
		if i >= 1_000_000 {
			tr.replied('1')
		}
		tr.ready()
	}
	if tr.state() != idle {
		t.Error("not at rest")
	}
	if s := fmt.Sprint(tr.len()); s != "0" {
		t.Error(s)
	}
}

// Messages that go through cost no memory, in either direction.
func TestHotPathDoesNotAllocate(t *testing.T) {
	d := leading()
	client := messages(t, `Q "UPDATE accounts SET balance = balance + 1 WHERE id = 7"
		P "" "SELECT 1"
		B
		D
		E
		S`)
	server := []byte("T\x00\x00\x00\x06\x00\x00D\x00\x00\x00\x06\x00\x00C\x00\x00\x00\x0dSELECT 1\x00Z\x00\x00\x00\x05I" +
		"1\x00\x00\x00\x042\x00\x00\x00\x04n\x00\x00\x00\x04C\x00\x00\x00\x0dSELECT 1\x00Z\x00\x00\x00\x05I")
	if n := testing.AllocsPerRun(1000, func() {
		if st := d.c.client(client); st.pass != len(client) || st.next != read {
			t.Fatalf("%+v", st)
		}
		if st := d.c.server(server); st.pass != len(server) || st.next != read {
			t.Fatalf("%+v", st)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if d.c.track.state() != idle {
		t.Errorf("%+v", d.c.track)
	}
}

func BenchmarkCore(b *testing.B) {
	d := leading()
	client := appendQuery(nil, "UPDATE pgbench_accounts SET abalance = abalance + 1234 WHERE aid = 4321;")
	server := []byte("C\x00\x00\x00\x0dUPDATE 1\x00Z\x00\x00\x00\x05I")
	b.ReportAllocs()
	for b.Loop() {
		d.c.client(client)
		d.c.server(server)
	}
}
