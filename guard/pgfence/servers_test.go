package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// pair is a primary with the fence installed, and a streaming standby of it.
func pair(t *testing.T) (primary, standby *cluster) {
	t.Helper()
	primary = install(t, testenv.Postgres(t, servers.PostgresOptions{}))
	standby = &cluster{p: testenv.Standby(t, primary.p, servers.PostgresOptions{})}
	standby.admin = standby.connect(t, servers.Superuser)
	return primary, standby
}

// caughtUp waits until the standby has all that the primary has written.
func caughtUp(t *testing.T, primary, standby *cluster) {
	t.Helper()
	var lsn string
	must(t, primary.admin.QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&lsn))
	eventually(t, func() bool {
		return standby.count(t, "SELECT (pg_last_wal_replay_lsn() >= $1::text::pg_lsn)::int", lsn) == 1
	})
}

// The mark that an older term was severed goes on the server whose processes were looked
// at. Without that, control connections that lead to two primaries, as in a failover,
// would mark the one and have looked at the other.
func TestMarkOnlyWhereSevered(t *testing.T) {
	primary, standby := pair(t)
	cfg, err := pgxpool.ParseConfig(primary.p.DSN(pgfence.DefaultRole, "postgres"))
	must(t, err)
	var to atomic.Pointer[string]
	lead := func(c *cluster) { to.Store(&c.p.Addr) }
	lead(primary)
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *to.Load())
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(pool.Close)
	f := pgfence.New(pool, pgfence.Options{})

	s, x := primary.bound(t, f)
	next := after(x)
	old := guardtest.Record(x, guard.Severed, 1)
	raised, severed := guardtest.Record(next, guard.Raised, 2), guardtest.Record(next, guard.Severed, 2)
	must(t, f.Swap(t.Context(), x.Election, old, raised))
	caughtUp(t, primary, standby)
	standby.exec(t, "SELECT pg_promote()")

	lead(standby)
	pool.Reset()
	must(t, f.Sever(t.Context(), next)) // nobody is bound there
	lead(primary)
	pool.Reset()
	if err := f.Swap(t.Context(), x.Election, raised, severed); !errors.Is(err, guard.ErrConflict) {
		t.Fatalf("marked as severed on a server where nobody looked: %v", err)
	}
	must(t, s.Write(t.Context())) // for it lives

	must(t, f.Sever(t.Context(), next))
	must(t, f.Swap(t.Context(), x.Election, raised, severed))
	if s.Write(t.Context()) == nil {
		t.Error("a severed connection writes")
	}
}

// With several servers in its DSN the fence is the primary's; and a bind names the server.
func TestSeveralServers(t *testing.T) {
	primary, standby := pair(t)
	dsn := strings.Replace(primary.p.DSN(pgfence.DefaultRole, "postgres"), primary.p.Addr, standby.p.Addr+","+primary.p.Addr, 1)
	f, err := pgfence.Open(t.Context(), dsn, pgfence.Options{})
	must(t, err)
	t.Cleanup(f.Close)
	prober, err := pgfence.NewProber(dsn)
	must(t, err)
	t.Cleanup(prober.Close)
	probe := func(c *cluster) pgfence.Kind {
		t.Helper()
		k, err := prober.Probe(t.Context(), c.p.Host(), c.p.Addr)
		must(t, err)
		return k
	}
	p, s := probe(primary), probe(standby)
	if p.Standby || !s.Standby || p.ReadOnly || p.Started == s.Started || p.Started == "" {
		t.Errorf("%+v %+v", p, s)
	}
	if again := probe(primary); again != p {
		t.Errorf("%+v, then %+v", p, again)
	}
	socket := filepath.Join(primary.p.Dir, fmt.Sprintf(".s.PGSQL.%d", primary.p.Port()))
	if again, err := prober.Probe(t.Context(), "", socket); err != nil || again != p {
		t.Errorf("by its Unix socket: %+v, %v", again, err)
	}

	x, _ := guardtest.Term(testenv.Name(t, "e"), 7)
	r := guardtest.Record(x, guard.Severed, 1)
	must(t, f.Swap(t.Context(), x.Election, guard.Record{}, r))
	b := primary.session(t, "app").backend()
	b.Started = s.Started
	refusal := new(guard.Refusal)
	if _, err := f.Bind(t.Context(), b, x, r); !errors.Is(err, pgfence.ErrOther) || !errors.As(err, &refusal) || refusal.Reason != guard.Unseverable {
		t.Errorf("bound as if it were on the other server: %v", err)
	}
	b.Started = p.Started
	if _, err := f.Bind(t.Context(), b, x, r); err != nil {
		t.Error(err)
	}

	// The other takes over: all follow, though their connections are to the old one.
	caughtUp(t, primary, standby)
	standby.exec(t, "SELECT pg_promote()")
	if k := probe(standby); k.Standby {
		t.Errorf("%+v", k)
	}
	primary.p.Stop()
	if got, err := f.Read(t.Context(), x.Election); err != nil || got != r {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := prober.Probe(t.Context(), "127.0.0.1", primary.p.Addr); err == nil {
		t.Error("a server that is gone answers")
	}
}

func TestProberTakesNoBadDSN(t *testing.T) {
	if _, err := pgfence.NewProber("postgres://u:secret@h:port/"); !errors.Is(err, pgfence.ErrDSN) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
