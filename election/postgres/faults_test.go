package postgres

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// ownServer starts a server of the test's own, and says what can be done to it.
func ownServer(t *testing.T) (electiontest.Harness, electiontest.Server) {
	t.Helper()
	ctx := testenv.Context(t)
	dir, err := servers.InitPostgres(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p, err := servers.StartPostgres(ctx, servers.PostgresOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop() })
	x := newPlace(t, p, "").install()
	admin := func(t testing.TB, statement string, args ...any) {
		c, err := pgx.Connect(ctx, p.DSN(servers.Superuser, x.db)) // the last one may be gone
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close(ctx)
		if _, err := c.Exec(ctx, statement, args...); err != nil {
			t.Error(err)
		}
	}
	h := x.harness(func(t testing.TB, addr string) election.Backend { return x.open(t, addr) })
	h.Lose = func(t testing.TB, _ election.Backend, id string) {
		admin(t, "DELETE FROM "+x.table()+" WHERE election = $1", id)
	}
	return h, electiontest.Server{
		Freeze: func(t testing.TB) func() { return testenv.Freeze(t, p) },
		Restart: func(t testing.TB) {
			p.Kill()
			if p, err = servers.StartPostgres(ctx, servers.PostgresOptions{Dir: dir, Port: p.Port()}); err != nil {
				t.Fatal(err)
			}
		},
		Wipe: func(t testing.TB) { admin(t, "TRUNCATE "+x.table()) },
		EndConnections: func(t testing.TB) {
			admin(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", x.role)
		},
	}
}

func TestTakeovers(t *testing.T) {
	h, s := ownServer(t)
	electiontest.RunTakeovers(t, h, s)
}

func TestElectorOnFailingServer(t *testing.T) {
	h, s := ownServer(t)
	electiontest.RunServerFaults(t, h, s)
}
