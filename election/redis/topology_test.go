package redis

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// programs are the servers that every test here runs on.
var programs = []string{testenv.RedisServer, testenv.ValkeyServer}

// Valkey is Redis for this backend, under its own scheme.
func TestConformanceOnValkey(t *testing.T) {
	p := testenv.Valkey(t)
	c := plain(t, p.Addr)
	at := func(t testing.TB, addr string) election.Backend {
		b, err := OpenURL("valkey://"+addr, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	electiontest.Run(t, electiontest.Harness{
		Open:    func(t testing.TB) election.Backend { return at(t, p.Addr) },
		HoldOff: true, Hints: true,
		Lose:   func(t testing.TB, _ election.Backend, id string) { lose(t, c, id) },
		Dump:   func(t testing.TB, _ election.Backend) string { return dump(t, c) },
		Server: p.Addr,
		OpenAt: at,
	})
}

// groupURL opens a group of servers by its URL.
func groupURL(t testing.TB, rawURL string) *Backend {
	t.Helper()
	b, err := OpenURL(rawURL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// scheme is the scheme of a program's URLs.
func scheme(program string) string { return strings.TrimSuffix(program, "-server") }

// A cluster of three: elections spread over its nodes.
func TestConformanceOnCluster(t *testing.T) {
	for _, program := range programs {
		t.Run(scheme(program), func(t *testing.T) {
			nodes := testenv.RedisCluster(t, program)
			electiontest.Run(t, electiontest.Harness{
				Open: func(t testing.TB) election.Backend {
					return groupURL(t, scheme(program)+"+cluster://"+nodes[0].Addr+","+nodes[1].Addr)
				},
				HoldOff: true, Hints: true,
				Lose: func(t testing.TB, b election.Backend, id string) { lose(t, b.(*Backend).server.(*shared).client, id) },
				Dump: func(t testing.TB, _ election.Backend) (all string) {
					for _, p := range nodes {
						all += dump(t, plain(t, p.Addr))
					}
					return all
				},
			})
			// All three of them hold some, and each election's keys are on one.
			for _, p := range nodes {
				keys, err := plain(t, p.Addr).Keys(t.Context(), "fenceproxy:*:number").Result()
				if err != nil || len(keys) == 0 {
					t.Errorf("%s: %v, %v", p.Addr, keys, err)
				}
			}
		})
	}
}

// A node of a cluster is killed: its elections cannot be asked about, the others go on.
func TestClusterNodeKilled(t *testing.T) {
	nodes := testenv.RedisCluster(t, testenv.ValkeyServer)
	for _, p := range nodes { // by default a cluster without all slots serves none
		if err := plain(t, p.Addr).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err(); err != nil {
			t.Fatal(err)
		}
	}
	b := groupURL(t, "valkey+cluster://"+nodes[0].Addr)
	t.Cleanup(func() { _ = b.Close() })
	on := map[string]election.AcquireResult{}
	for i := 0; len(on) < len(nodes); i++ {
		id := fmt.Sprint("e", i)
		g := win(t, b, id, election.AcquireOptions{})
		for _, p := range nodes {
			if n, err := plain(t, p.Addr).Exists(t.Context(), "fenceproxy:{"+id+"}:lease").Result(); err == nil && n == 1 {
				if _, ok := on[p.Addr]; !ok {
					g.Owner = id
					on[p.Addr] = g
				}
			}
		}
	}
	nodes[1].Kill()
	for addr, g := range on {
		if addr == nodes[1].Addr {
			if r, err := b.Validate(t.Context(), g.Owner, g.Token); !errors.Is(err, election.ErrUnavailable) {
				t.Errorf("%+v, %v", r, err)
			}
			continue
		}
		if r, err := b.Renew(t.Context(), g.Owner, g.Token); err != nil || r.Status != election.Renewed || r.Number != g.Number {
			t.Errorf("%+v, %v, granted was %+v", r, err, g)
		}
		standing(t, b, g.Owner, g.Token, election.StandingCurrent, g.Number)
	}
}

// sentinelURL is the URL of a group that sentinels watch.
func sentinelURL(program string, s *servers.RedisSentinel) string {
	return scheme(program) + "+sentinel://" + s.Addrs() + "/0?master_name=" + servers.SentinelMaster
}

// The primary is killed, and sentinels promote its replica, which has seen the grant: it
// stands, with its number, and later numbers are higher.
func TestSentinelFailover(t *testing.T) {
	for _, program := range programs {
		t.Run(scheme(program), func(t *testing.T) {
			t.Parallel()
			s := testenv.RedisSentinel(t, program)
			b := groupURL(t, sentinelURL(program, s))
			t.Cleanup(func() { _ = b.Close() })
			g := win(t, b, "e", election.AcquireOptions{TTL: time.Hour})
			if n, err := plain(t, s.Primary.Addr).Wait(t.Context(), 1, time.Minute).Result(); err != nil || n != 1 {
				t.Fatalf("%d replicas, %v", n, err)
			}
			s.Primary.Kill()
			failedOver(t, b)
			standing(t, b, "e", g.Token, election.StandingCurrent, g.Number)
			if r, err := b.Renew(t.Context(), "e", g.Token); err != nil || r.Status != election.Renewed || r.Number != g.Number {
				t.Fatalf("%+v, %v, granted was %+v", r, err, g)
			}
			if r, err := b.Resign(t.Context(), "e", g.Token, election.ResignOptions{}); err != nil || r.Status != election.Released {
				t.Fatalf("%+v, %v", r, err)
			}
			if next := win(t, b, "e", election.AcquireOptions{}); next.Number <= g.Number {
				t.Errorf("number %d after %d", next.Number, g.Number)
			}
		})
	}
}

// The replica that is promoted never saw the grant (E9): its holder is told, and the next
// number is higher all the same, by the clock.
func TestSentinelFailoverLosesTheGrant(t *testing.T) {
	t.Parallel()
	s := testenv.RedisSentinel(t, testenv.ValkeyServer)
	b := groupURL(t, sentinelURL(testenv.ValkeyServer, s))
	t.Cleanup(func() { _ = b.Close() })
	win(t, b, "other", election.AcquireOptions{})
	if err := s.Replica.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	g := win(t, b, "e", election.AcquireOptions{TTL: time.Hour})
	s.Primary.Kill()
	if err := s.Replica.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	failedOver(t, b)
	if r, err := b.Renew(t.Context(), "e", g.Token); err != nil || r.Status != election.Lost {
		t.Fatalf("%+v, %v", r, err)
	}
	next := win(t, b, "e", election.AcquireOptions{})
	if next.Number <= g.Number {
		t.Errorf("number %d after %d", next.Number, g.Number)
	}
	standing(t, b, "e", g.Token, election.StandingStale, next.Number)
}

// failedOver waits until the backend writes again.
func failedOver(t testing.TB, b *Backend) {
	t.Helper()
	testenv.Eventually(t, "the failover", func() bool {
		r, err := b.Acquire(t.Context(), "probe", election.AcquireOptions{})
		return err == nil && (r.Status == election.Acquired || r.Status == election.Busy)
	})
}

func TestGroupURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"redis+cluster://h1,h2:7":                          "redis://h1:6379?addr=h2%3A7",
		"valkey+cluster://u:p%40@h1:1,[::1]:2?pool_size=3": "redis://u:p%40@h1:1?pool_size=3&addr=%5B%3A%3A1%5D%3A2",
		"REDISS+cluster://h1":                              "rediss://h1:6379",
		"valkeys+sentinel://:p@h1,h2:3/2?master_name=main": "rediss://:p@h1:26379/2?master_name=main&addr=h2%3A3",
	} {
		b, err := OpenURL(raw, Options{})
		if err != nil {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		kind, rest, _ := strings.Cut(strings.ToLower(raw), "+")
		_, rest, _ = strings.Cut(rest, "://")
		port := "6379"
		if strings.Contains(raw, "sentinel") {
			port = "26379"
		}
		if got, err := singleHost(strings.Replace(kind, "valkey", "redis", 1)+"://"+rest, port); got != want || err != nil {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}
	b := groupURL(t, "redis+sentinel://user:secret@h1/3?master_name=main")
	o := b.server.(*shared).client.(*goredis.Client).Options()
	if o.Username != "user" || o.Password != "secret" || o.DB != 3 || o.MaxRetries != 0 {
		t.Errorf("%+v", o)
	}
	_ = b.Close()
	for _, raw := range []string{
		"redis+cluster://", "redis+cluster://h1,", "redis+cluster://h1,:3", "redis+cluster://h:0", "redis+cluster://h:65536", "redis+cluster://h1,h2/x?y=1",
		"redis+cluster://h1#x", "redis+cluster://u:a/b@h", "redis+sentinel://h1", "redis+sentinel://h1?master_name=", "redis+sentinel://h1/x?master_name=m",
		"redis+sentinel://h1?master_name=m&password=SECRET", "redis+sentinel://:SECRET@h1:x?master_name=m", "redis+cluster://:SECRET,h2", "redis+cluster://:SECRET@h1,h2:x",
	} {
		b, err := OpenURL(raw, Options{})
		if !errors.Is(err, connurl.ErrInvalid) || b != nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}
