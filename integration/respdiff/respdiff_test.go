package respdiff

import (
	"context"
	"flag"
	"net"
	"path/filepath"
	"slices"
	"strings"
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
)

var update = flag.Bool("update", false, "rewrite what the servers answer, in testdata")

func TestMain(m *testing.M) { testenv.Main(m) }

// A stage is one version's server with proxies before it.
type stage struct {
	server    *servers.Process
	direct    place
	proxy     map[string]place // by mode
	elections *memory.Backend
	leader    election.AcquireResult
}

const jobs = "jobs"

func newStage(t *testing.T, v servers.RedisVersion, args ...string) *stage {
	t.Helper()
	ctx := testenv.Context(t)
	p := testenv.RedisVersion(t, v, append([]string{"--enable-debug-command", "yes", "--latency-tracking", "no"}, args...)...)
	o := redis.Options{Addr: p.Addr, DisableIdentity: true, PoolSize: 1, MaxRetries: -1, Protocol: 2, ReadTimeout: time.Minute}
	open := func() *redis.Client {
		own := o
		c := redis.NewClient(&own)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	super := open()
	own := o
	f := redisfence.New(&own, redisfence.Options{})
	t.Cleanup(func() { _ = f.Close() })
	b := memory.New()
	got, err := b.Acquire(ctx, jobs, election.AcquireOptions{Owner: "w1", TTL: 30 * time.Minute})
	if err != nil || got.Status != election.Acquired {
		t.Fatalf("acquire: %+v, %v", got, err)
	}
	g := guard.New(b, f, guard.Config{})
	t.Cleanup(g.Close)
	st := &stage{server: p, direct: place{addr: p.Addr, super: super}, proxy: make(map[string]place), elections: b, leader: got}
	c := resp.Config{Upstream: p.Addr, Guard: g, Control: open(), Election: jobs, Loops: loopstest.Start(t)}
	whole := serve(t, c, false)
	c.Dial = func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		u, err := d.DialContext(ctx, "tcp", p.Addr)
		if err != nil {
			return nil, err
		}
		return testenv.ReadBytewise(u)
	}
	bytewise := serve(t, c, true)
	for _, mode := range allModes {
		with := place{addr: whole, proxy: true, super: super, token: got.Token.Reveal(), user: ";election=" + jobs + ";token=" + got.Token.Reveal()}
		if mode == "bytes" {
			with.addr = bytewise
		}
		st.proxy[mode] = with
	}
	return st
}

func serve(t *testing.T, c resp.Config, bytewise bool) string {
	t.Helper()
	srv, err := resp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := testenv.Listen(t)
	addr := l.Addr().String()
	if bytewise {
		l = testenv.Bytewise{Listener: l}
	}
	testenv.Serve(t, l, srv.Serve)
	return addr
}

// onEach runs f on each version, all at the same time.
func onEach(t *testing.T, f func(*testing.T, servers.RedisVersion, *stage)) {
	t.Run("on", func(t *testing.T) {
		for _, v := range servers.RedisVersions() {
			t.Run(v.Name, func(t *testing.T) {
				t.Parallel()
				f(t, v, newStage(t, v))
			})
		}
	})
}

// Every history, on every version, for every kind of session, in every mode: through the
// proxy comes what the server itself answers, and that is what testdata holds.
func TestAsTheServer(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.resp")
	if len(files) == 0 {
		t.Fatal("no cases")
	}
	scripts := make(map[string]*script)
	answers := make(map[string]map[answer]string)
	for _, file := range files {
		s, err := readScript(file)
		if err != nil {
			t.Fatal(err)
		}
		scripts[file], answers[file] = s, make(map[answer]string)
	}
	var mu sync.Mutex
	onEach(t, func(t *testing.T, v servers.RedisVersion, st *stage) {
		for _, file := range files {
			s := scripts[file]
			if !slices.Contains(s.servers, v.Name) {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".resp"), func(t *testing.T) {
				for _, as := range s.as {
					for _, proto := range s.protos {
						a := answer{as, proto, v.Name}
						text := st.compare(t, s, a)
						mu.Lock()
						answers[file][a] = text
						mu.Unlock()
					}
				}
			})
		}
	})
	if *update && !t.Failed() {
		for file, s := range scripts {
			if err := s.write(file, answers[file]); err != nil {
				t.Error(err)
			}
		}
	}
}

// compare runs a script against the server and through the proxies.
func (st *stage) compare(t *testing.T, s *script, a answer) string {
	t.Helper()
	follow := func(p place, mode string) *side {
		x, err := p.follow(testenv.Context(t), s, a.as, a.proto, mode)
		if err != nil {
			t.Fatal(err)
		}
		if x.failed != "" {
			t.Fatalf("%s, %s, proxy %v: %s", a.key(), mode, p.proxy, x.text())
		}
		return x
	}
	direct := follow(st.direct, "written")
	if slices.Contains(s.modes, "joined") {
		if x := follow(st.direct, "joined"); x.bytes() != direct.bytes() {
			t.Errorf("%s: the server itself answers otherwise when all comes in one: got\n%s\nwant\n%s", a.key(), x.text(), direct.text())
		}
	}
	for _, mode := range s.modes {
		if x := follow(st.proxy[mode], mode); x.bytes() != direct.bytes() {
			t.Errorf("%s, %s: through the proxy\n%s\nwant\n%s", a.key(), mode, x.text(), direct.text())
		}
	}
	if text := direct.text(); !*update && s.loose == "" && text != s.pinned(a) {
		t.Errorf("%s: pinned is another answer (go test -update rewrites it): got\n%s\nwant\n%s", a.key(), text, s.pinned(a))
	}
	return direct.text()
}
