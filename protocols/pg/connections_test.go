package pg

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols"
)

// wantFatal checks that the last thing that a client gets is a FATAL.
func (p *peer) wantFatal(state string) {
	p.t.Helper()
	if s := show(p.rest(), false); !strings.HasPrefix(s, "E FATAL "+state) {
		p.t.Errorf("%s, want a FATAL %s", s, state)
	}
}

// Sessions are bounded; a request to cancel one of them is taken nevertheless.
func TestTooManyClients(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxConns, c.MaxPending = 1, 2 })
	only := dial(t, r.addr)
	only.send(startPacket(v3, "user", "app", "database", r.db))
	all := only.until('Z')
	key := all[bytes.Index(all, []byte("K\x00\x00\x00\x0c"))+5:][:8]
	p := dial(t, r.addr)
	p.send(startPacket(v3, "user", "app", "database", r.db))
	p.wantFatal("53300")

	only.send(appendQuery(nil, "SELECT pg_sleep(60)"))
	eventually(t, func() bool {
		return queryString(t, r.admin, "SELECT count(*)::text FROM pg_stat_activity WHERE query='SELECT pg_sleep(60)' AND state='active'") == "1"
	})
	c := dial(t, r.addr)
	c.send(cancelPacket(binary.BigEndian.Uint32(key), binary.BigEndian.Uint32(key[4:])))
	c.rest()
	if s := show(only.until('Z'), false); !strings.Contains(s, "E ERROR 57014") {
		t.Errorf("not cancelled: %s", s)
	}
	only.send(messages(t, "X"))
	only.rest()
	eventually(t, func() bool {
		c, err := pgconn.Connect(t.Context(), r.dsn(""))
		return err == nil && c.Close(t.Context()) == nil
	})
}

func cancelPacket(pid, key uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, 16)
	b = binary.BigEndian.AppendUint32(b, codeCancel)
	b = binary.BigEndian.AppendUint32(b, pid)
	return binary.BigEndian.AppendUint32(b, key)
}

// Connections that have not logged in are bounded by themselves: whoever opens many and
// says nothing takes no session's place, and not for long.
func TestTooManyPending(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxPending, c.StartupTimeout = 2, 2*time.Second })
	held := r.peer(false) // logged in: not pending
	silent := []*peer{dial(t, r.addr), dial(t, r.addr), dial(t, r.addr)}
	refused := 0
	for _, p := range silent {
		if strings.HasPrefix(show(p.rest(), false), "E FATAL 53300") {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("of three that say nothing %d were refused, want one", refused)
	}
	r.peer(false)
	held.send(appendQuery(nil, "SELECT 1"))
	held.until('Z')
}

func TestTooManyOfOneAddress(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.MaxPerAddress = 2
		c.ProxyProtocol = &protocols.ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	})
	from := func(ip string) *peer {
		p := dial(t, r.addr)
		p.send(proxyHeader(ip, 1234))
		return p
	}
	login := func(p *peer) *peer {
		p.send(startPacket(v3, "user", "app", "database", r.db))
		p.until('Z')
		return p
	}
	first, _ := login(from("192.0.2.1")), login(from("192.0.2.1"))
	from("192.0.2.1").wantFatal("53300")
	login(from("192.0.2.2"))
	first.send(messages(t, "X"))
	first.rest()
	eventually(t, func() bool {
		p := from("192.0.2.1")
		p.send(startPacket(v3, "user", "app", "database", r.db))
		m, err := readMessage(p.c)
		return err == nil && m[0] == 'R'
	})
}

// proxyHeader is a header of version 2 for a client at ip and port.
func proxyHeader(ip string, port uint16) []byte {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x21, 0x11, 0, 12)
	b = append(b, netip.MustParseAddr(ip).AsSlice()...)
	b = append(b, 10, 0, 0, 1)
	b = binary.BigEndian.AppendUint16(b, port)
	return binary.BigEndian.AppendUint16(b, 5432)
}

