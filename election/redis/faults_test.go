package redis

import (
	"errors"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// durable starts a server of the test's own that keeps its data, and says what can be
// done to it.
func durable(t *testing.T, program string) (electiontest.Harness, electiontest.Server) {
	t.Helper()
	ctx := testenv.Context(t)
	dir, err := servers.NewDir("redis")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o := servers.RedisOptions{Program: program, Dir: dir, Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}
	p, err := servers.StartRedis(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	o.Port = p.Port()
	c := plain(t, p.Addr)
	at := func(t testing.TB, addr string) election.Backend {
		b, err := OpenURL(scheme(program)+"://"+addr, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return electiontest.Harness{
			Open:    func(t testing.TB) election.Backend { return at(t, p.Addr) },
			HoldOff: true,
			Lose:    func(t testing.TB, _ election.Backend, id string) { lose(t, c, id) },
			Server:  p.Addr,
			OpenAt:  at,
		}, electiontest.Server{
			Freeze: func(t testing.TB) func() { return testenv.Freeze(t, p) },
			Restart: func(t testing.TB) {
				p.Kill()
				if p, err = servers.StartRedis(ctx, o); err != nil {
					t.Fatal(err)
				}
			},
			Wipe: func(t testing.TB) {
				if err := c.FlushAll(ctx).Err(); err != nil {
					t.Error(err)
				}
			},
			EndConnections: func(t testing.TB) {
				if err := c.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
					t.Error(err)
				}
			},
		}
}

func TestTakeovers(t *testing.T) {
	for _, program := range programs {
		t.Run(scheme(program), func(t *testing.T) {
			h, s := durable(t, program)
			electiontest.RunTakeovers(t, h, s)
		})
	}
}

func TestElectorOnFailingServer(t *testing.T) {
	for _, program := range programs {
		t.Run(scheme(program), func(t *testing.T) {
			h, s := durable(t, program)
			electiontest.RunServerFaults(t, h, s)
		})
	}
}

func TestElectorOnValkey(t *testing.T) {
	p := testenv.Valkey(t)
	c := plain(t, p.Addr)
	at := func(t testing.TB, addr string) election.Backend { return groupURL(t, "valkey://"+addr) }
	electiontest.RunElector(t, electiontest.Harness{
		Open:   func(t testing.TB) election.Backend { return at(t, p.Addr) },
		Lose:   func(t testing.TB, _ election.Backend, id string) { lose(t, c, id) },
		Server: p.Addr,
		OpenAt: at,
	})
}

// E9, a failover by hand: the primary is stopped, its replica is promoted. What the replica
// has seen stands, with its number. What it has not is lost: its holder is told so by the
// new primary, and the next number is higher, by the clock. The old primary goes on and
// answers as if it were one still, to whoever still asks it; that is what the fence is
// for, and the reason to demote it before it is let go on.
func TestE9FailoverByHand(t *testing.T) {
	for _, program := range programs {
		t.Run(scheme(program), func(t *testing.T) {
			t.Parallel()
			ctx := testenv.Context(t)
			start := func(args ...string) *servers.Process {
				p, err := servers.StartRedis(ctx, servers.RedisOptions{Program: program, Args: args})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { p.Stop() })
				return p
			}
			primary := start("--repl-diskless-sync", "no")
			link := electiontest.NewLink(t, primary.Addr)
			host, port, err := net.SplitHostPort(link.Addr())
			if err != nil {
				t.Fatal(err)
			}
			replica := start("--replicaof", host, port)
			old, promoted := opened(t, primary.Addr), opened(t, replica.Addr)
			seen := win(t, old, "seen", election.AcquireOptions{TTL: time.Hour})
			looking := plain(t, replica.Addr)
			testenv.Eventually(t, "replication", func() bool {
				n, err := looking.Exists(ctx, "fenceproxy:{seen}:lease").Result()
				return err == nil && n == 1
			})
			link.Stall() // what follows does not reach the replica
			unseen := win(t, old, "unseen", election.AcquireOptions{TTL: time.Hour})
			thawPrimary := testenv.Freeze(t, primary)
			if err := looking.ReplicaOf(ctx, "no", "one").Err(); err != nil {
				t.Fatal(err)
			}
			link.Cut()

			standing(t, promoted, "seen", seen.Token, election.StandingCurrent, seen.Number)
			if r, err := promoted.Renew(ctx, "seen", seen.Token); err != nil || r.Status != election.Renewed || r.Number != seen.Number {
				t.Errorf("Renew: %+v, %v, granted was %+v", r, err, seen)
			}
			if r, err := promoted.Resign(ctx, "seen", seen.Token, election.ResignOptions{}); err != nil || r.Status != election.Released {
				t.Errorf("Resign: %+v, %v", r, err)
			}
			if g := win(t, promoted, "seen", election.AcquireOptions{}); g.Number <= seen.Number {
				t.Errorf("number %d after %d", g.Number, seen.Number)
			}
			if r, err := promoted.Renew(ctx, "unseen", unseen.Token); err != nil || r.Status != election.Lost {
				t.Errorf("Renew: %+v, %v", r, err)
			}
			g := win(t, promoted, "unseen", election.AcquireOptions{TTL: time.Hour})
			if g.Number <= unseen.Number {
				t.Errorf("number %d after %d", g.Number, unseen.Number)
			}
			standing(t, promoted, "unseen", unseen.Token, election.StandingStale, g.Number)

			// The old primary, demoted once it goes on, answers nothing any more.
			thawPrimary()
			standing(t, old, "unseen", unseen.Token, election.StandingCurrent, unseen.Number)
			if err := plain(t, primary.Addr).ReplicaOf(ctx, replica.Host(), strconv.Itoa(replica.Port())).Err(); err != nil {
				t.Fatal(err)
			}
			if v, err := old.Validate(ctx, "unseen", unseen.Token); !errors.Is(err, election.ErrUnavailable) {
				t.Errorf("Validate: %+v, %v", v, err)
			}
		})
	}
}
