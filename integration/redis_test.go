package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/loops/loopstest"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// redisProxy serves a proxy of its own guard and control connections, in this process,
// and returns its address. wrap may weaken its fence, and the others change its configuration.
func redisProxy(t *testing.T, ctx context.Context, server string, b election.Backend, wrap func(guard.Fence) guard.Fence, change ...func(*resp.Config)) string {
	t.Helper()
	f, err := redisfence.Open(ctx, "redis://"+server, redisfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	control := redis.NewClient(&redis.Options{Addr: server, DisableIdentity: true})
	var fence guard.Fence = f
	if wrap != nil {
		fence = wrap(f)
	}
	g := guard.New(b, fence, guard.Config{})
	c := resp.Config{Upstream: server, Guard: g, Control: control, Log: testLogger(t), Loops: loopstest.Start(t)}
	for _, f := range change {
		f(&c)
	}
	srv, err := resp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, srv.Serve, func() {
		g.Close()
		_ = control.Close()
		_ = f.Close()
	})
}

// dialRedis opens a client of one connection, which never tries again by itself.
func dialRedis(addr string, protocol int, bind *guard.Credential) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, Protocol: protocol, PoolSize: 1, MaxRetries: -1, DisableIdentity: true,
		ReadTimeout: 30 * time.Second,
		OnConnect: func(ctx context.Context, cn *redis.Conn) error {
			if bind == nil {
				return nil
			}
			return cn.Do(ctx, "FENCE", "BIND", bind.Election, bind.Token.Reveal()).Err()
		},
	})
}

// redisRaced floods a Redis through two proxies. A write of number n adds one to
// cnt:n, or an element to dst:n.
type redisRaced struct {
	proxies [2]string
	tls     [2]*tls.Config // how clients connect to each
	direct  *redis.Client

	mu      sync.Mutex
	numbers []int64
}

func cnt(n int64) string { return "cnt:" + strconv.FormatInt(n, 10) }
func dst(n int64) string { return "dst:" + strconv.FormatInt(n, 10) }

var redisWays = []struct {
	name  string
	write func(ctx context.Context, c *redis.Client, n int64) error
}{
	{"one command", func(ctx context.Context, c *redis.Client, n int64) error {
		return c.Incr(ctx, cnt(n)).Err()
	}},
	{"pipeline", func(ctx context.Context, c *redis.Client, n int64) error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 100 {
				p.Incr(ctx, cnt(n))
			}
			return nil
		})
		return err
	}},
	{"transaction", func(ctx context.Context, c *redis.Client, n int64) error {
		_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for range 10 {
				p.Incr(ctx, cnt(n))
			}
			return nil
		})
		return err
	}},
	{"script", func(ctx context.Context, c *redis.Client, n int64) error {
		return c.Eval(ctx, "for i = 1, 50 do redis.call('INCR', KEYS[1]) end return redis.status_reply('OK')", []string{cnt(n)}).Err()
	}},
	{"blocked, with writes behind", func(ctx context.Context, c *redis.Client, n int64) error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.BLMove(ctx, "src", dst(n), "RIGHT", "LEFT", 0)
			p.Incr(ctx, cnt(n))
			return nil
		})
		return err
	}},
}

func (r *redisRaced) ways() int { return len(redisWays) }

func (r *redisRaced) dial(proxy, protocol int, c *guard.Credential) *redis.Client {
	cl := dialRedis(r.proxies[proxy], protocol, c)
	if r.tls[proxy] == nil {
		return cl
	}
	o := *cl.Options()
	_ = cl.Close()
	o.TLSConfig, o.Dialer = r.tls[proxy], nil
	return redis.NewClient(&o)
}

func (r *redisRaced) flood(ctx context.Context, c guard.Credential, n int64, proxy, way int) {
	cl := r.dial(proxy, 2+way%2, &c)
	defer cl.Close()
	defer context.AfterFunc(ctx, func() { _ = cl.Close() })() // a blocked command heeds no context
	for ctx.Err() == nil {
		if err := redisWays[way].write(ctx, cl, n); err != nil {
			return
		}
	}
}

// sum is how many writes of the numbers in ARGV have been applied.
const sum = `local s = 0
for _, n in ipairs(ARGV) do s = s + (redis.call('GET', 'cnt:' .. n) or 0) + redis.call('LLEN', 'dst:' .. n) end
`

