package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// TestServeRedisWithTLSAndSockets: each listener's leader writes, with TLS on both legs and
// on the control connection, by certificates on all of them, and by Unix sockets on both; but
// not where somebody stands before the server's socket.
func TestServeRedisWithTLSAndSockets(t *testing.T) {
	ca := testenv.NewAuthority(t)
	server, proxy := ca.Issue("redis", []string{"127.0.0.1"}, nil), ca.Issue("proxy", []string{"127.0.0.1"}, nil)
	dir, err := servers.NewDir("sockets")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket, relayed := filepath.Join(dir, "redis.sock"), filepath.Join(dir, "pooler.sock")
	secure := freeAddr(t)
	_, port, _ := net.SplitHostPort(secure)
	// Nobody may connect without a certificate; the control user has no more than its rights.
	p := testenv.Redis(t, "--tls-port", port, "--tls-cert-file", server.Cert, "--tls-key-file", server.Key, "--tls-ca-cert-file", ca.CA,
		"--unixsocket", socket, "--unixsocketperm", "777")
	ctx := testenv.Context(t)
	admin := redis.NewClient(&redis.Options{Addr: p.Addr})
	defer admin.Close()
	rules := append([]any{"ACL", "SETUSER", "control", "on", ">p@ss/word"}, anys(strings.Fields(redisfence.Rules))...)
	if err := admin.Do(ctx, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	relay(t, relayed, socket)
	t.Setenv("CONTROL_PASSWORD", "p@ss/word")
	id, addr, listen := testenv.Name(t, "serve"), freeAddr(t), filepath.Join(dir, "proxy.sock")
	file := configFile(t, `elections: {backend: "redis://%[1]s"}
listeners:
  - name: tls
    protocol: redis
    listen: %[2]s
    upstream: %[3]s
    control: rediss://control:${CONTROL_PASSWORD}@%[3]s
    election: %[4]s
    tls: {cert: %[5]s, key: %[6]s}
    upstream_tls: {mode: verify-full, ca: %[7]s, cert: %[5]s, key: %[6]s}
  - name: socket
    protocol: valkey
    listen: %[8]s
    socket_mode: 0700
    upstream: %[9]s
    control: unix://control:${CONTROL_PASSWORD}@%[9]s
    election: %[4]s
  - name: pooler
    protocol: redis
    listen: %[8]s.2
    upstream: %[10]s
    control: unix://control:${CONTROL_PASSWORD}@%[9]s
    election: %[4]s
`, p.Addr, addr, secure, id, proxy.Cert, proxy.Key, ca.CA, listen, socket, relayed)

	r := command(t, "", "check", "-c", file)
	for _, want := range []string{
		"ok    tls: upstream " + secure + " answers as redis, TLS 1.3, certificate CN=redis until ", "ok    tls: control connection rediss://control:",
		"ok    socket: can listen on " + listen, "ok    socket: upstream " + socket + " answers as valkey, by its socket",
		"ok    socket: control connection unix://control:", "fail  pooler: upstream " + relayed + ": somebody stands between the Unix socket and the server",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("check does not say %q", want)
		}
	}
	if r.code != exitFailure || strings.Count(r.out, "fail  ") != 1 {
		t.Fatalf("%+v", r)
	}

	running := serve(t, file, addr, "listener=tls", "listener=socket", "listener=pooler")
	got, _ := keys(t, command(t, "", "election", "acquire", id, "--backend", "redis://"+p.Addr, "--json").out)
	token := got["token"].(string)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	for _, c := range []struct {
		name string
		o    redis.Options
		want string
	}{
		{"tls", redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}, ""},
		{"socket", redis.Options{Network: "unix", Addr: listen}, ""},
		{"pooler", redis.Options{Network: "unix", Addr: listen + ".2"}, "FENCED refused: a takeover could not end this connection"},
	} {
		c.o.Username, c.o.Password, c.o.MaxRetries = ";token="+token, "x", -1
		client := redis.NewClient(&c.o)
		err := client.Set(ctx, "k", c.name, 0).Err()
		if (err == nil) != (c.want == "") || err != nil && !redis.HasErrorPrefix(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		_ = client.Close()
	}
	if info, err := os.Stat(listen); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	_ = running.Process.Signal(syscall.SIGTERM)
	if code := running.ended(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if log := running.log.String(); strings.Contains(log, token) || strings.Contains(log, "p@ss") {
		t.Errorf("a secret in the log:\n%s", log)
	}
	if _, err := os.Stat(listen); !os.IsNotExist(err) {
		t.Errorf("the socket stays behind: %v", err)
	}
}

// TestCheckOfRedisTLS: what check says of a server that cannot be connected to as the file
// says.
func TestCheckOfRedisTLS(t *testing.T) {
	ca, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
	server := ca.Issue("redis", []string{"127.0.0.1"}, nil)
	secure := freeAddr(t)
	_, port, _ := net.SplitHostPort(secure)
	p := testenv.Redis(t, "--tls-port", port, "--tls-cert-file", server.Cert, "--tls-key-file", server.Key, "--tls-ca-cert-file", ca.CA, "--tls-auth-clients", "no")
	for name, c := range map[string]struct {
		upstream, control, keys string
		code                    int
		want                    []string
	}{
		"not verified": {secure, "rediss://" + secure, "{mode: require}", exitOK, []string{"answers as redis, TLS 1.3, ", ", not verified", "ok    db: control connection rediss://"}},
		"verified":     {secure, "rediss://" + secure, fmt.Sprintf("{mode: require, ca: %s}", ca.CA), exitOK, []string{"answers as redis, TLS 1.3, certificate CN=redis until "}},
		"unknown":      {secure, "rediss://" + secure, fmt.Sprintf("{mode: verify-ca, ca: %s}", other.CA), exitFailure, []string{"signed by unknown authority", "in upstream_tls.ca of the listener at ", "fail  db: control connection"}},
		"name":         {secure, "rediss://" + secure, fmt.Sprintf("{mode: verify-full, ca: %s, server_name: db.example}", ca.CA), exitFailure, []string{"in upstream_tls.server_name of the listener at "}},
		"no TLS there": {p.Addr, "redis://" + p.Addr, "{mode: require}", exitFailure, []string{"TLS with the server: context deadline exceeded", "Name the server's TLS port (tls-port) in upstream"}},
		"only TLS":     {secure, "rediss://" + secure, "{mode: disable}", exitFailure, []string{"accepts connections but does not answer", "If this is the server's tls-port, set upstream_tls of", "in upstream_tls.ca of"}},
		"control too":  {secure, "redis://" + secure, "{mode: disable}", exitFailure, []string{"If this is the server's tls-port, begin control of"}},
	} {
		file := configFile(t, "elections: {backend: \"redis://%s\"}\nlisteners:\n  - {name: db, protocol: redis, listen: 127.0.0.1:0, upstream: \"%s\", control: \"%s\", upstream_tls: %s}\n",
			p.Addr, c.upstream, c.control, c.keys)
		r := command(t, "", "check", "-c", file, "--timeout", "2s")
		if r.code != c.code {
			t.Errorf("%s: code %d", name, r.code)
		}
		for _, want := range c.want {
			if !strings.Contains(r.out, want) {
				t.Errorf("%s: no %q in\n%s", name, want, r.out)
			}
		}
	}
}

// TestServeClusterWithTLS: in front of a cluster, TLS is on every leg: to clients, on each
// node's port too, to the nodes, and on the control connections.
func TestServeClusterWithTLS(t *testing.T) {
	ca := testenv.NewAuthority(t)
	server, proxy := ca.Issue("redis", []string{"127.0.0.1"}, nil), ca.Issue("proxy", []string{"127.0.0.1"}, nil)
	secure, nodePort := freeAddr(t), freeAddr(t)
	_, port, _ := net.SplitHostPort(secure)
	_, nodes, _ := net.SplitHostPort(nodePort)
	bus, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p := testenv.Redis(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus), "--tls-cluster", "yes", "--tls-port", port,
		"--tls-cert-file", server.Cert, "--tls-key-file", server.Key, "--tls-ca-cert-file", ca.CA)
	ctx := testenv.Context(t)
	admin := redis.NewClient(&redis.Options{Addr: p.Addr})
	defer admin.Close()
	if err := admin.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the cluster is up", func() bool {
		info, err := admin.ClusterInfo(ctx).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	elections := testenv.Redis(t)
	id, addr := testenv.Name(t, "serve"), freeAddr(t)
	file := configFile(t, `elections: {backend: "redis://%s"}
listeners:
  - name: cache
    protocol: redis
    listen: "%s"
    upstream: "redis+cluster://%[3]s"
    control: "rediss+cluster://%[3]s"
    election: %[4]s
    cluster: {ports: [%[5]s]}
    tls: {cert: %[6]s, key: %[7]s, client_ca: %[8]s}
    upstream_tls: {mode: verify-full, ca: %[8]s, cert: %[6]s, key: %[7]s}
`, elections.Addr, addr, secure, id, nodes, proxy.Cert, proxy.Key, ca.CA)
	if r := command(t, "", "check", "-c", file); r.code != exitOK || !strings.Contains(r.out, "node "+secure+" answers as redis: a primary with 16384 slots, TLS 1.3") {
		t.Fatalf("%+v", r)
	}
	serve(t, file, addr)
	got, _ := keys(t, command(t, "", "election", "acquire", id, "--backend", "redis://"+elections.Addr, "--json").out)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	own, err := tls.LoadX509KeyPair(proxy.Cert, proxy.Key)
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, TLSConfig: conf, Username: ";token=" + got["token"].(string), Password: "x"})
	defer client.Close()
	if err := client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if slots := client.Do(ctx, "CLUSTER", "SLOTS").String(); !strings.Contains(slots, "[127.0.0.1 "+nodes+" ") || strings.Contains(slots, port) {
		t.Error(slots)
	}
	conn, err := tls.Dial("tcp", nodePort, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if b, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(b), "-NOPERM this listener takes clients with a certificate only") {
		t.Errorf("without a certificate: %q, %v", b, err)
	}
}
