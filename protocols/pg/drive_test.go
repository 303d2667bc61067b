package pg

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgproto3/v2"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
	"github.com/fenceproxy/fenceproxy/protocols/pg/internal/scram"
)

// A driver carries out a core's steps with buffers in the place of connections.
type driver struct {
	c          *core
	in, from   []byte // from the client, from the server
	up, down   []byte // to the server, to the client
	clientOver bool
	serverOver bool
	decisions  []string // answers to admit and ask, in order
	asked      int
	verifier   string // answers verify
	verifies   int
	malformed  *guard.Refusal // of the credential at connect
	same       bool           // what verified said
	judged     int
	bound      int // of up, went before the bind; -1 before that
	steps      int
	idle       int // steps in a row that did nothing
}

var testToken = "0123456789abcdef-token"

func newDriver() *driver {
	nonces := 0
	newNonce := func() string { nonces++; return fmt.Sprintf("nonce%d", nonces) }
	return &driver{bound: -1, c: &core{newNonce: newNonce, sql: policy.NewSQL(0), nonce: markerPrefix + "00112233aabbccdd_", maxInspect: 4096,
		election: "orders", elections: func(id string) bool { return id != "forbidden" }}}
}

// loggedIn is a driver past its login, as a reader.
func loggedIn() *driver {
	d := newDriver()
	d.server([]byte("R\x00\x00\x00\x08\x00\x00\x00\x00"))
	d.server(appendMessage(nil, 'S', "default_transaction_read_only", "on"))
	d.server([]byte("K\x00\x00\x00\x0c\x00\x00\x00\x07\x00\x00\x00\x09"))
	d.server([]byte("Z\x00\x00\x00\x05I"))
	d.down = nil
	return d
}

func testTerm() guard.Term {
	t, _ := election.ParseToken(testToken)
	return guard.Term{Election: "orders", Owner: "w1", Number: 7, Digest: t.Digest()}
}

// leading is a driver past its login, bound.
func leading() *driver {
	d := newDriver()
	d.decisions = []string{"ok"}
	d.c.token, _ = election.ParseToken(testToken)
	d.server([]byte("R\x00\x00\x00\x08\x00\x00\x00\x00"))
	d.server(appendMessage(nil, 'S', "default_transaction_read_only", "on"))
	d.server([]byte("K\x00\x00\x00\x0c\x00\x00\x00\x07\x00\x00\x00\x09"))
	d.server([]byte("Z\x00\x00\x00\x05I"))
	d.injected()
	d.up, d.down, d.bound = nil, nil, 0
	return d
}

// injected is the server's answer to an injection.
func (d *driver) injected() {
	for range d.c.inject.owed {
		d.server(appendMessage(nil, 'C', "SET"))
	}
	if !d.c.wish {
		d.server(appendMessage(nil, 'S', "default_transaction_read_only", "off"))
	}
	d.server([]byte("Z\x00\x00\x00\x05I"))
}

func (d *driver) client(b []byte) {
	d.in = append(d.in, b...)
	d.turnClient()
}

func (d *driver) server(b []byte) {
	d.from = append(d.from, b...)
	d.turnServer()
	d.turnClient()
	d.turnServer()
}

// check looks at a step.
func (d *driver) check(st step, side []byte) {
	d.steps++
	switch {
	case st.pass < 0 || st.drop < 0 || st.pass+st.drop > len(side):
		panic(fmt.Sprintf("%d and %d of %d bytes", st.pass, st.drop, len(side)))
	case st.next == read && st.need > max(d.c.maxInspect, maxHeld)+5:
		panic(fmt.Sprintf("needs %d bytes", st.need))
	case st.next == again && st.pass+st.drop == 0 && len(st.write) == 0:
		if d.idle++; d.idle > 3 {
			panic("goes round in circles")
		}
		return
	}
	d.idle = 0
}

