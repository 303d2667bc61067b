package respclients

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	electionredis "github.com/fenceproxy/fenceproxy/election/redis"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	_ "github.com/fenceproxy/fenceproxy/protocols/resp" // so that go test notices when the program changes
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	user     = "app"
	password = "secret"
)

// A stage is a Redis with the user "app", a fenceproxy of its own in front of it, and an
// election.
type stage struct {
	name      string
	server    *servers.Process
	upstream  string // where the proxy finds it
	proxy     string // host:port
	ca        string // a file: connections to both are with TLS
	cluster   bool   // server is one node of many, the one that has the keys {k}:…
	elections election.Backend
	admin     *redis.Client // beside the proxy
}

func newStage(t *testing.T, ctx context.Context, name string) *stage {
	t.Helper()
	return newStageOn(t, ctx, name, testenv.Redis(t))
}

// newStageOn is a stage on some server.
func newStageOn(t *testing.T, ctx context.Context, name string, server *servers.Process) *stage {
	t.Helper()
	return newStageBehind(t, ctx, name, server, server.Addr, "redis://"+server.Addr, nil)
}

// newStageBehind is a stage whose listener reaches the server by the upstream and control
// given; more are further settings of it. With an authority, both legs are with TLS.
func newStageBehind(t *testing.T, ctx context.Context, name string, server *servers.Process, upstream, control string, ca *testenv.Authority, more ...string) *stage {
	t.Helper()
	s := &stage{name: name, server: server, upstream: upstream, cluster: strings.HasPrefix(upstream, "redis+cluster:"), admin: redis.NewClient(&redis.Options{Addr: server.Addr, DisableIdentity: true})}
	t.Cleanup(func() { _ = s.admin.Close() })
	s.do(t, ctx, "ACL", "SETUSER", user, "on", ">"+password, "~*", "&*", "+@all")
	url := "redis://" + testenv.SharedRedis(t).Addr + "/0"
	b, err := electionredis.OpenURL(url, electionredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() }) // behind the resignations
	s.elections = b
	// Nothing is asked between a resignation and the next acquisition, so that a loss
	// is a takeover every time.
	if ca != nil {
		cert := ca.Issue("proxy", []string{"127.0.0.1"}, nil)
		s.ca = ca.CA
		more = append(more, fmt.Sprintf("tls: {cert: %s, key: %s}", cert.Cert, cert.Key), fmt.Sprintf("upstream_tls: {mode: verify-full, ca: %s}", ca.CA))
	}
	s.proxy = testenv.StartProxy(t, url, fmt.Sprintf("protocol: redis\nupstream: %s\ncontrol: %s\nelection: %s\n%s",
		upstream, control, name, strings.Join(more, "\n")), "guard: {validate_every: 60s, permit: 120s}").Addr
	// The fence is there from the start: it is a key that DBSIZE counts.
	c := s.lead(t, ctx, "first")
	s.write(t, ctx, c, "SET", "first", "1")
	s.resign(t, ctx, c)
	s.fresh(t, ctx)
	return s
}