// The log knows a client by the address that the load balancer gives, the server by the
// proxy's; and only the load balancer is believed.
func TestProxyProtocol(t *testing.T) {
	var log testenv.Buffer
	trust := func(network string) func(*Config) {
		return func(c *Config) {
			c.ProxyProtocol = &protocols.ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix(network)}}
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		}
	}
	r := newRig(t, trust("127.0.0.0/8"))
	token := r.guard.lead().Reveal()
	p := dial(t, r.addr)
	p.send(append(proxyHeader("192.0.2.7", 4711), startPacket(v3, "user", "app", "database", r.db, "fence.token", token)...))
	p.until('Z')
	if s := log.String(); !strings.Contains(s, "session bound") || !strings.Contains(s, "client=192.0.2.7:4711") {
		t.Errorf("the log:\n%s", s)
	}
	p.send(appendQuery(nil, "SELECT client_addr FROM pg_stat_activity WHERE pid=pg_backend_pid()"))
	if s := p.until('Z'); !bytes.Contains(s, []byte("127.0.0.1")) {
		t.Errorf("%q", s)
	}
	// A header that is none, and one that never comes whole.
	for _, b := range [][]byte{startPacket(v3, "user", "app"), []byte("PROXY TCP4 192.0.2.7 10.0.0.1 4711 5432\r\n")} {
		p := dial(t, r.addr)
		p.send(b)
		if b, _ := readMessage(p.c); len(b) > 0 {
			t.Errorf("%q was answered", b)
		}
	}
	if s := log.String(); !strings.Contains(s, "malformed PROXY protocol header") {
		t.Errorf("the log:\n%s", s)
	}

	r = newRig(t, trust("10.0.0.0/8"))
	p = dial(t, r.addr)
	p.send(append(proxyHeader("192.0.2.7", 4711), startPacket(v3, "user", "app")...))
	if b, _ := readMessage(p.c); len(b) > 0 {
		t.Errorf("an untrusted peer was answered: %q", b)
	}
	eventually(t, func() bool { return strings.Contains(log.String(), "not a trusted proxy") })
}

// Where no PROXY protocol header is expected, the log says what came.
func TestProxyHeaderWhereNoneIsExpected(t *testing.T) {
	var log testenv.Buffer
	r := newRig(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	p := dial(t, r.addr)
	p.send(proxyHeader("192.0.2.7", 4711))
	if b := p.rest(); len(b) > 0 {
		t.Errorf("%q", b)
	}
	if s := log.String(); !strings.Contains(s, "PROXY protocol") {
		t.Errorf("the log:\n%s", s)
	}
}

// A client that sends one byte a second is waited for no longer than one that sends none,
// through a PROXY protocol header and a start-up packet together.
func TestSlowClient(t *testing.T) {
	for _, packet := range [][]byte{
		startPacket(v3, "user", "app"),
		append(proxyHeader("192.0.2.7", 4711), startPacket(v3, "user", "app")...),
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{Upstream: "none:1", Guard: &fakeGuard{}, Binder: &fakeGuard{}, StartupTimeout: 10 * time.Second}
			if len(packet) > 28 {
				cfg.ProxyProtocol = &protocols.ProxyProtocol{}
				cfg.StartupTimeout = 40 * time.Second // into the start-up packet
			}
			srv, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			a, b := net.Pipe()
			var wg sync.WaitGroup
			defer wg.Wait()
			defer a.Close()
			wg.Go(func() {
				for _, x := range packet {
					time.Sleep(time.Second)
					if _, err := b.Write([]byte{x}); err != nil {
						return
					}
				}
			})
			start := time.Now()
			srv.connection(t.Context(), byUnix{a})
			if took := time.Since(start); took != cfg.StartupTimeout {
				t.Errorf("waited %v of %v", took, cfg.StartupTimeout)
			}
			b.Close()
		})
	}
}

type byUnix struct{ net.Conn }

func (byUnix) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// idleRig is a session between two pipes, logged in, in a bubble.
type idleRig struct {
	client, server net.Conn
	srv            *Server
	over           chan struct{}
}

func newIdleRig(t *testing.T, change func(*Config)) *idleRig {
	t.Helper()
	cfg := Config{Upstream: "none:1", Guard: &fakeGuard{}, Binder: &fakeGuard{}}
	change(&cfg)
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client, a := net.Pipe()
	b, server := net.Pipe()
	start, err := readStartup(startPacket(v3, "user", "app"))
	if err != nil {
		t.Fatal(err)
	}
	r := &idleRig{client, server, srv, make(chan struct{})}
	s := newSession(srv, a, halves{b}, start)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { s.run(ctx); close(r.over) }()
	go srv.sweeper.Run(ctx, sweepEvery(&srv.cfg), sweep)
	t.Cleanup(func() {
		cancel()
		client.Close()
		server.Close()
		a.Close()
		b.Close()
		<-r.over
	})
	if _, err := readFirstPacket(server); err != nil {
		t.Fatal(err)
	}
	r.answer(t, []byte("R\x00\x00\x00\x08\x00\x00\x00\x00"), appendMessage(nil, 'S', "default_transaction_read_only", "on"),
		[]byte("K\x00\x00\x00\x0c\x00\x00\x00\x07\x00\x00\x00\x09"), []byte("Z\x00\x00\x00\x05I"))
	return r
}