func (d *driver) turnClient() {
	for !d.clientOver {
		st := d.c.client(d.in)
		d.check(st, d.in)
		d.up = append(append(d.up, d.in[:st.pass]...), st.write...)
		d.in = d.in[st.pass+st.drop:]
		switch st.next {
		case read:
			if len(d.in) < st.need {
				return
			}
		case wait:
			return
		case judge:
			d.judged++
			d.c.inform(st.text, d.c.sql.Inspect(st.text), d.c.sql.Targets(st.text))
		case admit:
			if r := d.decide(); r != nil {
				d.c.notBound(r)
			} else {
				d.bound = len(d.up)
				d.c.bound(testTerm(), true)
			}
		case stop:
			d.clientOver = true
			d.in = nil
		}
	}
}

func (d *driver) turnServer() {
	for !d.serverOver {
		st := d.c.server(d.from)
		d.check(st, d.from)
		d.down = append(append(d.down, d.from[:st.pass]...), st.write...)
		d.from = d.from[st.pass+st.drop:]
		switch st.next {
		case read:
			if len(d.from) < st.need {
				return
			}
		case admit:
			if !d.c.asks(d.malformed) {
				d.down = append(d.down, d.c.notBound(d.malformed)...)
			} else if r := d.decide(); r != nil {
				d.down = append(d.down, d.c.notBound(r)...)
			} else {
				d.bound = len(d.up)
				d.up = append(d.up, d.c.bound(testTerm(), true)...)
			}
		case verify:
			d.verifies++
			v, _ := scram.ParseVerifier(d.verifier)
			d.same = d.c.verified(v)
		case ask:
			d.down = append(d.down, d.c.severed(d.decide())...)
		case stop:
			d.serverOver = true
			d.from = nil
		}
	}
}

// decide answers for the guard: "ok", or a refusal's reason.
func (d *driver) decide() *guard.Refusal {
	d.asked++
	if len(d.decisions) == 0 {
		return &guard.Refusal{Reason: guard.Stale, Election: d.c.election, Held: 7, Rules: 9, Leader: "w2", Detail: "undecided"}
	}
	s := d.decisions[0]
	d.decisions = d.decisions[1:]
	if s == "ok" {
		return nil
	}
	return &guard.Refusal{Reason: guard.Stale, Election: d.c.election, Held: 7, Rules: 9, Leader: "w2"}
}

// checkInvariants looks at everything that went either way.
func (d *driver) checkInvariants(t *testing.T) {
	t.Helper()
	if bytes.Contains(d.up, []byte(testToken)) {
		t.Errorf("a token went upstream: %q", d.up)
	}
	if bytes.Contains(d.down, []byte(markerPrefix)) {
		t.Errorf("a marker went to the client: %q", d.down)
	}
	if n := strings.Count(show(d.down, false), "E FATAL"); n > 1 {
		t.Errorf("%d FATALs", n)
	}
}

// checkDecodes has an independent decoder read what went either way.
func (d *driver) checkDecodes(t *testing.T) {
	t.Helper()
	front := pgproto3.NewFrontend(pgproto3.NewChunkReader(bytes.NewReader(d.down)), nil)
	for {
		if _, err := front.Receive(); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("what the client got: %v\n%q", err, d.down)
			}
			break
		}
	}
	back := pgproto3.NewBackend(pgproto3.NewChunkReader(bytes.NewReader(d.up)), nil)
	for {
		if _, err := back.Receive(); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("what the server got: %v\n%q", err, d.up)
			}
			break
		}
	}
}

