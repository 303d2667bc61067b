package pg

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

var (
	sslRequest = binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, codeSSL)
	gssRequest = binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, codeGSS)
)

// A rawConn is a client by hand.
type rawConn struct {
	net.Conn
	t *testing.T
}

func dialRaw(t *testing.T, addr string) rawConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return rawConn{c, t}
}

func (c rawConn) send(parts ...[]byte) {
	c.t.Helper()
	if _, err := c.Write(bytes.Join(parts, nil)); err != nil {
		c.t.Fatal(err)
	}
}

func (c rawConn) letter() byte {
	c.t.Helper()
	var b [1]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		c.t.Fatal(err)
	}
	return b[0]
}

// tls begins TLS as a client.
func (c rawConn) tls(conf *tls.Config) (rawConn, error) {
	t := tls.Client(c.Conn, conf)
	return rawConn{t, c.t}, t.HandshakeContext(c.t.Context())
}

func (c rawConn) state() tls.ConnectionState { return c.Conn.(*tls.Conn).ConnectionState() }

// message reads one message.
func (c rawConn) message() (typ byte, body []byte) {
	c.t.Helper()
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		c.t.Fatal(err)
	}
	typ, n := header(head[:])
	body = make([]byte, n-4)
	if _, err := io.ReadFull(c, body); err != nil {
		c.t.Fatal(err)
	}
	return typ, body
}

// until reads messages up to one of a type.
func (c rawConn) until(typ byte) []byte {
	c.t.Helper()
	for {
		got, body := c.message()
		if got == typ {
			return body
		}
		if got == 'E' {
			c.t.Fatalf("%q", body)
		}
	}
}

// rest reads up to the end, which must be one of the peer's making.
func (c rawConn) rest() []byte {
	c.t.Helper()
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		c.t.Errorf("after %q: %v", b, err)
	}
	return b
}

func (r *tlsRig) trust() *tls.Config {
	o, err := tlsconf.OpenClient(tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: r.ca.CA})
	if err != nil {
		r.t.Fatal(err)
	}
	return o.Config("localhost")
}

// shown is the serial number of the certificate that an address shows.
func (r *tlsRig) shown(addr string) string {
	r.t.Helper()
	c := dialRaw(r.t, addr)
	c.send(sslRequest)
	if b := c.letter(); b != 'S' {
		r.t.Fatalf("answered %q", b)
	}
	s, err := c.tls(&tls.Config{InsecureSkipVerify: true})
	if err != nil {
		r.t.Fatal(err)
	}
	defer s.Close()
	return s.state().PeerCertificates[0].SerialNumber.String()
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	testenv.Within(t, 20*time.Second, "what is waited for", is)
}
