package pg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/policy"
)

// A packet is a connection of which only the reading matters.
type packetConn struct {
	net.Conn
	r io.Reader
}

func (c packetConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// A start-up packet is read whole or refused; what goes on starts read-only, without token.
func FuzzStartup(f *testing.F) {
	for _, params := range [][]string{
		{"user", "app", "fence.token", testToken, "_pq_.x", "1"},
		{"user", "app", "options", "-c fence.token=" + testToken + " --default-transaction-read-only=off -ec work_mem=1MB"},
		{"user", "app", "Default_Transaction_Read_Only", "off", "options", `-c a=\\\ b -B 3`, "options", "-c transaction_read_only=off"},
		{"user", "app", "replication", "database", "FENCE.ELECTION", "orders"},
	} {
		f.Add(startPacket(v3, params...))
	}
	f.Add(startPacket(v3|2, "user", "app"))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		packet, err := readPacket(packetConn{r: bytes.NewReader(b[4:])}, [4]byte(b))
		if err != nil {
			return
		}
		s, err := readStartup(packet)
		if err != nil {
			if e := new(startupError); errors.As(err, &e) && len(report{severity: "FATAL", code: e.code, message: e.message}.append(nil)) > 8*maxStartup {
				t.Error("a long error")
			}
			return
		}
		if int(binary.BigEndian.Uint32(s.packet)) != len(s.packet) || !bytes.Equal(s.packet[4:8], packet[4:8]) {
			t.Errorf("header %x of %x", s.packet[:8], packet[:8])
		}
		params, err := readParams(s.packet[8:])
		if err != nil {
			t.Fatal(err)
		}
		options := ""
		for i, p := range params {
			switch name := strings.ToLower(p[0]); {
			case p[0] == "options":
				options = p[1]
				if i != len(params)-1 {
					t.Error("options are not the last")
				}
			case strings.HasPrefix(name, "fence."), name == "default_transaction_read_only", name == "transaction_read_only":
				t.Errorf("%q goes on", p)
			}
		}
		words := splitOptions(options)
		if !slices.Equal(words[len(words)-2:], []string{"-c", "default_transaction_read_only=on"}) {
			t.Errorf("options end in %q", words)
		}
		settings := make(map[string]int)
		kept, ok := takeOptions(words, func(name, value string) bool {
			settings[name]++
			if name == "fence.token" && value != placeholder || name == "default_transaction_read_only" && value != "on" {
				t.Errorf("%s=%s goes on", name, value)
			}
			return false
		})
		if !ok || !slices.Equal(kept, words) || settings["default_transaction_read_only"] != 1 || settings["fence.token"] != 1 || settings["transaction_read_only"] != 0 {
			t.Errorf("options %q, again %q", words, kept)
		}
		if len(s.token) > 15 && !strings.Contains(placeholder, s.token) {
			rest := strings.ReplaceAll(string(s.packet), placeholder, "")
			for _, p := range params[:len(params)-1] {
				if strings.Contains(p[0]+p[1], s.token) {
					return // the same text stands elsewhere too
				}
			}
			if strings.Contains(rest, s.token) && strings.Count(string(packet), s.token) == 1 {
				t.Errorf("the token goes on: %q", s.packet)
			}
		}
	})
}

