package redis

import (
	"os"
	"testing"

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
