package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A respConn is a raw connection, so that the test itself holds nothing of what passes.
type respConn struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func rawRedis(t testing.TB, dial func() (net.Conn, error), c guard.Credential) *respConn {
	t.Helper()
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	w := &respConn{t, conn, bufio.NewReaderSize(conn, 64<<10)}
	if c.Election != "" {
		w.say("FENCE BIND " + c.Election + " " + c.Token.Reveal() + "\r\n")
		w.want("+OK")
	}
	return w
}

func (w *respConn) say(s string) {
	w.t.Helper()
	if _, err := io.WriteString(w, s); err != nil {
		w.t.Fatal(err)
	}
}

func (w *respConn) line() string {
	w.t.Helper()
	s, err := w.r.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(s)
}

func (w *respConn) want(prefix string) {
	w.t.Helper()
	if got := w.line(); !strings.HasPrefix(got, prefix) {
		w.t.Fatalf("got %q, want %q", got, prefix)
	}
}

// value reads a bulk and returns its length.
func (w *respConn) value() int64 {
	w.t.Helper()
	n, err := strconv.ParseInt(strings.TrimPrefix(w.line(), "$"), 10, 64)
	if err == nil {
		_, err = io.CopyN(io.Discard, w.r, n+2)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// fill sends so many bytes of a value.
func (w *respConn) fill(n int64) {
	w.t.Helper()
	block := bytes.Repeat([]byte("v"), 256<<10)
	for ; n > 0; n -= int64(len(block)) {
		if _, err := w.Write(block[:min(n, int64(len(block)))]); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A legs is how clients reach a proxy, and it its server.
type legs struct {
	listener string // more of its configuration
	dial     func(addr string) (net.Conn, error)
}

func plainLegs() legs {
	return legs{dial: func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }}
}

// tlsLegs are TLS to clients and, where secure is its address, to the server.
func tlsLegs(t *testing.T, ca *testenv.Authority, secure string) legs {
	t.Helper()
	cert := ca.Issue("proxy", []string{"127.0.0.1"}, nil)
	l := legs{listener: fmt.Sprintf("\ntls: {cert: %s, key: %s}", cert.Cert, cert.Key)}
	if secure != "" {
		l.listener += fmt.Sprintf("\nupstream_tls: {mode: verify-full, ca: %s}", ca.CA)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	conf := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	l.dial = func(addr string) (net.Conn, error) { return tls.Dial("tcp", addr, conf) }
	return l
}

// R12: much data passes through a proxy of a small size: a value of 512 MB in and out, one
// that is refused, 1,000,000 commands in one pipeline, a client that does not read, a server
// that does not. In TLS it is less, but for the long version.
func TestRedisMemoryOfMuchData(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		r := newRedisResource(t, testenv.Context(t))
		unread := 4_000
		if long() {
			unread = 40_000
		}
		testRedisMuchData(t, r, r.server.Addr, plainLegs(), 512<<20, 1_000_000, unread)
	})
	t.Run("TLS", func(t *testing.T) {
		size, pipelined := int64(64<<20), 100_000
		if long() {
			size, pipelined = 512<<20, 1_000_000
		}
		ca := testenv.NewAuthority(t)
		cert := ca.Issue("redis", []string{"127.0.0.1"}, nil)
		port, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		r := newRedisResource(t, testenv.Context(t), "--tls-port", strconv.Itoa(port), "--tls-cert-file", cert.Cert, "--tls-key-file", cert.Key,
			"--tls-ca-cert-file", ca.CA, "--tls-auth-clients", "no")
		secure := fmt.Sprintf("127.0.0.1:%d", port)
		testRedisMuchData(t, r, secure, tlsLegs(t, ca, secure), size, pipelined, 4_000)
	})
}

func testRedisMuchData(t *testing.T, r *redisResource, upstream string, by legs, size int64, pipelined, unread int) {
	const most = 64 << 20 // over the idle size
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	// A machine that is busy with this may leave questions to the election backend waiting.
	p := testenv.StartProxy(t, url, strings.Replace(r.listener(), "upstream: "+r.server.Addr, "upstream: "+upstream, 1)+by.listener, "guard: {permit: 10m}")
	c, _ := lead(t, ctx, b, "e", "a", time.Hour)
	raw := func(t testing.TB, c guard.Credential) *respConn {
		t.Helper()
		return rawRedis(t, func() (net.Conn, error) { return by.dial(p.Addr) }, c)
	}
	warm := raw(t, c)
	warm.say("GET none\r\n")
	warm.want("$-1")
	idle := memoryOf(t, p, "VmRSS")
	run := func(name string, do func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			forget(t, p)
			start := time.Now()
			do(t)
			over := memoryOf(t, p, "VmHWM") - idle
			t.Logf("%v; the proxy grew from %d MB by %d kB", time.Since(start).Round(10*time.Millisecond), idle>>20, over>>10)
			if over > most {
				t.Errorf("the proxy grew by %d MB", over>>20)
			}
		})
	}
	set := func(key string, n int64) string {
		return fmt.Sprintf("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n", len(key), key, n)
	}
	run("a value in", func(t *testing.T) {
		w := raw(t, c)
		w.say(set("big", size))
		w.fill(size)
		w.say("\r\n")
		w.want("+OK")
	})
	run("a value out", func(t *testing.T) {
		w := raw(t, guard.Credential{})
		w.say("GET big\r\n")
		if n := w.value(); n != size {
			t.Errorf("%d bytes", n)
		}
	})
	run("a value that is refused", func(t *testing.T) {
		w := raw(t, guard.Credential{})
		w.say(set("big", size))
		w.fill(size)
		w.say("\r\nSTRLEN big\r\n")
		w.want("-FENCED")
		w.want(fmt.Sprintf(":%d", size))
	})
	if err := r.direct.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	run("a pipeline", func(t *testing.T) {
		w := raw(t, c)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			out := bufio.NewWriterSize(w, 64<<10)
			for i := range pipelined {
				_, _ = fmt.Fprintf(out, "*2\r\n$4\r\nINCR\r\n$1\r\n%d\r\n", i%10)
			}
			if err := out.Flush(); err != nil {
				t.Error(err)
			}
		})
		for i := range pipelined {
			if got := w.line(); got != ":"+strconv.Itoa(i/10+1) {
				t.Fatalf("reply %d is %q", i, got)
			}
		}
	})
	// What a client has not read waits in the server, as without the proxy.
	run("a client that does not read", func(t *testing.T) {
		const value = 16 << 10
		if err := r.direct.Set(ctx, "some", bytes.Repeat([]byte("v"), value), 0).Err(); err != nil {
			t.Fatal(err)
		}
		w := raw(t, c)
		for range unread {
			w.say("GET some\r\n")
		}
		testenv.Eventually(t, "the replies wait in the server", func() bool {
			list, err := r.direct.ClientList(ctx).Result()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(list) {
				_, omem, _ := strings.Cut(line, " omem=")
				n, _, _ := strings.Cut(omem, " ")
				if n, _ := strconv.Atoi(n); n > unread*value/2 {
					return true
				}
			}
			return false
		})
		for range unread {
			if n := w.value(); n != value {
				t.Fatalf("%d bytes", n)
			}
		}
	})
	run("a server that does not read", func(t *testing.T) {
		w := raw(t, c)
		resume := sync.OnceFunc(func() { _ = r.server.Signal(syscall.SIGCONT) })
		defer resume()
		if err := r.server.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		const value, commands = 64 << 10, 1024
		command := []byte(set("some", value) + strings.Repeat("v", value) + "\r\n")
		var sent atomic.Int64
		done := make(chan error, 1)
		go func() {
			for range commands {
				if _, err := w.Write(command); err != nil {
					done <- err
					return
				}
				sent.Add(1)
			}
			done <- nil
		}()
		last, same := int64(-1), 0
		testenv.Eventually(t, "what the client sends waits", func() bool {
			now := sent.Load()
			if same++; now != last {
				last, same = now, 0
			}
			return same > 50
		})
		if last >= commands {
			t.Errorf("all %d commands went on before a server that does not read", last)
		}
		resume()
		for range commands {
			w.want("+OK")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What sessions cost: RSS over the idle size, each.
func TestRedisMemoryOfSessions(t *testing.T) {
	for _, c := range []struct {
		name string
		by   legs
		most int // bytes an idle session
	}{{"plain", plainLegs(), 32 << 10}, {"TLS", tlsLegs(t, testenv.NewAuthority(t), ""), 96 << 10}} {
		t.Run(c.name, func(t *testing.T) { testRedisSessions(t, c.by, c.most) })
	}
}

func testRedisSessions(t *testing.T, by legs, most int) {
	idle, busy := 400, 40
	if long() {
		idle, busy = 4000, 200
	}
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	r := newRedisResource(t, ctx)
	p := testenv.StartProxy(t, url, r.listener()+by.listener)
	lease, _ := lead(t, ctx, b, "e", "a", time.Hour)
	connect := func(n int) []*redis.Client {
		t.Helper()
		var all []*redis.Client
		for range n {
			o := &redis.Options{Addr: p.Addr, PoolSize: 1, MaxRetries: -1, Username: ";election=e;token=" + lease.Token.Reveal(), Password: "x",
				Dialer: func(context.Context, string, string) (net.Conn, error) { return by.dial(p.Addr) }}
			k := redis.NewClient(o)
			t.Cleanup(func() { _ = k.Close() })
			all = append(all, k)
			if err := k.Set(ctx, "k", strings.Repeat("v", 20_000), 0).Err(); err != nil {
				t.Fatal(err)
			}
			if err := k.Get(ctx, "k").Err(); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	leave := func(all []*redis.Client) {
		for _, k := range all {
			_ = k.Close()
		}
	}
	files := func() int { return filesOf(t, p) }
	leave(connect(20)) // what all share
	testenv.Eventually(t, "they have left", func() bool { return files() < 25 })
	open := files()
	before := memoryOf(t, p, "VmRSS")
	all := connect(idle)
	after := memoryOf(t, p, "VmRSS")
	each := (after - before) / idle
	t.Logf("%d idle sessions: %d kB each (%d MB, then %d MB)", idle, each>>10, before>>20, after>>20)
	if each > most {
		t.Errorf("an idle session costs %d kB", each>>10)
	}

	// Beside them, sessions that work.
	working := connect(busy)
	var wg sync.WaitGroup
	for _, k := range working {
		wg.Go(func() {
			for range 50 {
				if err := k.Get(ctx, "k").Err(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	with := memoryOf(t, p, "VmRSS")
	t.Logf("%d busy sessions more: %d kB each (%d MB)", busy, (with-after)/busy>>10, with>>20)
	leave(working)
	leave(all)
	testenv.Eventually(t, "all connections are closed", func() bool { return files() <= open })
	// Again the same number costs nothing more: nothing was left behind.
	leave(connect(idle))
	testenv.Eventually(t, "all connections are closed again", func() bool { return files() <= open })
	if again := memoryOf(t, p, "VmRSS"); again > with+with/4 {
		t.Errorf("memory grew from %d MB to %d MB", with>>20, again>>20)
	}
}
