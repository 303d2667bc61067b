package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// serve runs a server with an open and an API handler until the test ends.
func serve(t *testing.T, c Config, l net.Listener) {
	t.Helper()
	s := New(c)
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := map[string]any{}
		if ReadJSON(w, r, &v) {
			WriteJSON(w, http.StatusOK, v)
		}
	})
	s.Open("/open", ok)
	s.API("POST /api/{id}", ok)
	s.API("GET /stream", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := NewStream(w)
		_ = st.Send(map[string]int{"line": 1})
		<-r.Context().Done()
		_ = st.Send(map[string]int{"line": 2})
	}))
	begin(t, s, l)
}

// begin has a server serve until the test ends.
func begin(t *testing.T, s *Server, l net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func listen(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ask is the status and the code of an answer.
func ask(t *testing.T, c *http.Client, method, url, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var v struct{ Error Error }
	b, _ := io.ReadAll(res.Body)
	if err := json.Unmarshal(b, &v); err != nil {
		t.Errorf("%s %s: %q is no JSON", method, url, b)
	}
	return res.StatusCode, v.Error.Code
}

func client(t *testing.T, tr *http.Transport) *http.Client {
	t.Helper()
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestWhoMayUseTheAPI(t *testing.T) {
	const token = "0123456789abcdef0123"
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, Config{}, l)
	guarded := listen(t, "tcp", "127.0.0.1:0")
	serve(t, Config{Token: token}, guarded)
	c := client(t, &http.Transport{})
	for _, k := range []struct {
		name   string
		at     net.Listener
		method string
		path   string
		header []string
		status int
		code   string
	}{
		{"loopback", l, "POST", "/api/1", nil, 200, ""},
		{"by another name", l, "POST", "/api/1", []string{"Host", "rebound.example:80"}, 403, "forbidden"},
		{"of another page", l, "POST", "/api/1", []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross-origin"},
		{"of another origin", l, "POST", "/api/1", []string{"Origin", "https://evil.example"}, 403, "cross-origin"},
		{"health to all", l, "GET", "/open", []string{"Host", "any.example"}, 200, ""},
		{"no token", guarded, "POST", "/api/1", nil, 401, "unauthenticated"},
		{"wrong token", guarded, "POST", "/api/1", []string{"Authorization", "Bearer " + token[1:]}, 401, "unauthenticated"},
		{"the digest is no token", guarded, "POST", "/api/1", []string{"Authorization", "Bearer set"}, 401, "unauthenticated"},
		{"wrong scheme", guarded, "POST", "/api/1", []string{"Authorization", "Basic " + token}, 401, "unauthenticated"},
		{"token", guarded, "POST", "/api/1", []string{"Authorization", "bearer " + token}, 200, ""},
		{"token, by any name", guarded, "POST", "/api/1", []string{"Authorization", "Bearer " + token, "Host", "p.example"}, 200, ""},
		{"token, of another page", guarded, "POST", "/api/1", []string{"Authorization", "Bearer " + token, "Origin", "https://evil.example"}, 403, "cross-origin"},
		{"health without token", guarded, "GET", "/open", nil, 200, ""},
		{"no such path", l, "GET", "/nothing", nil, 404, "not-found"},
		{"no such method", l, "DELETE", "/api/1", nil, 405, "method-not-allowed"},
	} {
		status, code := ask(t, c, k.method, "http://"+k.at.Addr().String()+k.path, "", k.header...)
		if status != k.status || code != k.code {
			t.Errorf("%s: %d %q, want %d %q", k.name, status, code, k.status, k.code)
		}
	}
}

// Without authentication only this machine is served, whatever is listened on.
func TestOtherMachinesAreRefused(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "tcp", ":0")
	serve(t, Config{}, l)
	c := client(t, &http.Transport{})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.To4() == nil {
			continue
		}
		want := http.StatusForbidden
		if ip.IP.IsLoopback() {
			want = http.StatusOK
		}
		if status, _ := ask(t, c, "POST", "http://"+net.JoinHostPort(ip.IP.String(), port)+"/api/1", ""); status != want {
			t.Errorf("%v: %d, want %d", ip, status, want)
		}
	}
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, Config{}, listen(t, "unix", socket))
	u := client(t, &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}})
	if status, _ := ask(t, u, "POST", "http://socket/api/1", ""); status != http.StatusOK {
		t.Errorf("by the socket: %d", status)
	}
}

// A certificate is as good as a token; one that another authority signed is refused in the
// handshake.
func TestClientCertificates(t *testing.T) {
	ca := testenv.NewAuthority(t)
	own, caller := ca.Issue("proxy", []string{"localhost"}, nil), ca.Issue("caller", nil, nil)
	server, err := tlsconf.OpenServer(tlsconf.ServerOptions{Cert: own.Cert, Key: own.Key, Required: true, ClientCA: ca.CA, ClientCerts: tlsconf.RequestClientCerts})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, Config{TLS: server}, l)
	pair, err := tls.LoadX509KeyPair(caller.Cert, caller.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	url := "https://" + l.Addr().String()
	bare := client(t, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}})
	shown := client(t, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}})
	if status, code := ask(t, bare, "POST", url+"/api/1", ""); status != 401 || code != "unauthenticated" {
		t.Error(status, code)
	}
	if status, _ := ask(t, bare, "GET", url+"/open", ""); status != 200 {
		t.Error(status)
	}
	if status, code := ask(t, shown, "POST", url+"/api/1", ""); status != 200 {
		t.Error(status, code)
	}
}

