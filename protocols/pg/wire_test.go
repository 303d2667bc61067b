package pg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgproto3/v2"
	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// startPacket makes a StartupMessage.
func startPacket(version uint32, params ...string) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), version)
	for _, p := range params {
		b = append(append(b, p...), 0)
	}
	b = append(b, 0)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

const v3 = 3 << 16

// A peer is a client that speaks bytes.
type peer struct {
	t *testing.T
	c net.Conn
}

func dial(t *testing.T, addr string) *peer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &peer{t, c}
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	if _, err := p.c.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// message reads one message whole.
func (p *peer) message() []byte {
	p.t.Helper()
	b, err := readMessage(p.c)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

func readMessage(r io.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	_, n := header(head)
	b := append(head, make([]byte, n-4)...)
	_, err := io.ReadFull(r, b[5:])
	return b, err
}

// until reads up to and with a message of a type.
func (p *peer) until(typ byte) []byte {
	p.t.Helper()
	var all []byte
	for {
		m := p.message()
		all = append(all, m...)
		if m[0] == typ {
			return all
		}
		if m[0] == 'E' && typ != 'E' && bytes.Contains(m, []byte("SFATAL")) {
			p.t.Fatalf("%s", show(m, false))
		}
	}
}

// rest reads to the end.
func (p *peer) rest() []byte {
	p.t.Helper()
	b, err := io.ReadAll(p.c)
	if err != nil {
		p.t.Fatalf("reading to the end: %v", err)
	}
	return b
}

func (r *rig) peer(direct bool, params ...string) *peer {
	r.t.Helper()
	addr := r.addr
	if direct {
		addr = r.pg.Addr
	}
	p := dial(r.t, addr)
	p.send(startPacket(v3, append([]string{"user", "app", "database", r.db}, params...)...))
	p.until('Z')
	return p
}

func messages(t *testing.T, lines string) []byte {
	t.Helper()
	var b []byte
	for _, l := range strings.Split(lines, "\n") {
		if l = strings.TrimSpace(l); l == "" {
			continue
		}
		m, err := encode(l, false)
		if err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		b = append(b, m...)
	}
	return b
}

// The same bytes to the server and, by a leader, to the proxy: the same comes back, and
// both close in the same way.
func TestSameAsTheServer(t *testing.T) {
	r := newRig(t, nil)
	r.guard.noPrep = true
	token := r.guard.lead().Reveal()
	for name, c := range map[string]struct {
		send string
		fin  bool // end by FIN instead of Terminate
	}{
		"P1 skipped query": {send: `P "" "SELECT nothing"
			Q "SELECT 1"
			S`},
		"P2 insert and terminate": {send: `Q "INSERT INTO t VALUES (1)"`},
		"P2 half close":           {send: `Q "SELECT pg_sleep(0.1), generate_series(1,3)"`, fin: true},
		"P3 failing execute": {send: `P "" "SELECT 1/0"
			B
			E
			C
			S`},
		"P4 failing bind": {send: `P "" "SELECT $1::int"
			B`, fin: true},
		"P5 executes": {send: `P "" "SELECT generate_series(1,3)"
			B
			E
			E
			D
			S`},
		"P6 flush": {send: `P "" "SELECT 1"
			H
			B
			H
			E
			H
			S`},
		"P7 deallocate": {send: `P "a" "SELECT 1"
			Q "DEALLOCATE ALL"
			P "a" "SELECT 2"
			B
			S`},
		"P8 close unknown": {send: `P "x" "SELECT nothing"
			S
			C
			S`},
		"P9 fatal in a pipeline": {send: `Q "SELECT 1"
			Q "SELECT pg_terminate_backend(pg_backend_pid())"
			Q "SELECT 2"`},
		"P10 copy fails while it streams": {send: `Q "COPY t FROM STDIN"
			d "not a number\n"
			d "2\n"
			c
			Q "SELECT 1"`},
		"copy": {send: `Q "COPY t FROM STDIN"
			d "10\tten\n"
			d "11\televen\n"
			c
			Q "COPY t TO STDOUT"
			Q "DELETE FROM t"`},
		"copy extended, as libpq": {send: `P "" "COPY t FROM STDIN"
			B
			D
			E
			S
			d "10\tten\n"
			c
			S
			Q "DELETE FROM t"`},
		"copy fail": {send: `Q "COPY t FROM STDIN"
			d "10\tten\n"
			f "never mind"
			Q "SELECT 1"`},
		"query inside copy": {send: `Q "COPY t FROM STDIN"
			Q "SELECT 1"
			c
			Q "SELECT 2"`},
		"transaction": {send: `Q "BEGIN"
			Q "INSERT INTO t VALUES (1)"
			Q "SELECT nothing"
			Q "SELECT 1"
			Q "COMMIT"
			Q "SELECT count(*) FROM t"`},
		"several in one": {send: `Q "INSERT INTO t VALUES (1); DELETE FROM t; SELECT 1; SELECT 1/0; SELECT 2"`},
		"empty":          {send: `Q ""`},
		"discard, then write, in one flight": {send: `Q "DISCARD ALL"
			Q "INSERT INTO t VALUES (1)"
			Q "BEGIN; RESET ALL"
			Q "INSERT INTO t VALUES (2)"
			Q "COMMIT"
			Q "INSERT INTO t VALUES (3)"
			P "" "DISCARD ALL"
			B
			E
			S
			P "" "INSERT INTO t VALUES (4)"
			B
			E
			S
			Q "SELECT * FROM t ORDER BY a"
			Q "DELETE FROM t"`},
		"function call":        {send: `F`},
		"unknown message type": {send: `raw 21000000084142434445`, fin: true},
		"unknown type later": {send: `Q "SELECT 1"
			raw 70000000087365637200`, fin: true},
		"length 3":          {send: `raw 5100000003`, fin: true},
		"length 0":          {send: `raw 5000000000`, fin: true},
		"negative length":   {send: `raw 51ffffff00`, fin: true},
		"2 GB":              {send: `raw 517fffffff41414141`, fin: true},
		"2 GB of data":      {send: `raw 647fffffff41414141`, fin: true},
		"Sync of 2 MB":      {send: `raw 5300200000`, fin: true},
		"unterminated text": {send: `raw 510000000953454c4543`},
		"large": {send: `Q "SELECT '` + strings.Repeat("x", 300_000) + `'"
			P "" "SELECT '` + strings.Repeat("y", 1_200_000) + `'"
			B
			E
			S`},
	} {
		t.Run(name, func(t *testing.T) {
			bytes := messages(t, c.send)
			run := func(direct bool, piece int, params ...string) string {
				r.t = t
				mustExec(t, r.admin, "DELETE FROM t")
				p := r.peer(direct, params...)
				got := make(chan []byte, 1)
				go func() {
					b, err := io.ReadAll(p.c)
					if err != nil && !isReset(err) {
						t.Error(err)
					}
					got <- b
				}()
				all := bytes
				if !c.fin {
					all = append(all[:len(all):len(all)], 'X', 0, 0, 0, 4)
				}
				for len(all) > 0 {
					n := len(all)
					if piece > 0 && len(bytes) < 2000 {
						n = min(n, piece)
					}
					if _, err := p.c.Write(all[:n]); err != nil {
						break // the server closed already
					}
					all = all[n:]
				}
				if c.fin {
					_ = p.c.(*net.TCPConn).CloseWrite()
				}
				b := <-got
				_ = p.c.Close()
				return outcome(b) + "rows " + r.rows()
			}
			want := run(true, 0)
			for _, piece := range []int{0, 1, 3} {
				if got := run(false, piece, "fence.token", token); got != want {
					t.Errorf("in pieces of %d: got\n%.2000s\nwant\n%.2000s", piece, got, want)
				}
			}
		})
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && strings.Contains(op.Err.Error(), "reset")
}

// P15: the whole Sync group of a refused write aborts, with one error.
func TestRefusalInPipelineAbortsItsGroup(t *testing.T) {
	r := newRig(t, nil)
	p := r.peer(false)
	p.send(messages(t, `P "" "SELECT 1"
		B
		E
		P "" "INSERT INTO t VALUES (1)"
		B
		E
		P "" "SELECT 2"
		B
		E
		S
		Q "SELECT 3"
		Q "UPDATE t SET a = 1; SELECT 4"
		P "x" "SELECT 5"
		S
		Q "BEGIN"
		Q "SELECT nothing"
		Q "DELETE FROM t"
		Q "ROLLBACK"
		F
		X`))
	got := outcome(p.rest())
	want := `1
2
D
C "SELECT 1"
E ERROR 25006
Z I
T
D
C "SELECT 1"
Z I
E ERROR 25006
Z I
1
Z I
C "BEGIN"
Z T
E ERROR 42703
Z E
E ERROR 25006
Z E
C "ROLLBACK"
Z I
E ERROR 25006
Z I
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// P17: BackendKeyData passes unchanged, so a client knows its own notifications.
func TestOwnNotifications(t *testing.T) {
	r := newRig(t, nil)
	c := r.leader()
	reader := r.connect("")
	mustExec(t, c, "LISTEN a")
	mustExec(t, reader, "LISTEN a")
	wantError(t, try(t, reader, "NOTIFY a"), "25006")
	mustExec(t, c, "NOTIFY a, 'own'")
	for _, conn := range []*pgx.Conn{c, reader} {
		n, err := conn.WaitForNotification(t.Context())
		if err != nil || n.PID != c.PgConn().PID() || n.Payload != "own" {
			t.Errorf("%+v %v", n, err)
		}
	}
}

// P13: the start-up packet.
func TestStartupPackets(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StartupTimeout = 2 * time.Second })
	token := r.guard.lead().Reveal()
	t.Run("in single bytes", func(t *testing.T) {
		p := dial(t, r.addr)
		for _, b := range append([]byte{0, 0, 0, 8, 4, 210, 22, 48}, startPacket(v3, "user", "app", "database", r.db, "fence.token", token)...) {
			p.send([]byte{b})
		}
		if m := [1]byte{}; true {
			if _, err := io.ReadFull(p.c, m[:]); err != nil || m[0] != 'N' {
				t.Fatal(m, err)
			}
		}
		p.until('Z')
		p.send(appendQuery(nil, "SHOW fence.status"))
		if b := p.until('Z'); !bytes.Contains(b, []byte("bound")) {
			t.Errorf("%q", b)
		}
	})
	for name, c := range map[string]struct {
		packet []byte
		says   string
	}{
		"length 0":         {[]byte{0, 0, 0, 0}, "08P01"},
		"length 3":         {[]byte{0, 0, 0, 3}, "08P01"},
		"length 7":         {[]byte{0, 0, 0, 7, 0, 3, 0}, "08P01"},
		"negative length":  {[]byte{0xff, 0xff, 0xff, 0xf0, 0, 3, 0, 0}, "08P01"},
		"2 GB":             {[]byte{0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0}, "08P01"},
		"HTTP":             {[]byte("GET / HTTP/1.1\r\n\r\n"), "08P01"},
		"protocol 2":       {startPacket(2<<16, "user", "app"), "0A000"},
		"no terminator":    {append([]byte{0, 0, 0, 12, 0, 3, 0, 0}, "user"...), "08P01"},
		"replication":      {startPacket(v3, "user", "app", "replication", "database"), "0A000"},
		"unknown fence.x":  {startPacket(v3, "user", "app", "fence.tokn", "x"), "42704"},
		"options":          {startPacket(v3, "user", "app", "options", "-c fence.token"), "22023"},
		"options, unknown": {startPacket(v3, "user", "app", "options", "-Z x"), "22023"},
		"no such role":     {startPacket(v3, "user", "nobody_of_that_name"), "28000"},
		"empty":            {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, r.addr)
			p.send(c.packet)
			if c.packet == nil {
				_ = p.c.(*net.TCPConn).CloseWrite()
			}
			s := show(p.rest(), false)
			if c.says == "" && s != "" || !strings.Contains(s, "E FATAL "+c.says) && c.says != "" {
				t.Errorf("says %q", s)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		p := dial(t, r.addr)
		if b := p.rest(); len(b) != 0 {
			t.Errorf("%q", b)
		}
	})
}

// However a client asks for read-write at connect, it starts read-only.
func TestStartsReadOnly(t *testing.T) {
	r := newRig(t, nil)
	mustExec(t, r.admin, "DO $$ BEGIN CREATE ROLE eager LOGIN SUPERUSER; EXCEPTION WHEN duplicate_object THEN END $$")
	mustExec(t, r.admin, "ALTER ROLE eager SET default_transaction_read_only = off")
	for _, params := range [][]string{
		{},
		{"default_transaction_read_only", "off"},
		{"Default_Transaction_Read_Only", "off"},
		{"transaction_read_only", "off"},
		{"options", "-c default_transaction_read_only=off"},
		{"options", "--default-transaction-read-only=off"},
		{"options", `-c DEFAULT_transaction_read_only=o\ff`},
		{"options", "-ec default_transaction_read_only=off"},
		{"options", "-c transaction_read_only=off"},
		{"options", "-c work_mem=1MB", "options", "-c default_transaction_read_only=off"},
	} {
		p := dial(t, r.addr)
		p.send(startPacket(v3, append([]string{"user", "eager", "database", r.db}, params...)...))
		p.until('Z')
		p.send(messages(t, `Q "SHOW transaction_read_only"
			Q "EXPLAIN ANALYZE SELECT 1"`))
		if b := p.until('Z'); !bytes.Contains(b, []byte("\x00\x02on")) {
			t.Errorf("%v: %q", params, b)
		}
	}
	for _, options := range []string{"--", "-c", `-c work_mem=1MB\`, "default_transaction_read_only=off", "-cwork_mem"} {
		p := dial(t, r.addr)
		p.send(startPacket(v3, "user", "eager", "database", r.db, "options", options))
		for {
			m := p.message()
			if m[0] == 'E' {
				break // refused, by the proxy or by the server
			}
			if m[0] == 'Z' {
				p.send(messages(t, `Q "SHOW transaction_read_only"`))
				if b := p.until('Z'); !bytes.Contains(b, []byte("\x00\x02on")) {
					t.Errorf("%s: %q", options, b)
				}
				break
			}
		}
	}
}

func TestUpstreamDown(t *testing.T) {
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, pg: &servers.Process{Addr: fmt.Sprintf("127.0.0.1:%d", port)}, guard: &fakeGuard{}}
	r.serve(nil)
	p := dial(t, r.addr)
	p.send(startPacket(v3, "user", "app"))
	if s := show(p.rest(), false); !strings.HasPrefix(s, "E FATAL 08006") {
		t.Error(s)
	}
}

func TestTooManyClients(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxConns = 1 })
	r.peer(false)
	p := dial(t, r.addr)
	if s := show(p.rest(), false); !strings.HasPrefix(s, "E FATAL 53300") {
		t.Error(s)
	}
}

// P14: a client that does not read a large result, and then one that sends a large
// COPY while the server cannot take it. Both directions at once, in bounded memory.
func TestBackPressure(t *testing.T) {
	r := newRig(t, nil)
	p := r.peer(false, "fence.token", r.guard.lead().Reveal())
	const size = 192 << 20
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	// The result backs up to the server, which then reads no more either.
	p.send(appendQuery(nil, fmt.Sprintf("SELECT repeat('x', 1000000) FROM generate_series(1,%d)", size/1000000)))
	line := bytes.Repeat([]byte("x"), 60000)
	flood := append(binary.BigEndian.AppendUint32([]byte{'d'}, uint32(4+len(line))), line...)
	sent := make(chan error, 1)
	go func() {
		// CopyData that nobody asked for is ignored, after the result was sent.
		for range size / len(flood) {
			if _, err := p.c.Write(flood); err != nil {
				sent <- err
				return
			}
		}
		_, err := p.c.Write(appendQuery(nil, "SELECT 'done'"))
		sent <- err
	}()
	select {
	case err := <-sent:
		t.Fatalf("everything was taken in: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("%d bytes more on the heap", grown)
	}
	got := p.until('Z')
	if len(got) < size-1000000 {
		t.Errorf("%d bytes", len(got))
	}
	if got := p.until('Z'); !bytes.Contains(got, []byte("done")) {
		t.Errorf("%.100q", got)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// A refused statement of any size takes no memory, and the stream stays in step.
func TestHugeRefusedStatement(t *testing.T) {
	r := newRig(t, nil)
	p := r.peer(false)
	const size = 64 << 20
	go func() {
		_, _ = p.c.Write(binary.BigEndian.AppendUint32([]byte{'Q'}, 4+size))
		part := bytes.Repeat([]byte("-"), 1<<16)
		for range size / len(part) {
			_, _ = p.c.Write(part)
		}
		_, _ = p.c.Write(appendQuery(nil, "SELECT 1"))
	}()
	if got := outcome(p.until('Z')); got != "E ERROR 25006\nZ I\n" {
		t.Error(got)
	}
	if got := outcome(p.until('Z')); got != "T\nD\nC \"SELECT 1\"\nZ I\n" {
		t.Error(got)
	}
}

// An independent decoder reads what the proxy sends.
func TestIndependentDecoder(t *testing.T) {
	r := newRig(t, nil)
	p := dial(t, r.addr)
	f := pgproto3.NewFrontend(pgproto3.NewChunkReader(p.c), p.c)
	if err := f.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersionNumber,
		Parameters: map[string]string{"user": "app", "database": r.db, "fence.token": "not-a-good-token"}}); err != nil {
		t.Fatal(err)
	}
	var notice *pgproto3.NoticeResponse
	for {
		m, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := m.(*pgproto3.NoticeResponse); ok {
			c := *n
			notice = &c
		}
		if _, ok := m.(*pgproto3.ReadyForQuery); ok {
			break
		}
	}
	if notice == nil || notice.Severity != "WARNING" || notice.Code != "FP001" {
		t.Errorf("%+v", notice)
	}
	if err := f.Send(&pgproto3.Query{String: "TRUNCATE t"}); err != nil {
		t.Fatal(err)
	}
	m, err := f.Receive()
	if e, ok := m.(*pgproto3.ErrorResponse); err != nil || !ok || e.Code != "FP001" || e.Hint == "" || !strings.Contains(e.Detail, "TRUNCATE") {
		t.Errorf("%+v %v", m, err)
	}
}
