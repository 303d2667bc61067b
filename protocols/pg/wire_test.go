package pg

import (
	"bytes"
	"encoding/binary"
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
		"length 0":         {[]byte{0, 0, 0, 0}, ""},
		"length 3":         {[]byte{0, 0, 0, 3}, ""},
		"length 7":         {[]byte{0, 0, 0, 7, 0, 3, 0}, ""},
		"negative length":  {[]byte{0xff, 0xff, 0xff, 0xf0, 0, 3, 0, 0}, ""},
		"2 GB":             {[]byte{0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0}, ""},
		"HTTP":             {[]byte("GET / HTTP/1.1\r\n\r\n"), ""},
		"protocol 2":       {startPacket(2<<16, "user", "app"), "raw 45464154414c3a"},
		"no terminator":    {append([]byte{0, 0, 0, 12, 0, 3, 0, 0}, "user"...), "E FATAL 08P01"},
		"replication":      {startPacket(v3, "user", "app", "replication", "database"), "E FATAL 0A000"},
		"unknown fence.x":  {startPacket(v3, "user", "app", "fence.tokn", "x"), "E FATAL 42704"},
		"setting acts":     {startPacket(v3, "user", "app", "Zero_Damaged_Pages", "on"), "E FATAL 42501"},
		"option acts":      {startPacket(v3, "user", "app", "options", "-c jit-dump-bitcode=on"), "E FATAL 42501"},
		"options":          {startPacket(v3, "user", "app", "options", "-c fence.token"), "E FATAL 22023"},
		"options, unknown": {startPacket(v3, "user", "app", "options", "-Z x"), "E FATAL 22023"},
		"no such role":     {startPacket(v3, "user", "nobody_of_that_name"), "E FATAL 28000"},
		"empty":            {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, r.addr)
			p.send(c.packet)
			if c.packet == nil {
				_ = p.c.(*net.TCPConn).CloseWrite()
			}
			s := show(p.rest(), false)
			if c.says == "" && s != "" || !strings.Contains(s, c.says) {
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