func TestBodies(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, Config{}, l)
	c := client(t, &http.Transport{})
	for body, want := range map[string]string{
		"":                        "200 ",
		`{"a": 1}`:                "200 ",
		`{"a": 1} {}`:             "400 bad-json",
		`{"token": "secret`:       "400 bad-json",
		`{"a": 1, "b": {"a": 2}}`: "200 ",
		`{"a": 1, "A": 2}`:        "400 bad-json",
		`[1]`:                     "400 bad-json",
		"\"" + strings.Repeat("x", MaxBody) + "\"": "413 too-large",
	} {
		status, code := ask(t, c, "POST", "http://"+l.Addr().String()+"/api/1", body)
		if got := fmt.Sprintf("%d %s", status, code); got != want {
			t.Errorf("%.20q: %s, want %s", body, got, want)
		}
	}
	if status, code := ask(t, c, "POST", "http://"+l.Addr().String()+"/api/1", "{}", "Content-Type", "text/plain"); status != 415 {
		t.Error(status, code)
	}
	// A header that is too long is refused by net/http itself.
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "GET /open HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", bytes.Repeat([]byte{'x'}, 1<<20))
	if line, _ := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 431") {
		t.Errorf("%q", line)
	}
}

// Headers and bodies that come byte by byte have their time, however slowly they come on.
func TestSlowCallers(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	s := New(Config{})
	s.headerTimeout, s.bodyTimeout = 300*time.Millisecond, 300*time.Millisecond
	s.API("POST /api", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := map[string]any{}
		if ReadJSON(w, r, &v) {
			WriteJSON(w, http.StatusOK, v)
		}
	}))
	s.API("POST /unread", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		WriteError(w, &Error{Code: "no"})
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	const head = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
	for name, c := range map[string]struct{ begin, drip, want string }{
		"header":      {"GET /api HTTP/1.1\r\nHost: localhost\r\n", "X: y\r\n", ""},
		"body":        {fmt.Sprintf(head, "/api"), " ", "HTTP/1.1 408 "},
		"unread body": {fmt.Sprintf(head, "/unread"), " ", "HTTP/1.1 400 "},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var dripping sync.WaitGroup
			dripping.Go(func() {
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				_, err := io.WriteString(conn, c.begin)
				for err == nil {
					<-tick.C
					_, err = io.WriteString(conn, c.drip)
				}
			})
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			// The connection is closed, or reset with what was sent unread.
			b, err := io.ReadAll(conn)
			if os.IsTimeout(err) || !strings.HasPrefix(string(b), c.want) || c.want == "" && strings.HasPrefix(string(b), "HTTP/1.1 2") {
				t.Errorf("%q %v, want %s", b, err, c.want)
			}
			_ = conn.Close()
			dripping.Wait()
		})
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Connections above the bound are told and closed, and one that ends makes room.
func TestMaxConns(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, Config{MaxConns: 1}, l)
	dial := func() net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	answers := func(conn net.Conn) bool {
		_, _ = fmt.Fprint(conn, "GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n")
		line, _ := bufio.NewReader(conn).ReadString('\n')
		return strings.HasPrefix(line, "HTTP/1.1 200")
	}
	first := dial()
	if !answers(first) {
		t.Error("the first is not answered")
	}
	second := dial()
	defer second.Close()
	_, _ = fmt.Fprint(second, "GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n")
	told := bufio.NewReader(second)
	res, err := http.ReadResponse(told, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var v struct{ Error Error }
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil || res.StatusCode != 503 || v.Error.Code != "too-many-connections" {
		t.Errorf("the second is answered: %d %+v %v", res.StatusCode, v, err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	if n, err := told.ReadByte(); err != io.EOF {
		t.Errorf("behind the answer: %q %v", n, err)
	}
	_ = first.Close()
	testenv.Eventually(t, "there is room again", func() bool {
		conn := dial()
		defer conn.Close()
		return answers(conn)
	})
}

// However many calls stay, health is answered; further calls are told.
func TestCallsLeaveRoomForHealth(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	serve(t, Config{MaxConns: 4}, l)
	c := client(t, &http.Transport{})
	url := "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/stream", nil)
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
	}
	if status, code := ask(t, c, "POST", url+"/api/1", ""); status != 503 || code != "too-many-calls" {
		t.Error(status, code)
	}
	testenv.Eventually(t, "health is answered", func() bool {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/open", nil)
		res, err := c.Do(r) // the connection of the call before may not be closed yet
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
	cancel()
	testenv.Eventually(t, "there is room again", func() bool {
		status, _ := ask(t, c, "POST", url+"/api/1", "")
		return status == http.StatusOK
	})
}

// A stream goes on until the server stops, and its last line still comes.
func TestStreamsEndWithTheServer(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	s := New(Config{Drain: time.Minute})
	s.API("GET /stream", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := NewStream(w)
		_ = st.Send("first")
		<-r.Context().Done()
		_ = st.Send("last")
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	c := client(t, &http.Transport{})
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/stream", nil)
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b := bufio.NewReader(res.Body)
	first, _ := b.ReadString('\n')
	cancel()
	last, _ := b.ReadString('\n')
	if _, err := b.ReadString('\n'); err != io.EOF || first != "\"first\"\n" || last != "\"last\"\n" {
		t.Errorf("%q %q %v", first, last, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