// halves is a pipe as a stream: there is nothing to end.
type halves struct{ net.Conn }

func (h halves) CloseWrite() error { return h.Close() }

func readFirstPacket(c net.Conn) ([]byte, error) {
	var head [4]byte
	if _, err := c.Read(head[:]); err != nil {
		return nil, err
	}
	return readPacket(c, head)
}

// answer lets the server say something, and the client hear it.
func (r *idleRig) answer(t *testing.T, say ...[]byte) {
	t.Helper()
	all := bytes.Join(say, nil)
	go func() { _, _ = r.server.Write(all) }()
	for range say {
		if _, err := readMessage(r.client); err != nil {
			t.Fatal(err)
		}
	}
}

// ask lets the client ask something, and the server answer.
func (r *idleRig) ask(t *testing.T, sql string, status byte) {
	t.Helper()
	go func() { _, _ = r.client.Write(appendQuery(nil, sql)) }()
	if _, err := readMessage(r.server); err != nil {
		t.Fatal(err)
	}
	r.answer(t, appendMessage(nil, 'C', "X"), []byte{'Z', 0, 0, 0, 5, status})
}

// end waits for the FATAL that ends the session, and returns it and when it came.
func (r *idleRig) end(t *testing.T) (string, time.Duration) {
	t.Helper()
	start := time.Now()
	m, err := readMessage(r.client)
	if err != nil {
		t.Fatal(err)
	}
	return show(m, false), time.Since(start)
}

func TestIdleTimeouts(t *testing.T) {
	idle := func(c *Config) { c.IdleTimeout = time.Minute }
	both := func(c *Config) { c.IdleTimeout, c.IdleInTransactionTimeout = time.Minute, 2*time.Second }
	for name, c := range map[string]struct {
		change func(*Config)
		status byte
		want   string
		after  time.Duration
	}{
		"idle":                 {idle, 'I', "E FATAL 57P05 ", time.Minute},
		"in a transaction":     {both, 'T', "E FATAL 25P03 ", 2 * time.Second},
		"in a failed one":      {both, 'E', "E FATAL 25P03 ", 2 * time.Second},
		"idle, both are given": {both, 'I', "E FATAL 57P05 ", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newIdleRig(t, c.change)
				for range 10 { // whatever moves is not idle
					time.Sleep(c.after * 9 / 10)
					r.ask(t, "SELECT 1", c.status)
				}
				got, took := r.end(t)
				if !strings.HasPrefix(got, c.want) || took < c.after || took > c.after+2*min(c.after/10, time.Second) {
					t.Errorf("%s after %v", got, took)
				}
			})
		})
	}
}

// A statement that runs, a client that has not taken its answer, a transaction where only
// sessions outside are limited: none is idle.
func TestNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newIdleRig(t, func(c *Config) { c.IdleTimeout = time.Second })
		go func() { _, _ = r.client.Write(appendQuery(nil, "BEGIN")) }()
		if _, err := readMessage(r.server); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		answer := append(appendMessage(nil, 'C', "BEGIN"), "Z\x00\x00\x00\x05T"...)
		go func() { _, _ = r.server.Write(answer) }()
		time.Sleep(time.Hour) // the client does not read
		for range 2 {
			if m, err := readMessage(r.client); err != nil || m[0] == 'E' {
				t.Fatalf("%s, %v", m, err)
			}
		}
		time.Sleep(time.Hour)
		r.ask(t, "COMMIT", 'I')
		if got, took := r.end(t); !strings.HasPrefix(got, "E FATAL 57P05") || took > 1200*time.Millisecond {
			t.Errorf("%s after %v", got, took)
		}
	})
}

// What the server says at idle time-outs of its own, the proxy says at its own.
func TestIdleTimeoutsAsTheServers(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.IdleTimeout, c.IdleInTransactionTimeout = 100*time.Millisecond, 100*time.Millisecond
	})
	ends := func(c *pgx.Conn) string {
		err := waitClosed(t, c)
		e := wantError(t, err, map[byte]string{'I': "57P05", 'T': "25P03"}[c.PgConn().TxStatus()])
		return fmt.Sprint(e.Severity, e.Code, e.Message)
	}
	for _, begin := range []string{"SELECT 1", "BEGIN"} {
		want := connect(t, r.pg.DSN("app", r.db))
		mustExec(t, want, "SET idle_session_timeout=3000; SET idle_in_transaction_session_timeout=100", pgx.QueryExecModeSimpleProtocol)
		got := r.connect("")
		mustExec(t, want, begin)
		mustExec(t, got, begin)
		if w, g := ends(want), ends(got); w != g {
			t.Errorf("%s, the server says %s", g, w)
		}
	}
}