// What is read as a Query or Parse an independent decoder reads in the same way, and what is not
// is replaced by something without text that it cannot read either.
func FuzzStatement(f *testing.F) {
	f.Add(byte('Q'), []byte("SELECT 1\x00"))
	f.Add(byte('P'), []byte("a\x00SELECT 1\x00\x00\x01\x00\x00\x00\x07"))
	f.Add(byte('P'), []byte("a\x00SELECT 1\x00\x00\x02\x00\x00\x00\x07"))
	f.Add(byte('Q'), []byte("SELECT 1\x00x"))
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		if typ != 'Q' {
			typ = 'P'
		}
		name, text, ok := statement(typ, body)
		if !ok {
			bad := malformed(typ, body)
			if gotType, n := header(bad); gotType != typ || n != len(bad)-1 {
				t.Errorf("%q", bad)
			}
			if _, text, ok := statement(typ, bad[5:]); ok || len(text) > 0 {
				t.Errorf("%q can be read, for %q", bad, body)
			}
			return
		}
		if typ == 'Q' {
			var q pgproto3.Query
			if err := q.Decode(body); err != nil || q.String != string(text) {
				t.Errorf("%q: %q %v", body, q.String, err)
			}
			return
		}
		var p pgproto3.Parse
		if err := p.Decode(body); err != nil || p.Query != string(text) || p.Name != string(name) {
			t.Errorf("%q: %+v %v", body, p, err)
		}
	})
}

// An error of any layout is read without harm, and a marker in it gives a well-formed report.
func FuzzErrorFields(f *testing.F) {
	c := newDriver().c
	f.Add([]byte("SERROR\x00VERROR\x00C42601\x00Msyntax error at or near \"" + c.nonce + "01_insert\"\x00P1\x00\x00"))
	f.Add([]byte("SERROR\x00C42601\x00M" + c.nonce + "99_" + strings.Repeat("a", 70)))
	f.Add([]byte("M" + c.nonce + "3"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, code := range []byte("SVCMP\x00\xff") {
			_ = field(body, code)
		}
		r, ok := c.refusedError(body)
		if !ok {
			return
		}
		b := r.append(nil)
		var e pgproto3.ErrorResponse
		if err := e.Decode(b[5:]); err != nil || e.Code != r.code || len(e.Code) != 5 || e.Message == "" || !isASCII(b[5:]) {
			t.Errorf("%q: %v", b, err)
		}
	})
}

// Any text can be said.
func FuzzReport(f *testing.F) {
	f.Add("message", "d\u00e9tail", "h\xffint\x00")
	f.Fuzz(func(t *testing.T, message, detail, hint string) {
		r := report{severity: "FATAL", code: "FP001", message: message, detail: detail, hint: hint}
		b := r.append(nil)
		if _, n := header(b); n != len(b)-1 || !isASCII(b[5:]) {
			t.Errorf("%q", b)
		}
		var e pgproto3.ErrorResponse
		if err := e.Decode(b[5:]); err != nil || e.Message != ascii(message) || e.Detail != ascii(detail) || e.Hint != ascii(hint) {
			t.Errorf("%q: %+v %v", b, e, err)
		}
	})
}

// The scan of a leader's texts misses nothing that the parser would find. What escapes in strings
// spell it cannot see, nor what is computed.
func FuzzScan(f *testing.F) {
	for _, s := range []string{"SET fence.token='x'", "PREPARE/**/TRANSACTION 'x'", "set \"fence\" /* */ . token to 'x'", "DISCARD ALL", "RESET ALL",
		`SET U&"\0066ence".token='x'`, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SELECT set_config('fence.token', 'x', false)",
		"SET default_transaction_read_only=on", "ALTER ROLE app RESET ALL", "SET default_transaction_read_only TO DEFAULT", "prepare--\ntransaction 'a'"} {
		f.Add([]byte(s))
	}
	sql := policy.NewSQL(0)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 || bytes.IndexByte(text, 0) >= 0 {
			return
		}
		h, v := scan(text), sql.Inspect(text)
		escaped := bytes.IndexByte(text, '\\') >= 0
		switch {
		case v.Fence == policy.FenceSets && h&hintFence == 0,
			v.Fence != policy.FenceUnused && !escaped && h&hintFence == 0,
			v.Prepares2PC && h&hintPrepare == 0,
			(v.Resets || v.SetsReadOnly) && !escaped && h&hintReset == 0:
			t.Errorf("%q: hints %b, verdict %+v", text, h, v)
		}
	})
}

