package pg

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// login sends a start-up packet and reads up to rest.
func (r *tlsRig) login(c rawConn, params ...string) (pid, key []byte) {
	r.t.Helper()
	c.send(startPacket(v3, append([]string{"user", "app", "database", r.db}, params...)...))
	k := c.until('K')
	c.until('Z')
	return k[:4], k[4:]
}

func (r *tlsRig) query(c rawConn, sql string) string {
	r.t.Helper()
	c.send(appendQuery(nil, sql))
	row := c.until('D')
	c.until('Z')
	return string(row[6:])
}

// The requests for encryption in either order, and TLS at once (PostgreSQL 17 and later).
func TestTLSBegins(t *testing.T) {
	r := newTLSRig(t, "")
	r.start(&tlsconf.ServerOptions{Required: true}, &tlsconf.ClientOptions{Mode: tlsconf.Require})
	withALPN := func(protos ...string) *tls.Config { c := r.trust(); c.NextProtos = protos; return c }
	for name, c := range map[string]struct {
		ask  [][]byte
		said string
		conf *tls.Config
		alpn string
		fail string
	}{
		"asked":                        {[][]byte{sslRequest}, "S", r.trust(), "", ""},
		"asked, with the name":         {[][]byte{sslRequest}, "S", withALPN("postgresql"), "postgresql", ""},
		"asked, with several names":    {[][]byte{sslRequest}, "S", withALPN("h2", "postgresql"), "postgresql", ""},
		"asked, with another name":     {[][]byte{sslRequest}, "S", withALPN("h2"), "", "handshake"},
		"GSS first":                    {[][]byte{gssRequest, sslRequest}, "NS", r.trust(), "", ""},
		"at once":                      {nil, "", withALPN("postgresql"), "postgresql", ""},
		"at once, without the name":    {nil, "", r.trust(), "", "closed"},
		"at once, with another name":   {nil, "", withALPN("http/1.1"), "", "handshake"},
		"at once, with an old version": {nil, "", &tls.Config{InsecureSkipVerify: true, NextProtos: ALPN(), MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "", "handshake"},
	} {
		conn := dialRaw(t, r.addr)
		for i, ask := range c.ask {
			conn.send(ask)
			if b := conn.letter(); b != c.said[i] {
				t.Errorf("%s: answered %q", name, b)
			}
		}
		s, err := conn.tls(c.conf)
		switch {
		case c.fail == "handshake":
			if err == nil {
				t.Errorf("%s: taken", name)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case c.fail == "closed":
			if b := s.rest(); len(b) > 0 {
				t.Errorf("%s: said %q", name, b)
			}
		default:
			if got := s.state().NegotiatedProtocol; got != c.alpn {
				t.Errorf("%s: protocol %q", name, got)
			}
			r.login(s)
			if got := r.query(s, upstreamSSL); got != "t" {
				t.Errorf("%s: %s", name, got)
			}
		}
	}

	// In TLS, a second request for it is as any unknown protocol, as by the server.
	for _, again := range [][]byte{sslRequest, gssRequest} {
		conn := dialRaw(t, r.addr)
		conn.send(sslRequest)
		conn.letter()
		s, err := conn.tls(r.trust())
		if err != nil {
			t.Fatal(err)
		}
		s.send(again)
		if _, body := s.message(); !bytes.Contains(body, []byte("C0A000")) {
			t.Errorf("%q", body)
		}
	}
}

// What somebody in between puts behind the request for TLS is never taken for the
// client's, who would go on in TLS and not know.
func TestTLSStuffedByTheClientsSide(t *testing.T) {
	r := newTLSRig(t, "")
	r.start(&tlsconf.ServerOptions{}, nil)
	conn := dialRaw(t, r.addr)
	conn.send(sslRequest, startPacket(v3, "user", "app", "database", r.db))
	if b := conn.letter(); b != 'S' {
		t.Fatalf("answered %q", b)
	}
	typ, body := conn.message()
	if typ != 'E' || !bytes.Contains(body, []byte("C08P01\x00Mreceived unencrypted data after SSL request")) {
		t.Errorf("%c %q", typ, body)
	}
	if b := conn.rest(); len(b) > 0 {
		t.Errorf("and %q", b)
	}
}

// The same towards the server: what comes with its answer to the request for TLS
// reaches nobody.
func TestTLSStuffedByTheServersSide(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, 8))
		// AuthenticationOk and an error for the client to believe.
		_, _ = c.Write(report{severity: "FATAL", code: "XX000", message: "stuffed"}.append([]byte("SR\x00\x00\x00\x08\x00\x00\x00\x00")))
		b, _ := io.ReadAll(c)
		got <- b
	}()
	r := newTLSRig(t, "")
	srv, err := New(Config{Upstream: l.Addr().String(), Guard: r.guard, Binder: r.guard, UpstreamTLS: r.clientTLS(tlsconf.ClientOptions{Mode: tlsconf.Require})})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := srv.dialAs(t.Context(), target{host: "localhost", addr: l.Addr().String()}, onlyTLS); err == nil {
		c.Close()
		t.Fatal("taken")
	} else if e := new(tlsError); !errors.As(err, &e) {
		t.Error(err)
	}
	if b := <-got; bytes.Contains(b, []byte("user")) {
		t.Errorf("sent %q", b)
	}
}

