package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A secured is a server with TLS, the fence in it, and what its listeners need.
type secured struct {
	*servers.Process
	ca            *testenv.Authority
	server, proxy testenv.Cert
	control       string
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	ca := testenv.NewAuthority(t)
	s := &secured{ca: ca, server: ca.Issue("db", []string{"127.0.0.1"}, nil), proxy: ca.Issue("proxy", []string{"127.0.0.1"}, nil)}
	s.Process = testenv.Postgres(t, servers.PostgresOptions{Settings: []string{"ssl=on", "ssl_cert_file=" + s.server.Cert, "ssl_key_file=" + s.server.Key},
		HBA: "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhostssl all all 127.0.0.1/32 trust\n"})
	if r := command(t, "", "install", "--elections", "--dsn", s.DSN(servers.Superuser, "postgres")); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	conn, err := pgx.Connect(t.Context(), s.DSN(servers.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{"CREATE ROLE app LOGIN", "CREATE TABLE things (name text)", "GRANT ALL ON things TO app"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	s.control = fmt.Sprintf("postgres://fenceproxy@%s/postgres?sslmode=verify-full&sslrootcert=%s", s.Addr, ca.CA)
	return s
}

// leader acquires the election and returns its token.
func (s *secured) leader(t *testing.T, id string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if r := command(t, "", "election", "acquire", id, "--backend", s.control, "--save-token", file); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// relay stands for a pooler: it takes clients at a Unix socket and passes what they say on
// to another one.
func relay(t *testing.T, from, to string) {
	t.Helper()
	l, err := net.Listen("unix", from)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Relay(t, l, to, nil, nil)
}

// TestServeWithTLSAndSockets: each listener's leader writes, with TLS on both legs and by
// Unix sockets on both; but not where somebody stands before the server's socket, whose
// sessions a takeover could not be sure to end.
func TestServeWithTLSAndSockets(t *testing.T) {
	s := newSecured(t)
	dir := t.TempDir()
	id, addr := testenv.Name(t, "serve"), freeAddr(t)
	socket := filepath.Join(s.Dir, fmt.Sprintf(".s.PGSQL.%d", s.Port()))
	relayed := filepath.Join(dir, "pooler")
	relay(t, relayed, socket)
	file := configFile(t, `elections: {backend: "%[1]s"}
listeners:
  - name: tls
    protocol: postgres
    listen: %[2]s
    upstream: %[3]s
    control: "%[1]s"
    election: %[4]s
    tls: {cert: %[5]s, key: %[6]s}
    upstream_tls: {mode: verify-full, ca: %[7]s}
  - name: socket
    protocol: postgres
    listen: %[8]s:6432
    socket_mode: 0700
    upstream: %[9]s:%[10]d
    control: postgres://fenceproxy@/postgres?host=%[9]s&port=%[10]d
    election: %[4]s
  - name: pooler
    protocol: postgres
    listen: %[8]s:6433
    upstream: %[11]s
    control: postgres://fenceproxy@/postgres?host=%[9]s&port=%[10]d
    election: %[4]s
`, s.control, addr, s.Addr, id, s.proxy.Cert, s.proxy.Key, s.ca.CA, dir, s.Dir, s.Port(), relayed)

	r := command(t, "", "check", "-c", file)
	for _, want := range []string{
		"warn  tls: tls: " + s.proxy.Cert + ": CN=proxy is about to expire", "ok    tls: upstream " + s.Addr + " answers as postgres, TLS 1.3, certificate CN=db until ",
		"ok    socket: can listen on " + dir + ":6432", "ok    socket: upstream " + s.Dir, "answers as postgres, without TLS",
		"warn  pooler: control leads to ",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("check does not say %q", want)
		}
	}
	if r.code != exitOK || strings.Contains(r.out, "fail") {
		t.Fatalf("%+v", r)
	}

	proxy := serve(t, file, addr, "listener=tls", "listener=socket", "listener=pooler")
	token := s.leader(t, id)
	urls := map[string]string{
		"tls":    fmt.Sprintf("postgres://app@%s/postgres?sslmode=verify-full&sslrootcert=%s", addr, s.ca.CA),
		"socket": fmt.Sprintf("postgres://app@/postgres?host=%s&port=6432", dir),
		"pooler": fmt.Sprintf("postgres://app@/postgres?host=%s&port=6433", dir),
	}
	write := func(name string) error {
		conn, err := pgx.Connect(t.Context(), urls[name]+"&options=-c%20fence.token%3D"+token)
		if err != nil {
			return err
		}
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), "INSERT INTO things VALUES ($1)", name)
		return err
	}
	for _, name := range []string{"tls", "socket"} {
		if err := write(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var refused *pgconn.PgError
	if err := write("pooler"); !errors.As(err, &refused) || refused.Code != "FP007" {
		t.Errorf("through a pooler: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, ".s.PGSQL.6432")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	if _, err := pgx.Connect(t.Context(), fmt.Sprintf("postgres://app@%s/postgres?sslmode=disable", addr)); !errors.As(err, &refused) || refused.Code != "28000" {
		t.Errorf("without TLS: %v", err)
	}

	// Another proxy does not take the socket away.
	if r := command(t, "", "serve", "-c", file); r.code != exitFailure {
		t.Errorf("a second proxy: %+v", r)
	}
	if err := write("socket"); err != nil {
		t.Error(err)
	}
	_ = proxy.Process.Signal(syscall.SIGTERM)
	if code := proxy.ended(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(proxy.log.String(), token) || strings.Contains(proxy.log.String(), "PRIVATE KEY") {
		t.Error("a secret is in the log")
	}
	if _, err := os.Stat(filepath.Join(dir, ".s.PGSQL.6432")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays behind: %v", err)
	}
}

// TestReloadOfCertificates: on SIGHUP new connections see the new certificate, sessions
// that run go on, and a file that cannot be used changes nothing.
func TestReloadOfCertificates(t *testing.T) {
	s := newSecured(t)
	addr := freeAddr(t)
	file := configFile(t, postgresConfig+"    tls: {cert: %s, key: %s}\n", s.control, addr, s.Addr, s.control, testenv.Name(t, "serve"), s.proxy.Cert, s.proxy.Key)
	proxy := serve(t, file, addr)
	url := fmt.Sprintf("postgres://app@%s/postgres?sslmode=verify-full&sslrootcert=%s", addr, s.ca.CA)
	connect := func() (*pgx.Conn, string) {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn, conn.PgConn().Conn().(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	running, name := connect()
	if name != "proxy" {
		t.Error(name)
	}
	hangup := func() { _ = proxy.Process.Signal(syscall.SIGHUP) }
	until := func(want string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; {
			if _, name := connect(); name == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s is not shown", want)
			}
		}
	}
	s.ca.Issue("renewed", []string{"127.0.0.1"}, nil).Replace(t, s.proxy)
	hangup()
	until("renewed")

	for _, broken := range []string{"", "-----BEGIN CERTIFICATE-----\nnonsense\n"} {
		if err := os.WriteFile(s.proxy.Cert, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		hangup()
		if _, name := connect(); name != "renewed" {
			t.Error(name)
		}
	}
	if r := command(t, "", "check", "-c", file); r.code != exitFailure || !strings.Contains(r.out, "fail  db: tls: a TLS file cannot be used: "+s.proxy.Cert+": holds no certificate in PEM form") {
		t.Errorf("%+v", r)
	}
	s.ca.Issue("again", []string{"127.0.0.1"}, nil).Replace(t, s.proxy)
	hangup()
	until("again")
	if _, err := running.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("the session that ran: %v", err)
	}
	_ = proxy.Process.Signal(syscall.SIGTERM)
	proxy.ended(t)
	if log := proxy.log.String(); strings.Count(log, "cannot be used: the old ones stay in use") < 1 || strings.Count(log, "certificate files read again") != 2 {
		t.Errorf("the log:\n%s", log)
	}
}

// TestCheckOfCertificates: what check says of certificates and keys.
func TestCheckOfCertificates(t *testing.T) {
	s := newSecured(t)
	other := testenv.NewAuthority(t)
	expired := s.ca.Issue("expired", nil, func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) })
	early := s.ca.Issue("early", nil, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	})
	long := s.ca.Issue("long", []string{"127.0.0.1"}, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(100 * 24 * time.Hour) })
	if err := os.Chmod(long.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		keys string
		code int
		want []string
	}{
		"long":          {fmt.Sprintf("tls: {cert: %s, key: %s}", long.Cert, long.Key), exitOK, []string{"ok    db: tls: " + long.Cert + ": CN=long, until ", "warn  db: everybody may read the private key " + long.Key, "answers as postgres, TLS 1.3", ", not verified"}},
		"expired":       {fmt.Sprintf("tls: {cert: %s, key: %s}", expired.Cert, expired.Key), exitFailure, []string{"fail  db: tls: " + expired.Cert + ": CN=expired is expired (from "}},
		"early":         {fmt.Sprintf("tls: {cert: %s, key: %s}", early.Cert, early.Key), exitFailure, []string{"CN=early is not valid yet"}},
		"soon":          {fmt.Sprintf("tls: {cert: %s, key: %s}", s.proxy.Cert, s.proxy.Key), exitOK, []string{"CN=proxy is about to expire"}},
		"another's key": {fmt.Sprintf("tls: {cert: %s, key: %s}", s.proxy.Cert, long.Key), exitFailure, []string{"fail  db: tls: a TLS file cannot be used: " + long.Key + ": tls: private key does not match public key"}},
		"no file":       {fmt.Sprintf("tls: {cert: %s, key: nonesuch}", s.proxy.Cert), exitFailure, []string{"fail  db: tls: a TLS file cannot be used: stat ", "nonesuch: no such file or directory"}},
		"no authority":  {fmt.Sprintf("tls: {cert: %s, key: %s, client_ca: %s}", s.proxy.Cert, s.proxy.Key, s.proxy.Key), exitFailure, []string{s.proxy.Key + ": holds no certificate in PEM form"}},
		"unknown":       {fmt.Sprintf("upstream_tls: {mode: verify-ca, ca: %s}", other.CA), exitFailure, []string{"fail  db: upstream " + s.Addr + ": TLS with the server: ", "signed by unknown authority", "in upstream_tls.ca of the listener at "}},
		"name":          {fmt.Sprintf("upstream_tls: {mode: verify-full, ca: %s, server_name: db.example}", s.ca.CA), exitFailure, []string{"in upstream_tls.server_name of the listener at "}},
		"own, expired":  {fmt.Sprintf("upstream_tls: {mode: require, cert: %s, key: %s}", expired.Cert, expired.Key), exitFailure, []string{"fail  db: upstream_tls: " + expired.Cert + ": CN=expired is expired"}},
	} {
		file := configFile(t, postgresConfig+"    %s\n", s.control, "127.0.0.1:0", s.Addr, s.control, "x", c.keys)
		r := command(t, "", "check", "-c", file)
		if r.code != c.code {
			t.Errorf("%s: code %d", name, r.code)
		}
		for _, want := range c.want {
			if !strings.Contains(r.out, want) {
				t.Errorf("%s: no %q in\n%s", name, want, r.out)
			}
		}
		if strings.Contains(r.out, "PRIVATE KEY") {
			t.Errorf("%s: a key is printed", name)
		}
	}
}