// do runs a command beside the proxy.
func (s *stage) do(t *testing.T, ctx context.Context, args ...any) any {
	t.Helper()
	v, err := s.admin.Do(ctx, args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// fresh empties the server but for the fence: what two runs print can only be the same
// when both find the same.
func (s *stage) fresh(t *testing.T, ctx context.Context) {
	t.Helper()
	_, err := s.admin.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Do(ctx, "EVAL", `for _, k in ipairs(redis.call('KEYS', '*')) do
			if string.sub(k, 1, 11) ~= 'fenceproxy:' then redis.call('DEL', k) end
		end return 1`, 0)
		if !s.cluster {
			p.Do(ctx, "SELECT", 1)
			p.Do(ctx, "FLUSHDB")
			p.Do(ctx, "SELECT", 0)
		}
		p.Do(ctx, "SCRIPT", "FLUSH")
		p.Do(ctx, "FUNCTION", "FLUSH")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// lead acquires the election as soon as it is to be had.
func (s *stage) lead(t *testing.T, ctx context.Context, owner string) guard.Credential {
	t.Helper()
	var got election.AcquireResult
	testenv.Eventually(t, owner+" leads", func() bool {
		var err error
		got, err = s.elections.Acquire(ctx, s.name, election.AcquireOptions{Owner: owner, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status == election.Acquired
	})
	// Another run in this process finds the election free.
	t.Cleanup(func() { _, _ = s.elections.Resign(context.Background(), s.name, got.Token, election.ResignOptions{}) })
	return guard.Credential{Election: s.name, Token: got.Token}
}

func (s *stage) resign(t *testing.T, ctx context.Context, c guard.Credential) {
	t.Helper()
	if _, err := s.elections.Resign(ctx, c.Election, c.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
}

// write runs a command through the proxy, as a leader.
func (s *stage) write(t *testing.T, ctx context.Context, c guard.Credential, args ...any) {
	t.Helper()
	cl := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{s.proxy}, Username: s.leader(c).username(), Password: password,
		DisableIdentity: true, TLSConfig: s.leader(c).tls(), IsClusterMode: s.cluster})
	defer cl.Close()
	if err := cl.Do(ctx, args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// waitForBlocked waits until n clients of the user block.
func (s *stage) waitForBlocked(t *testing.T, ctx context.Context, n int) {
	t.Helper()
	testenv.Eventually(t, "a command blocks", func() bool {
		list := s.do(t, ctx, "CLIENT", "LIST").(string)
		blocked := 0
		for line := range strings.Lines(list) {
			if strings.Contains(line, " flags=b ") && strings.Contains(line, " user="+user+" ") {
				blocked++
			}
		}
		return blocked == n
	})
}

// A place is where a client connects to, and what it presents there.
type place struct {
	addr     string
	election string
	token    string // empty: none
	bind     bool   // the token is presented by FENCE BIND
	resp     int    // the protocol; 0: the client's default
	ca       string // a file: with TLS
	cluster  bool   // it is one node of many
}

func (s *stage) direct() place {
	p := s.reader()
	if p.addr = s.upstream; s.cluster {
		p.addr = s.server.Addr
	}
	return p
}

func (s *stage) reader() place {
	return place{addr: s.proxy, election: s.name, ca: s.ca, cluster: s.cluster}
}

func (s *stage) leader(c guard.Credential) place {
	p := s.reader()
	p.token = c.Token.Reveal()
	return p
}

// binding is a leader who presents the token by FENCE BIND.
func (s *stage) binding(c guard.Credential) place {
	p := s.leader(c)
	p.bind = true
	return p
}

// in is the place in one of the protocols.
func (p place) in(resp int) place {
	p.resp = resp
	return p
}

// username is the user name, with the credential where it goes there.
func (p place) username() string {
	if p.token == "" || p.bind {
		return user
	}
	return user + ";election=" + p.election + ";token=" + p.token
}

// tls is what a client in this process verifies the other side with, if it does.
func (p place) tls() *tls.Config {
	if p.ca == "" {
		return nil
	}
	text, err := os.ReadFile(p.ca)
	if err != nil {
		return &tls.Config{RootCAs: x509.NewCertPool()} // trusts nobody
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: roots}
}

func (p place) host() string { h, _, _ := strings.Cut(p.addr, ":"); return h }
func (p place) port() string { _, port, _ := strings.Cut(p.addr, ":"); return port }

// env is the environment of a script. FENCE_TOKEN is there for leaders only; with
// FENCE_BIND they give it to FENCE BIND on each connection.
func (p place) env() []string {
	env := append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC", "REDIS_HOST="+p.host(), "REDIS_PORT="+p.port(),
		"REDIS_USER="+p.username(), "REDIS_PASSWORD="+password, "FENCE_ELECTION="+p.election, "FENCE_TOKEN="+p.token)
	if p.bind {
		env = append(env, "FENCE_BIND=1")
	}
	if p.cluster {
		env = append(env, "REDIS_CLUSTER=1")
	}
	if p.ca != "" {
		env = append(env, "REDIS_CA="+p.ca)
	}
	if p.resp != 0 {
		env = append(env, "RESP="+strconv.Itoa(p.resp))
	}
	return env
}

// command is a client program at a place.
func (p place) command(ctx context.Context, bin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = p.env()
	return cmd
}