// First bytes that are no start-up packet end the connection, soon and without a word, as by
// the server.
func TestTLSUnknownFirstBytes(t *testing.T) {
	r := newTLSRig(t, "")
	for _, o := range []*tlsconf.ServerOptions{nil, {Required: true}} {
		r.start(o, nil)
		for _, send := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\x00\x00\x00", "\xff\xff\xff\xff"} {
			conn := dialRaw(t, r.addr)
			conn.send([]byte(send))
			if got := string(conn.rest()); got != "" {
				t.Errorf("%q: %q", send, got)
			}
		}
	}
	r.start(nil, nil)
	conn := dialRaw(t, r.addr)
	s, err := conn.tls(&tls.Config{InsecureSkipVerify: true, NextProtos: ALPN()})
	if err == nil {
		t.Fatal("TLS where there is none")
	}
	if b := s.rest(); len(b) > 0 {
		t.Errorf("%q", b)
	}
	// Not in TLS, but begun as if.
	r.start(&tlsconf.ServerOptions{}, nil)
	conn = dialRaw(t, r.addr)
	conn.send([]byte("\x16\x03\x01\x00\x05hello"))
	if b := conn.rest(); bytes.Contains(b, []byte("SFATAL")) {
		t.Errorf("%q", b)
	}
}

// P11: a request to cancel, on each kind of connection, and over TLS to the server.
func TestTLSCancel(t *testing.T) {
	r := newTLSRig(t, "hostssl all app 127.0.0.1/32 trust\n")
	r.start(&tlsconf.ServerOptions{Required: true}, &tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: r.ca.CA})
	conn := dialRaw(t, r.addr)
	conn.send(sslRequest)
	conn.letter()
	s, err := conn.tls(r.trust())
	if err != nil {
		t.Fatal(err)
	}
	pid, key := r.login(s)
	cancel := bytes.Join([][]byte{binary.BigEndian.AppendUint32([]byte{0, 0, 0, 16}, codeCancel), pid, key}, nil)
	for _, kind := range []string{"in plaintext", "in TLS", "in TLS at once"} {
		s.send(appendQuery(nil, "SELECT pg_sleep(60)"))
		eventually(t, func() bool {
			return queryString(t, r.admin, "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
		})
		c := dialRaw(t, r.addr)
		if kind != "in plaintext" {
			conf := r.trust()
			if kind == "in TLS" {
				c.send(sslRequest)
				c.letter()
			} else {
				conf.NextProtos = ALPN()
			}
			if c, err = c.tls(conf); err != nil {
				t.Fatal(err)
			}
		}
		c.send(cancel)
		// The close says that it was acted on: with TLS it is one of TLS's own.
		if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
			t.Errorf("%s: %q %v", kind, b, err)
		}
		s.send(appendQuery(nil, "SELECT 'next'"))
		var seen []byte
		for rests := 0; rests < 2; {
			typ, body := s.message()
			seen = append(seen, typ)
			if typ == 'E' && !bytes.Contains(body, []byte("C57014")) {
				t.Errorf("%s: %q", kind, body)
			}
			if typ == 'Z' {
				rests++
			}
		}
		if string(seen) != "TEZTDCZ" && string(seen) != "EZTDCZ" {
			t.Errorf("%s: %s", kind, seen)
		}
	}
}