func (r *redisRaced) lower(n int64) (args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.numbers {
		if m < n {
			args = append(args, m)
		}
	}
	return args
}

func (r *redisRaced) first(ctx context.Context, c guard.Credential, n int64, proxy int) error {
	cl := r.dial(proxy, 3, &c)
	defer cl.Close()
	if err := cl.Eval(ctx, sum+"redis.call('SET', KEYS[1], s) return s", []string{fmt.Sprint("first:", n)}, r.lower(n)...).Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.numbers = append(r.numbers, n)
	return nil
}

func (r *redisRaced) late(ctx context.Context, n int64) (int, error) {
	now, err := r.direct.Eval(ctx, sum+"return s", nil, r.lower(n)...).Int()
	if err != nil {
		return 0, err
	}
	then, err := r.direct.Get(ctx, fmt.Sprint("first:", n)).Int()
	return now - then, err
}

func (r *redisRaced) written(ctx context.Context) (int, error) {
	return r.direct.Eval(ctx, sum+"return s", nil, r.lower(1<<62)...).Int()
}

func redisRace(t *testing.T, takeovers int, wrap func(guard.Fence) guard.Fence) int {
	ctx := testenv.Context(t)
	server := testenv.Redis(t).Addr
	b := memory.New()
	r := &redisRaced{proxies: [2]string{redisProxy(t, ctx, server, b, wrap), redisProxy(t, ctx, server, b, wrap)}}
	return r.race(t, ctx, server, b, takeovers)
}

func (r *redisRaced) race(t *testing.T, ctx context.Context, server string, b election.Backend, takeovers int) int {
	direct := redis.NewClient(&redis.Options{Addr: server})
	defer direct.Close()
	feed, stop := context.WithCancel(ctx)
	var feeding sync.WaitGroup
	defer feeding.Wait()
	defer stop()
	feeding.Go(func() { // something for the blocked ones to move, now and then
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-feed.Done():
				return
			case <-tick.C:
				direct.LPush(feed, "src", "x")
			}
		}
	})
	r.direct = direct
	return race(t, ctx, b, "orders", r, takeovers)
}

// No write of number n or lower is applied after the first write of n+1, whatever
// way it is written and through whichever of two proxies.
func TestRedisNoLateWrites(t *testing.T) {
	if late := redisRace(t, rounds(), nil); late != 0 {
		t.Errorf("%d late writes", late)
	}
}

// Nor by TLS on both legs of one proxy, and by the server's Unix socket of the other.
func TestRedisNoLateWritesOnAnyLeg(t *testing.T) {
	ctx := testenv.Context(t)
	ca := testenv.NewAuthority(t)
	cert := ca.Issue("both", []string{"127.0.0.1"}, nil)
	dir, err := servers.NewDir("sockets")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "redis.sock")
	server := testenv.Redis(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", cert.Cert, "--tls-key-file", cert.Key, "--tls-ca-cert-file", ca.CA,
		"--tls-auth-clients", "no", "--unixsocket", socket, "--unixsocketperm", "777").Addr
	down, err := tlsconf.OpenServer(tlsconf.ServerOptions{Cert: cert.Cert, Key: cert.Key})
	if err != nil {
		t.Fatal(err)
	}
	up, err := tlsconf.OpenClient(tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: ca.CA})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	b := memory.New()
	r := &redisRaced{tls: [2]*tls.Config{{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}}, proxies: [2]string{
		redisProxy(t, ctx, server, b, nil, func(c *resp.Config) {
			c.Upstream, c.UpstreamTLS, c.TLS = fmt.Sprintf("127.0.0.1:%d", port), up, down
		}),
		redisProxy(t, ctx, server, b, nil, func(c *resp.Config) { c.Upstream = socket }),
	}}
	if late := r.race(t, ctx, server, b, rounds()); late != 0 {
		t.Errorf("%d late writes", late)
	}
}

// The same race finds late writes when old connections are not severed.
func TestRedisRaceFindsMissingSever(t *testing.T) {
	if late := redisRace(t, 10, func(f guard.Fence) guard.Fence { return unsevered{f} }); late == 0 {
		t.Error("no late write without the sever step: this race cannot fail")
	}
}