// What is let through as a replication command is an error as SQL: whichever of the two a server
// takes it for, nothing is written.
func FuzzReplicates(f *testing.F) {
	for _, s := range []string{"IDENTIFY_SYSTEM", "BASE_BACKUP (TARGET 'client', LABEL \"x\")", "CREATE_REPLICATION_SLOT \"a\" TEMPORARY LOGICAL b",
		"START_REPLICATION SLOT a LOGICAL 0/0 (proto_version '1'); DROP_REPLICATION_SLOT a", "TIMELINE_HISTORY 1"} {
		f.Add([]byte(s))
	}
	sql := policy.NewSQL(0)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 || bytes.IndexByte(text, 0) >= 0 {
			return
		}
		command, reads, name := replicates(text)
		if !command {
			return
		}
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("%q: %q", text, name)
		}
		if v := sql.Inspect(text); reads && v.Reason != policy.SQLUnparsed && v.Reason != policy.SQLTooComplex {
			t.Errorf("%q reads, and as SQL: %+v", text, v)
		}
		// Its words are all that there is.
		for rest := text; ; {
			var w word
			before := len(rest)
			if w, rest = nextWord(rest); w.kind == 0 {
				break
			}
			if len(rest) >= before {
				t.Fatalf("%q: no end", text)
			}
		}
	})
}

// The tracker's belief stays bounded and whole, whatever is sent and answered.
func FuzzTracker(f *testing.F) {
	f.Add([]byte("PBES\x80\x81\x82QPS"))
	f.Add([]byte("QcSSdcfS\x83\x84\x80"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		var tr tracker
		sent := 0
		for _, op := range ops {
			if op < 0x80 {
				sent++
				tr.sent("PBDECQSFHcfdX"[int(op)%13])
			} else {
				switch op %= 16; op {
				case 0, 1:
					tr.ready()
				case 2:
					tr.failed(false)
				case 3:
					tr.failed(true)
				default:
					tr.replied("G123nTIsCWVtA"[op-4])
				}
			}
			n := uint64(0)
			for _, u := range tr.q[tr.head:] {
				if u.n == 0 {
					t.Fatalf("%q: an empty unit: %+v", ops, tr)
				}
				n += u.n
			}
			if n > uint64(sent) || tr.tail > uint64(sent) {
				t.Fatalf("%q: %+v of %d messages", ops, tr, sent)
			}
			if s := tr.state(); s == idle && (n > 0 || tr.tail > 0) {
				t.Fatalf("%q: idle: %+v", ops, tr)
			}
		}
	})
}

// No text makes the parser crash, and a verdict is the same at every look.
func FuzzPolicy(f *testing.F) {
	for _, s := range []string{"SELECT 1", "SELECT " + strings.Repeat("(", 4000), strings.Repeat("CASE WHEN ", 500), "SELECT '" + strings.Repeat("[", 5000), "$$",
		strings.Repeat("NOT ", 3500) + "true", "SELECT " + strings.Repeat("-", 4000) + "1", "SELECT 1" + strings.Repeat("+1", 3000), strings.Repeat("EXPLAIN ", 3500)} {
		f.Add([]byte(s), uint16(1))
		f.Add([]byte(s[:min(len(s), 12)]), uint16(4000))
	}
	f.Fuzz(func(t *testing.T, text []byte, times uint16) {
		// Nesting is what crashes parsers: so each text comes many times too.
		text = bytes.Repeat(text, 1+int(times)%4096)
		if len(text) > 32<<10 {
			return
		}
		v := policy.NewSQL(0).Inspect(text)
		if w := policy.NewSQL(0).Inspect(text); w.Reason != v.Reason || w.What != v.What || w.Fence != v.Fence || w.Resets != v.Resets {
			t.Errorf("%.100q: %+v, then %+v", text, v, w)
		}
		if len(v.What) > 24 || v.Reason == policy.SQLReads && v.Prepares2PC {
			t.Errorf("%.100q: %+v", text, v)
		}
	})
}