// encode turns a line of a transcript into a message: a type and its fields, quoted or
// plain. It is the inverse of show.
func encode(line string, fromServer bool) ([]byte, error) {
	f, err := testenv.CaseWords(line)
	if err != nil {
		return nil, err
	}
	typ := f[0]
	f = f[1:]
	if typ == "raw" {
		return hex.DecodeString(strings.Join(f, ""))
	}
	t := typ[0]
	switch {
	case fromServer && t == 'Z':
		return append([]byte("Z\x00\x00\x00\x05"), f[0][0]), nil
	case fromServer && t == 'R':
		return []byte("R\x00\x00\x00\x08\x00\x00\x00\x00"), nil
	case fromServer && t == 'K':
		return []byte("K\x00\x00\x00\x0c\x00\x00\x00\x07\x00\x00\x00\x09"), nil
	case fromServer && (t == 'G' || t == 'H' || t == 'W'):
		return []byte{t, 0, 0, 0, 7, 0, 0, 0}, nil
	case fromServer && t == 'T':
		return []byte("T\x00\x00\x00\x06\x00\x00"), nil
	case fromServer && t == 'D' && len(f) == 1:
		b := binary.BigEndian.AppendUint32([]byte{t}, uint32(4+2+4+len(f[0])))
		b = binary.BigEndian.AppendUint32(append(b, 0, 1), uint32(len(f[0])))
		return append(b, f[0]...), nil
	case fromServer && t == 'D':
		return []byte("D\x00\x00\x00\x06\x00\x00"), nil
	case fromServer && t == 't':
		return []byte("t\x00\x00\x00\x06\x00\x00"), nil
	case fromServer && t == 'V':
		return []byte("V\x00\x00\x00\x0c\x00\x00\x00\x04\x00\x00\x00\x07"), nil
	case fromServer && (t == 'E' || t == 'N'):
		return appendMessage(nil, t, "S"+f[0], "V"+f[0], "C"+f[1], "M"+f[2], ""), nil
	case !fromServer && t == 'P':
		return appendParse(nil, f[0], f[1]), nil
	case !fromServer && t == 'B':
		return append(appendMessage(nil, 'B', "", "")[:0], 'B', 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0), nil
	case !fromServer && t == 'E':
		return append([]byte("E\x00\x00\x00\x09\x00"), 0, 0, 0, 0), nil
	case !fromServer && (t == 'D' || t == 'C'):
		return append([]byte{t, 0, 0, 0, 6}, 'S', 0), nil
	case !fromServer && t == 'F':
		oid := uint64(1)
		if len(f) > 0 {
			oid, _ = strconv.ParseUint(f[0], 10, 32)
		}
		return append(binary.BigEndian.AppendUint32([]byte("F\x00\x00\x00\x0e"), uint32(oid)), 0, 0, 0, 0, 0, 0), nil
	case t == 'd':
		b := binary.BigEndian.AppendUint32([]byte{t}, uint32(4+len(f[0])))
		return append(b, f[0]...), nil
	}
	return appendMessage(nil, t, f...), nil
}

// show writes a stream of messages one a line.
func show(b []byte, toServer bool) string {
	var out strings.Builder
	for len(b) > 0 {
		if len(b) < 5 {
			fmt.Fprintf(&out, "raw %x\n", b)
			break
		}
		typ, n := header(b)
		if n < 4 || 1+n > len(b) {
			fmt.Fprintf(&out, "raw %x\n", b)
			break
		}
		body := b[5 : 1+n]
		b = b[1+n:]
		fmt.Fprintf(&out, "%c", typ)
		switch {
		case !toServer && (typ == 'E' || typ == 'N'):
			fmt.Fprintf(&out, " %s %s %q", field(body, 'S'), field(body, 'C'), field(body, 'M'))
			for _, f := range []byte("DH") {
				if v := field(body, f); v != nil {
					fmt.Fprintf(&out, " %c:%q", f, v)
				}
			}
		case !toServer && typ == 'Z':
			fmt.Fprintf(&out, " %s", body)
		case !toServer && (typ == 'R' || typ == 'K' || typ == 'G' || typ == 'H' || typ == 'W' || typ == 'T' || typ == 'D' || typ == 't'):
		case toServer && typ == 'P':
			name, text, _ := parseText(body)
			fmt.Fprintf(&out, " %q %q", name, text)
		case toServer && typ == 'F':
			fmt.Fprintf(&out, " %d", binary.BigEndian.Uint32(body))
		case toServer && (typ == 'B' || typ == 'E' || typ == 'D' || typ == 'C'):
		case typ == 'd':
			fmt.Fprintf(&out, " %q", body)
		default:
			for _, s := range bytes.Split(bytes.TrimSuffix(body, []byte{0}), []byte{0}) {
				if len(body) > 0 {
					fmt.Fprintf(&out, " %q", s)
				}
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}
