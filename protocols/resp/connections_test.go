package resp_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// proxyHeader is a header of the PROXY protocol, version 2, for a client at ip.
func proxyHeader(ip string) []byte {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x21, 0x11, 0, 12)
	b = append(b, netip.MustParseAddr(ip).AsSlice()...)
	b = append(b, 10, 0, 0, 1)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, 4711), 6379)
}

func trusted(network string) *protocols.ProxyProtocol {
	return &protocols.ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix(network)}}
}

// raw sends bytes as they are.
func (w *wire) raw(b []byte) *wire {
	w.t.Helper()
	if _, err := w.Write(b); err != nil {
		w.t.Fatal(err)
	}
	return w
}

// Load balancers say which client they connect for, before TLS where there is any. Nobody
// else can say so, and nobody connects without saying so.
func TestProxyProtocol(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *resp.Config) { c.ProxyProtocol = trusted("127.0.0.0/8") }})
	lead := r.lead(t)
	w := dial(t, r.addr).raw(append(proxyHeader("192.0.2.7"), "FENCE BIND "+lead.Token.Reveal()+"\r\n"...))
	if got := w.reply(); got != "+OK\r\n" {
		t.Errorf("got %q", got)
	}
	w.wantPrefix("FENCE BIND "+election.NewToken().Reveal(), "-FENCED ")
	if log := r.log.String(); !strings.Contains(log, "client=192.0.2.7:4711") {
		t.Error("the log does not know the client")
	}
	for _, b := range []string{"PING\r\n*1\r\n$4\r\nPING\r\n", "PROXY TCP4 192.0.2.7 10.0.0.1 4711 6379\r\n"} {
		w := dial(t, r.addr).raw([]byte(b))
		_ = w.SetReadDeadline(time.Now().Add(patience))
		if got, err := io.ReadAll(w); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q is answered %q, %v", b, got, err)
		}
	}

	r = newRig(t, rigOptions{config: func(c *resp.Config) { c.ProxyProtocol = trusted("192.0.2.0/24") }})
	w = dial(t, r.addr)
	_, _ = w.Write(append(proxyHeader("192.0.2.7"), "PING\r\n"...))
	_ = w.SetReadDeadline(time.Now().Add(patience))
	if b, _ := io.ReadAll(w); len(b) > 0 {
		t.Errorf("an untrusted peer is answered %q", b)
	}

	ca := testenv.NewAuthority(t)
	cert := ca.Issue("proxy", []string{"localhost"}, nil)
	r = newRig(t, rigOptions{config: func(c *resp.Config) {
		c.ProxyProtocol = trusted("127.0.0.0/8")
		c.TLS = openServerTLS(t, tlsconf.ServerOptions{Cert: cert.Cert, Key: cert.Key})
	}})
	w = dial(t, r.addr).raw(proxyHeader("192.0.2.8"))
	conn := tls.Client(w.Conn, trusting(ca))
	w = &wire{t: t, Conn: conn, r: bufio.NewReader(conn)}
	w.want("PING", "+PONG\r\n")
}

// Connections are bounded: all, those of one address, and those that only begin. Beyond,
// the client is told so, and a place that was left is free again.
func TestTooMany(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *resp.Config) { c.MaxConns = 2 }})
	held := []*wire{dial(t, r.addr), dial(t, r.addr)}
	for _, w := range held {
		w.want("PING", "+PONG\r\n")
	}
	if got := dial(t, r.addr).rest(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("got %q", got)
	}
	_ = held[0].Close()
	again := func() bool {
		w := dial(t, r.addr)
		defer w.Close()
		_, _ = io.WriteString(w, "PING\r\n")
		_ = w.SetReadDeadline(time.Now().Add(patience))
		line, _ := w.r.ReadString('\n')
		return line == "+PONG\r\n"
	}
	eventually(t, "there is a place again", again)

	r = newRig(t, rigOptions{config: func(c *resp.Config) {
		c.MaxPerAddress, c.ProxyProtocol = 1, trusted("127.0.0.0/8")
	}})
	one := dial(t, r.addr).raw(proxyHeader("192.0.2.7"))
	one.want("PING", "+PONG\r\n")
	if got := dial(t, r.addr).raw(proxyHeader("192.0.2.7")).rest(); got != "-ERR too many connections from the client's address\r\n" {
		t.Errorf("got %q", got)
	}
	dial(t, r.addr).raw(proxyHeader("192.0.2.8")).want("PING", "+PONG\r\n")
	_ = one.Close()
	eventually(t, "there is a place for the address", func() bool {
		w := dial(t, r.addr)
		defer w.Close()
		_, _ = w.Write(append(proxyHeader("192.0.2.7"), "PING\r\n"...))
		_ = w.SetReadDeadline(time.Now().Add(patience))
		line, _ := w.r.ReadString('\n')
		return line == "+PONG\r\n"
	})
}

// Connections that do not begin a session have few places of their own, and leave them
// in time, however slowly their bytes come. Sessions do not need them.
func TestPending(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *resp.Config) {
		c.MaxPending, c.StartupTimeout, c.ProxyProtocol = 2, 2*time.Second, trusted("127.0.0.0/8")
	}})
	session := func() *wire { return dial(t, r.addr).raw(proxyHeader("192.0.2.7")) }
	held := session()
	held.want("PING", "+PONG\r\n")
	silent := []*wire{dial(t, r.addr), dial(t, r.addr), dial(t, r.addr)}
	for _, w := range silent {
		w.raw(proxyHeader("192.0.2.7")[:5])
	}
	refused := 0
	for _, w := range silent {
		switch got := w.rest(); {
		case strings.HasPrefix(got, "-ERR too many connections that have not begun"):
			refused++
		case got != "":
			t.Errorf("got %q", got)
		}
	}
	if refused != 1 {
		t.Errorf("of three that say nothing %d were refused, want one", refused)
	}
	session().want("PING", "+PONG\r\n")
	held.want("PING", "+PONG\r\n")
}

// In TLS: a server that stops reading, and a leader that loses its permit then. The client
// is told, and the session ends, although a write to the server is stuck: crypto/tls would
// wait for it for ever.
func TestTLSStuckWriteDoesNotHoldTheEnd(t *testing.T) {
	s := newTLSServer(t)
	proxy := s.ca.Issue("proxy", []string{"localhost"}, nil)
	r := newRig(t, rigOptions{redis: s.Process, config: func(c *resp.Config) {
		c.Upstream, c.UpstreamTLS = s.addr, openClientTLS(t, tlsconf.ClientOptions{Mode: tlsconf.VerifyCA, CA: s.ca.CA})
		c.TLS = openServerTLS(t, tlsconf.ServerOptions{Cert: proxy.Cert, Key: proxy.Key})
		c.Drain = time.Hour
	}})
	lead := r.lead(t)
	conn, err := tls.Dial("tcp", r.addr, trusting(s.ca))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := &wire{t: t, Conn: conn, r: bufio.NewReader(conn)}
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	resume := sync.OnceFunc(func() { _ = s.Signal(syscall.SIGCONT) })
	defer resume()
	if err := s.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	command := []byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$65536\r\n" + strings.Repeat("v", 1<<16) + "\r\n")
	for end := time.Now().Add(30 * time.Second); ; {
		_ = conn.NetConn().SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := conn.Write(command); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("somebody reads")
		}
	}
	start := time.Now()
	if _, err := r.elections.Resign(t.Context(), r.election, lead.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := w.rest(); !strings.HasPrefix(got, "-FENCED ") || strings.Count(got, "\r\n") != 1 {
		t.Errorf("got %q", got)
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
}
