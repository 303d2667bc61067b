package pg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// P14 in TLS: a server that stops reading in the middle of a COPY, and a leader that loses
// its permit then. The client is told, and the session ends, although a write to the
// server is stuck: crypto/tls would wait for it for ever.
func TestTLSStuckWriteDoesNotHoldTheEnd(t *testing.T) {
	r := newTLSRig(t, "")
	r.startWith(&tlsconf.ServerOptions{}, &tlsconf.ClientOptions{Mode: tlsconf.Require}, func(c *Config) { c.Drain = time.Hour })
	conn := dialRaw(t, r.addr)
	conn.send(sslRequest)
	conn.letter()
	s, err := conn.tls(r.trust())
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := r.login(s, "fence.token", r.guard.lead().Reveal())
	s.send(appendQuery(nil, "COPY t FROM STDIN"))
	s.until('G')
	backend, err := os.FindProcess(int(binary.BigEndian.Uint32(pid)))
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(backend.Signal(syscall.SIGSTOP))
	defer backend.Signal(syscall.SIGCONT)
	// Fill everything between here and the server.
	data := appendMessage(nil, 'd', string(bytes.Repeat([]byte("1\tx\n"), 4096)))
	for end := time.Now().Add(30 * time.Second); ; {
		_ = conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := s.Write(data); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("somebody reads")
		}
	}
	r.guard.lead()
	r.guard.endPermits(guard.Stale)
	for {
		typ, body := s.message()
		if typ == 'E' {
			if !bytes.Contains(body, []byte("CFP001")) {
				t.Errorf("%q", body)
			}
			break
		}
	}
	if b, err := io.ReadAll(s); err != nil || len(b) > 0 {
		t.Errorf("%q %v", b, err)
	}
	s.Close()
	ended := make(chan struct{})
	go func() { r.stop(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the session does not end")
	}
}

// By Unix sockets on both sides, as the server: no TLS, and libpq's own names for them.
func TestUnixSockets(t *testing.T) {
	r := newTLSRig(t, "")
	dir := t.TempDir()
	listen, _ := SocketPath(dir + ":6432")
	if listen != filepath.Join(dir, ".s.PGSQL.6432") {
		t.Fatal(listen)
	}
	l, err := protocols.ListenUnix(t.Context(), listen, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(r.pg.Addr)
	srv, err := New(Config{Upstream: r.pg.Dir + ":" + port, Guard: r.guard, Binder: r.guard, DefaultElection: "orders",
		TLS: r.serverTLS(tlsconf.ServerOptions{Required: true}), UpstreamTLS: r.clientTLS(tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: r.ca.CA})})
	if err != nil {
		t.Fatal(err)
	}
	r.serveOn(srv, l)
	for _, sslmode := range tlsconf.Modes {
		out, err := r.psql("host="+dir+" port=6432 sslmode="+string(sslmode), "SELECT client_addr IS NULL FROM pg_stat_activity WHERE pid = pg_backend_pid()")
		if err != nil || out != "t" {
			t.Errorf("%s: %v %s", sslmode, err, out)
		}
	}
	c, err := net.Dial("unix", listen)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw := rawConn{c, t}
	raw.send(sslRequest)
	if b := raw.letter(); b != 'N' {
		t.Errorf("answered %q", b)
	}
	pid, key := r.login(raw)
	raw.send(appendQuery(nil, "SELECT pg_sleep(60)"))
	eventually(t, func() bool {
		return queryString(t, r.admin, "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
	})
	k, err := net.Dial("unix", listen)
	if err != nil {
		t.Fatal(err)
	}
	rawConn{k, t}.send(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 16}, codeCancel), pid, key)
	if b, err := io.ReadAll(k); len(b) > 0 || err != nil {
		t.Errorf("%q %v", b, err)
	}
	k.Close()
	for {
		if typ, body := raw.message(); typ == 'E' {
			if !bytes.Contains(body, []byte("C57014")) {
				t.Errorf("%q", body)
			}
			break
		}
	}
}

func TestSocketPath(t *testing.T) {
	dir := t.TempDir()
	for addr, want := range map[string]string{
		dir: dir + "/.s.PGSQL.5432", dir + ":5433": dir + "/.s.PGSQL.5433", "unix:" + dir + ":5433": dir + "/.s.PGSQL.5433",
		"/run/x/.s.PGSQL.1": "/run/x/.s.PGSQL.1", "/run/none/x": "/run/none/x", "/run/x:y": "/run/x:y", "/run/x:0": "/run/x:0", "host:5432": "", "unix:rel": "",
	} {
		if got, ok := SocketPath(addr); got != want || ok != (want != "") {
			t.Errorf("%s: %q", addr, got)
		}
	}
}