// P2 in TLS: the client ends its sending side behind a query; what is owed arrives, then
// the close. Both ends of the proxy are told in TLS, and below.
func TestTLSHalfClose(t *testing.T) {
	r := newTLSRig(t, "")
	for _, up := range []tlsconf.Mode{tlsconf.Disable, tlsconf.Require} {
		for _, clientTLS := range []bool{false, true} {
			r.start(&tlsconf.ServerOptions{}, &tlsconf.ClientOptions{Mode: up})
			conn := dialRaw(t, r.addr)
			if clientTLS {
				conn.send(sslRequest)
				conn.letter()
				var err error
				if conn, err = conn.tls(r.trust()); err != nil {
					t.Fatal(err)
				}
			}
			r.login(conn)
			conn.send(appendQuery(nil, "SELECT pg_sleep(0.2), 'owed'"))
			if err := conn.Conn.(stream).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(conn)
			if err != nil || !bytes.Contains(b, []byte("owed")) || !bytes.HasSuffix(b, []byte("Z\x00\x00\x00\x05I")) {
				t.Errorf("upstream %s, client's TLS %v: %q %v", up, clientTLS, b, err)
			}
		}
	}
	// The sessions are over in the server, too.
	eventually(t, func() bool {
		return queryString(t, r.admin, "SELECT count(*)::text FROM pg_stat_activity WHERE usename = 'app'") == "0"
	})
}

// A handshake that does not go on is ended by the time-out for start-up, and at once
// when the proxy ends.
func TestTLSHandshakeIsBounded(t *testing.T) {
	r := newTLSRig(t, "")
	for _, timeout := range []time.Duration{50 * time.Millisecond, time.Hour} {
		r.startWith(&tlsconf.ServerOptions{}, nil, func(c *Config) { c.StartupTimeout, c.Drain = timeout, time.Hour })
		conn := dialRaw(t, r.addr)
		conn.send(sslRequest)
		conn.letter()
		if timeout == time.Hour {
			r.stop()
		}
		if b, err := io.ReadAll(conn); len(b) > 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q %v", b, err)
		}
	}
}

// The certificates of both legs are those that were shown.
func TestTLSCertificatesOfTheLegs(t *testing.T) {
	r := newTLSRig(t, "")
	r.start(nil, &tlsconf.ClientOptions{Mode: tlsconf.Require})
	srv, err := New(Config{Upstream: r.pg.Addr, Guard: r.guard, Binder: r.guard,
		TLS: r.serverTLS(tlsconf.ServerOptions{}), UpstreamTLS: r.clientTLS(tlsconf.ClientOptions{Mode: tlsconf.Require})})
	if err != nil {
		t.Fatal(err)
	}
	up, _, err := srv.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	if !bytes.Equal(certOf(up), r.server.Leaf.Raw) {
		t.Error("not the server's certificate")
	}
	ours, theirs := net.Pipe()
	go func() {
		c := tls.Client(theirs, r.trust())
		_ = c.HandshakeContext(t.Context())
	}()
	down, err := srv.acceptTLS(ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(certOf(down), r.proxy.Leaf.Raw) || certOf(ours) != nil {
		t.Error("not the proxy's certificate")
	}
	ours.Close()
}
