package respclients

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// newCluster is a stage of a cluster of three primaries.
func newCluster(t *testing.T, ctx context.Context, name string) *stage {
	t.Helper()
	nodes := testenv.RedisCluster(t, "redis-server")
	var addrs, ports []string
	var home *servers.Process
	for _, p := range nodes {
		addrs = append(addrs, p.Addr)
		port, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, fmt.Sprint(port))
		c := redis.NewClient(&redis.Options{Addr: p.Addr, DisableIdentity: true})
		defer c.Close()
		if err := c.Do(ctx, "ACL", "SETUSER", user, "on", ">"+password, "~*", "&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		if c.Exists(ctx, "{k}:").Err() == nil { // another node answers with MOVED
			home = p
		}
	}
	url := "redis+cluster://" + strings.Join(addrs, ",")
	return newStageBehind(t, ctx, name, home, url, url, nil, "cluster: {ports: ["+strings.Join(ports, ", ")+"]}")
}

// inCluster runs a script of a cluster client: as leader and as reader it prints what it
// prints without the proxy. A reader's writes are refused on every node: that also shows that
// the client, who is told of the nodes by their own lists, never reaches for one itself.
func (c *script) inCluster(t *testing.T, ctx context.Context, s *stage, closed string) {
	t.Helper()
	for _, resp := range c.protocols {
		lead := s.lead(t, ctx, c.name)
		// Without the proxy too, node-redis now and then hands a redirection to its caller:
		// what is compared with is a run in which it followed them all.
		var want string
		testenv.Eventually(t, c.name+" follows every redirection", func() bool {
			s.fresh(t, ctx)
			want = c.transcript(t, ctx, s.direct().in(resp), "session")
			return !strings.Contains(want, " MOVED ")
		})
		testenv.Holds(t, "session", want, "to a shard", "CROSSSLOT")
		s.fresh(t, ctx)
		testenv.Same(t, "session", c.transcript(t, ctx, s.leader(lead).in(resp), "session"), want)
		testenv.Same(t, "read", c.transcript(t, ctx, s.reader().in(resp), "read"), c.transcript(t, ctx, s.direct().in(resp), "read"))
		s.checkRefused(t, ctx, c.transcript(t, ctx, s.reader().in(resp), "refused"))
		s.resign(t, ctx, lead)
		c.losing(t, ctx, s, func(c guard.Credential) place { return s.leader(c).in(resp) }, closed)
	}
}

// Cluster clients stay on the proxy.
func TestCluster(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newCluster(t, ctx, "cluster")
	t.Run("go-redis", func(t *testing.T) { goRedis().inCluster(t, ctx, s, goClosed) })
	t.Run("ioredis", func(t *testing.T) { node(t, "ioredis", 2).inCluster(t, ctx, s, nodeClosed) })
	t.Run("node-redis", func(t *testing.T) { node(t, "noderedis", 2, 3).inCluster(t, ctx, s, nodeClosed) })
	t.Run("redis-py", func(t *testing.T) { redisPy(t, ctx).inCluster(t, ctx, s, pyClosed) })
	t.Run("redis-cli", func(t *testing.T) { s.cliInCluster(t, ctx) })
}

// redirected is what redis-cli prints of redirections, which depend on where it begins.
var redirected = regexp.MustCompile(`-> Redirected to slot \[\d+\] located at 127\.0\.0\.1:\d+\n`)

// addresses is what redis-cli prints of them.
var addresses = regexp.MustCompile(`127\.0\.0\.1:\d+`)

func (s *stage) cliInCluster(t *testing.T, ctx context.Context) {
	t.Helper()
	lead := s.lead(t, ctx, "redis-cli")
	defer s.resign(t, ctx, lead)
	var session strings.Builder
	for i := range clusterKeys {
		fmt.Fprintf(&session, "SET key:%d %d\nGET key:%d\n", i, i, i)
	}
	session.WriteString("MGET key:1 key:2\nCLUSTER KEYSLOT {k}\nLPUSH key:1 x\n")
	run := func(p place) string { return redirected.ReplaceAllString(p.runCLI(t, ctx, session.String(), "-c"), "") }
	want := run(s.direct())
	testenv.Holds(t, "session", want, "CROSSSLOT", "7629", "WRONGTYPE")
	testenv.Same(t, "session", run(s.leader(lead)), want)
	if out := run(s.reader()); strings.Count(out, "FENCED write refused") != clusterKeys+1 {
		t.Errorf("as reader: %s", out)
	}
	for _, sub := range []string{"check", "info"} {
		sorted := func(p place) string {
			out := addresses.ReplaceAllString(p.runCLI(t, ctx, "", "--cluster", sub, p.addr), "…")
			return strings.Join(slices.Sorted(strings.Lines(out)), "")
		}
		want := sorted(s.direct())
		testenv.Holds(t, sub, want, "[OK]")
		testenv.Same(t, "--cluster "+sub, sorted(s.reader()), want)
	}
	out, err := s.leader(lead).benchmark(t, ctx, "--cluster", "-n", "2000", "-q", "-t", "set,get,incr", "-P", "4").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "SET: ") || strings.Contains(string(out), "rror") {
		t.Errorf("redis-benchmark: %v %s", err, out)
	}
}
