package resp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// A tlsServer is a Redis with TLS on a port of its own.
type tlsServer struct {
	*servers.Process
	ca   *testenv.Authority
	addr string // the TLS port
}

func newTLSServer(t *testing.T, args ...string) *tlsServer {
	t.Helper()
	ca := testenv.NewAuthority(t)
	cert := ca.Issue("redis", []string{"127.0.0.1", "localhost"}, nil)
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s := &tlsServer{ca: ca, addr: fmt.Sprintf("127.0.0.1:%d", port)}
	s.Process = testenv.Redis(t, append([]string{"--tls-port", fmt.Sprint(port), "--tls-cert-file", cert.Cert, "--tls-key-file", cert.Key,
		"--tls-ca-cert-file", ca.CA, "--tls-auth-clients", "no"}, args...)...)
	return s
}

func openServerTLS(t *testing.T, o tlsconf.ServerOptions) *tlsconf.Server {
	t.Helper()
	s, err := tlsconf.OpenServer(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openClientTLS(t *testing.T, o tlsconf.ClientOptions) *tlsconf.Client {
	t.Helper()
	c, err := tlsconf.OpenClient(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func trusting(ca *testenv.Authority) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	return &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// cli runs redis-cli.
func cli(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(testenv.Context(t), testenv.Tool(t, "redis-cli"), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("redis-cli %s: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// TLS on both legs, with every message of a session in it: a leader reads, writes, blocks
// and loses its term, and the server itself says that its connection is encrypted.
func TestTLSOnBothLegs(t *testing.T) {
	s := newTLSServer(t)
	proxy := s.ca.Issue("proxy", []string{"localhost", "127.0.0.1"}, nil)
	up := openClientTLS(t, tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: s.ca.CA})
	r := newRig(t, rigOptions{redis: s.Process, config: func(c *resp.Config) {
		c.Upstream, c.UpstreamTLS = s.addr, up
		c.TLS = openServerTLS(t, tlsconf.ServerOptions{Cert: proxy.Cert, Key: proxy.Key, Required: true})
	}})
	lead := r.lead(t)
	_, port, _ := net.SplitHostPort(r.addr)
	by := []string{"-h", "localhost", "-p", port, "--tls", "--cacert", s.ca.CA}
	if out := cli(t, append(by, "PING")...); out != "PONG" {
		t.Errorf("redis-cli --tls: %s", out)
	}
	if out := cli(t, append(by, "SET", "a", "1")...); !strings.HasPrefix(out, "FENCED ") {
		t.Errorf("redis-cli --tls: %s", out)
	}
	if out := cli(t, append(by, "--user", r.user("", lead.Token), "--pass", "x", "--no-auth-warning", "SET", "a", "1")...); out != "OK" {
		t.Errorf("redis-cli --tls, leading: %s", out)
	}
	c := goRedis(t, &redis.Options{Addr: r.addr, Username: r.user("", lead.Token), Password: "x", TLSConfig: trusting(s.ca)})
	big := strings.Repeat("x", 1<<20)
	if err := c.Set(t.Context(), "big", big, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if v, err := c.Get(t.Context(), "big").Result(); err != nil || v != big {
		t.Errorf("%d bytes, %v", len(v), err)
	}
	// The session's own connection is to the TLS port.
	if info := c.Do(t.Context(), "CLIENT", "INFO").String(); !strings.Contains(info, "laddr="+s.addr) {
		t.Error(info)
	}

	// Blocked when the term is lost: one line, and the end, in TLS as everywhere.
	conn, err := tls.Dial("tcp", r.addr, trusting(s.ca))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w := &wire{t: t, Conn: conn, r: bufio.NewReader(conn)}
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	w.send("BLPOP nothing 0")
	r.takeOver(t, lead)
	if got := w.rest(); !strings.HasPrefix(got, "-FENCED stale leader") {
		t.Errorf("got %q", got)
	}

	// Half a close: what is owed comes.
	conn, err = tls.Dial("tcp", r.addr, trusting(s.ca))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	w = &wire{t: t, Conn: conn, r: bufio.NewReader(conn)}
	w.send("ECHO a", "ECHO b")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := w.rest(); got != "$1\r\na\r\n$1\r\nb\r\n" {
		t.Errorf("got %q", got)
	}

	// Plaintext is not served, nor told anything that it could take for an answer.
	plain, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_, _ = io.WriteString(plain, "PING\r\n")
	_ = plain.SetReadDeadline(time.Now().Add(patience))
	if b, _ := io.ReadAll(plain); bytes.ContainsAny(b, "+-") {
		t.Errorf("answered %q", b)
	}
}

// What a listener wants of its clients' certificates.
func TestTLSClientCertificates(t *testing.T) {
	ca := testenv.NewAuthority(t)
	proxy, own := ca.Issue("proxy", []string{"localhost"}, nil), ca.Issue("client", nil, nil)
	stranger := testenv.NewAuthority(t).Issue("client", nil, nil)
	expired := ca.Issue("client", nil, func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) })
	const served, refused = "+PONG\r\n", "-NOPERM this listener takes clients with a certificate only"
	for _, c := range []struct {
		want  tlsconf.ClientCerts
		cert  *testenv.Cert
		reply string // empty: an alert
	}{
		{tlsconf.RequireClientCerts, &own, served}, {tlsconf.RequireClientCerts, nil, refused},
		{tlsconf.RequireClientCerts, &stranger, ""}, {tlsconf.RequireClientCerts, &expired, ""},
		{tlsconf.RequestClientCerts, nil, served}, {tlsconf.RequestClientCerts, &stranger, ""},
	} {
		r := newRig(t, rigOptions{config: func(x *resp.Config) {
			x.TLS = openServerTLS(t, tlsconf.ServerOptions{Cert: proxy.Cert, Key: proxy.Key, ClientCA: ca.CA, ClientCerts: c.want})
		}})
		conf := trusting(ca)
		if c.cert != nil {
			pair, err := tls.LoadX509KeyPair(c.cert.Cert, c.cert.Key)
			if err != nil {
				t.Fatal(err)
			}
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		conn, err := tls.Dial("tcp", r.addr, conf)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, "PING\r\n")
		got, err := bufio.NewReader(conn).ReadString('\n')
		if c.reply == "" && err == nil || c.reply != "" && !strings.HasPrefix(got, c.reply) {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
		conn.Close()
	}
}

// A server that cannot be trusted gets nothing of a client's, its password neither.
func TestUpstreamIsVerified(t *testing.T) {
	s := newTLSServer(t)
	other := testenv.NewAuthority(t)
	for _, o := range []tlsconf.ClientOptions{
		{Mode: tlsconf.VerifyCA, CA: other.CA},
		{Mode: tlsconf.VerifyFull, CA: s.ca.CA, ServerName: "db.example"},
	} {
		r := newRig(t, rigOptions{redis: s.Process, config: func(c *resp.Config) {
			c.Upstream, c.UpstreamTLS = s.addr, openClientTLS(t, o)
		}})
		w := dial(t, r.addr)
		w.send("AUTH default hunter2")
		if got := w.rest(); !strings.HasPrefix(got, "-FENCEDOWN fenceproxy cannot reach the server") {
			t.Errorf("%+v: %q", o, got)
		}
	}
	// A server that wants the proxy's own certificate.
	s = newTLSServer(t, "--tls-auth-clients", "yes")
	own := s.ca.Issue("proxy", nil, nil)
	for _, o := range []tlsconf.ClientOptions{{Mode: tlsconf.VerifyCA, CA: s.ca.CA}, {Mode: tlsconf.VerifyCA, CA: s.ca.CA, Cert: own.Cert, Key: own.Key}} {
		r := newRig(t, rigOptions{redis: s.Process, config: func(c *resp.Config) {
			c.Upstream, c.UpstreamTLS = s.addr, openClientTLS(t, o)
		}})
		w := dial(t, r.addr)
		w.send("PING", "QUIT")
		if got := w.rest(); (got == "+PONG\r\n+OK\r\n") != (o.Cert != "") {
			t.Errorf("%+v: %q", o, got)
		}
	}
	for _, m := range []tlsconf.Mode{tlsconf.Allow, tlsconf.Prefer} {
		c := resp.Config{Upstream: "h:1", UpstreamTLS: openClientTLS(t, tlsconf.ClientOptions{Mode: m})}
		if _, err := resp.New(c); !errors.Is(err, resp.ErrConfig) {
			t.Errorf("%s: %v", m, err)
		}
	}
}

// Sessions go on over a renewal; those that begin behind it see the new certificate.
func TestTLSReload(t *testing.T) {
	ca := testenv.NewAuthority(t)
	cert := ca.Issue("first", []string{"localhost"}, nil)
	down := openServerTLS(t, tlsconf.ServerOptions{Cert: cert.Cert, Key: cert.Key})
	r := newRig(t, rigOptions{config: func(c *resp.Config) { c.TLS = down }})
	connect := func(name string) *wire {
		t.Helper()
		conn, err := tls.Dial("tcp", r.addr, trusting(ca))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; got != name {
			t.Errorf("%s is shown", got)
		}
		return &wire{t: t, Conn: conn, r: bufio.NewReader(conn)}
	}
	w := connect("first")
	ca.Issue("second", []string{"localhost"}, nil).Replace(t, cert)
	if changed, err := down.Reload(); err != nil || !changed {
		t.Fatal(changed, err)
	}
	connect("second").want("PING", "+PONG\r\n")
	w.want("PING", "+PONG\r\n")
}

// socketServer is a Redis that also listens on a Unix socket.
func socketServer(t *testing.T) (p *servers.Process, socket string) {
	t.Helper()
	dir, err := servers.NewDir("sockets")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "redis.sock")
	return testenv.Redis(t, "--unixsocket", socket, "--unixsocketperm", "777"), socket
}

// By Unix sockets on both sides: a leader writes, since the server itself listens.
func TestUnixSockets(t *testing.T) {
	p, socket := socketServer(t)
	listen := filepath.Join(t.TempDir(), "proxy.sock")
	r := newRig(t, rigOptions{redis: p, config: func(c *resp.Config) {
		c.Upstream = socket
		c.TLS = openServerTLS(t, proxyCert(t)) // none on Unix sockets
	}, listen: func() (net.Listener, error) { return protocols.ListenUnix(t.Context(), listen, 0o700) }})
	lead := r.lead(t)
	if out := cli(t, "-s", listen, "--user", r.user("", lead.Token), "--pass", "x", "--no-auth-warning", "SET", "a", "1"); out != "OK" {
		t.Errorf("redis-cli -s: %s", out)
	}
	c, err := net.Dial("unix", listen)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := &wire{t: t, Conn: c, r: bufio.NewReader(c)}
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	w.want("SET a 2", "+OK\r\n")
	w.send("BLPOP nothing 0")
	r.takeOver(t, lead)
	if got := w.rest(); !strings.HasPrefix(got, "-FENCED stale leader") {
		t.Errorf("got %q", got)
	}
	half, err := net.Dial("unix", listen)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	w = &wire{t: t, Conn: half, r: bufio.NewReader(half)}
	w.send("ECHO a")
	_ = half.(*net.UnixConn).CloseWrite()
	if got := w.rest(); got != "$1\r\na\r\n" {
		t.Errorf("got %q", got)
	}
}

func proxyCert(t *testing.T) tlsconf.ServerOptions {
	c := testenv.NewAuthority(t).Issue("proxy", []string{"localhost"}, nil)
	return tlsconf.ServerOptions{Cert: c.Cert, Key: c.Key}
}

// SAFETY: to the server all that comes by its Unix socket looks alike, a pooler's
// connections too, which other sessions use or will: nobody is bound through one.
func TestUnixSocketIsProven(t *testing.T) {
	p, socket := socketServer(t)
	relayed := socket + ".pooler"
	l, err := net.Listen("unix", relayed)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Relay(t, l, socket, nil, nil)
	r := newRig(t, rigOptions{redis: p, config: func(c *resp.Config) { c.Upstream = relayed }})
	lead := r.lead(t)
	w := dial(t, r.addr)
	got := w.ask("FENCE BIND " + lead.Token.Reveal())
	if !strings.HasPrefix(got, "-FENCED refused: a takeover could not end this connection") || !strings.Contains(got, "somebody stands between") {
		t.Errorf("through a pooler: %q", got)
	}
	w.wantPrefix("SET a 1", "-FENCED ")
	w.wantPrefix("GET a", "$-1")
	if list := r.control.ClientList(t.Context()).Val(); strings.Contains(list, "name="+redisfence.Prefix) {
		t.Errorf("a name is on:\n%s", list)
	}
	_ = w.Close()

	direct, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	_, rest, _ := strings.Cut(r.control.Info(t.Context(), "server").Val(), "uptime_in_seconds:")
	up := 0
	if _, err := fmt.Sscan(rest, &up); err != nil {
		t.Fatal(err)
	}
	info := func(pid, uptime any) infoControl {
		return infoControl(fmt.Sprintf("# Server\r\nprocess_id:%v\r\nuptime_in_seconds:%v\r\n", pid, uptime))
	}
	for name, c := range map[string]struct {
		control resp.Control
		want    error
	}{
		"itself":                  {r.control, nil},
		"as it says":              {info(p.PID(), up), nil},
		"another server":          {testenvControl(t, testenv.SharedRedis(t)), resp.ErrPooler},
		"the proxy's own process": {info(os.Getpid(), up), resp.ErrPooler},
		"another start":           {info(p.PID(), up+3600), resp.ErrUnproven},
		"no process id":           {info("", up), resp.ErrUnproven},
		"no start":                {info(p.PID(), ""), resp.ErrUnproven},
	} {
		if err := resp.Direct(t.Context(), direct, c.control); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	tcp, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if err := resp.Direct(t.Context(), tcp, r.control); !errors.Is(err, resp.ErrUnproven) {
		t.Errorf("by TCP: %v", err)
	}
}

// An infoControl answers every command with a text.
type infoControl string

func (s infoControl) Do(ctx context.Context, args ...any) *redis.Cmd {
	c := redis.NewCmd(ctx, args...)
	c.SetVal(string(s))
	return c
}

func testenvControl(t *testing.T, p *servers.Process) resp.Control {
	c := redis.NewClient(&redis.Options{Addr: p.Addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Every server that is supported is reached by TLS and by its Unix socket, and a session is
// bound by either.
func TestLegsOfEachServer(t *testing.T) {
	for _, v := range servers.RedisVersions() {
		t.Run(v.Name, func(t *testing.T) {
			ca := testenv.NewAuthority(t)
			cert := ca.Issue("server", []string{"127.0.0.1"}, nil)
			port, err := servers.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			dir, err := servers.NewDir("sockets")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			socket := filepath.Join(dir, "server.sock")
			p := testenv.RedisVersion(t, v, "--tls-port", fmt.Sprint(port), "--tls-cert-file", cert.Cert, "--tls-key-file", cert.Key,
				"--tls-ca-cert-file", ca.CA, "--tls-auth-clients", "yes", "--unixsocket", socket, "--unixsocketperm", "777")
			up := openClientTLS(t, tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: ca.CA, Cert: cert.Cert, Key: cert.Key})
			for _, upstream := range []string{fmt.Sprintf("127.0.0.1:%d", port), socket} {
				r := newRig(t, rigOptions{redis: p, config: func(c *resp.Config) { c.Upstream, c.UpstreamTLS = upstream, up }})
				w := dial(t, r.addr)
				w.want("FENCE BIND "+r.lead(t).Token.Reveal(), "+OK\r\n")
				w.want("SET a 1", "+OK\r\n")
			}
		})
	}
}

// The pump that reads a client is woken by deadlines in the middle of whatever it reads: no
// byte is lost to that in TLS either, however the bytes are cut.
func TestTLSPipelines(t *testing.T) {
	s := newTLSServer(t)
	proxy := s.ca.Issue("proxy", []string{"localhost"}, nil)
	r := newRig(t, rigOptions{redis: s.Process, config: func(c *resp.Config) {
		c.Upstream, c.UpstreamTLS = s.addr, openClientTLS(t, tlsconf.ClientOptions{Mode: tlsconf.VerifyCA, CA: s.ca.CA})
		c.TLS = openServerTLS(t, tlsconf.ServerOptions{Cert: proxy.Cert, Key: proxy.Key})
	}})
	lead := r.lead(t)
	const rounds = 100
	var all []byte
	value := strings.Repeat("v", 3000)
	for i := range rounds {
		all = fmt.Appendf(all, "FENCE BIND %s\r\nSET k %s%d\r\nGET k\r\nFENCE UNBIND\r\nSET k x\r\nECHO %d\r\n", lead.Token.Reveal(), value, i, i)
	}
	for _, size := range []int{len(all), 16384, 997, 64} {
		conn, err := tls.Dial("tcp", r.addr, trusting(s.ca))
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() {
			for b := all; len(b) > 0; b = b[min(size, len(b)):] {
				if _, err := conn.Write(b[:min(size, len(b))]); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		w := &wire{t: t, Conn: conn, r: bufio.NewReader(conn)}
		for i := range rounds {
			for _, want := range []string{"+OK\r\n", "+OK\r\n", fmt.Sprintf("$%d\r\n%s%d\r\n", len(value)+len(fmt.Sprint(i)), value, i), "+OK\r\n", "-FENCED ", fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i)} {
				if got := w.reply(); !strings.HasPrefix(got, want) {
					t.Fatalf("pieces of %d, round %d: got %.100q, want %.100q", size, i, got, want)
				}
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		conn.Close()
	}
}
