package integration

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/loops/loopstest"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// pgStage is a Postgres with the fence installed and an ordinary role "app".
type pgStage struct {
	server *servers.Process
	direct *pgxpool.Pool // as the superuser
	admin  string        // the superuser's DSN
}

func newPgStage(t *testing.T, ctx context.Context) *pgStage {
	t.Helper()
	return newPgStageOn(t, ctx, "")
}

// newPgStageOn takes the directory of a version's programs, and settings of the server.
func newPgStageOn(t *testing.T, ctx context.Context, bin string, settings ...string) *pgStage {
	t.Helper()
	s := &pgStage{server: testenv.Postgres(t, servers.PostgresOptions{Bin: bin, Settings: append([]string{"max_prepared_transactions=10"}, settings...)})}
	s.admin = s.server.DSN(servers.Superuser, "postgres")
	s.direct = newDirect(t, ctx, s.admin)
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Role: "fenceproxy", Login: true})
	if err != nil {
		t.Fatal(err)
	}
	s.exec(t, ctx, sql)
	s.exec(t, ctx, "create role app login; grant create on schema public to app; grant create, temporary on database postgres to app")
	return s
}

// exec runs statements as the superuser, beside the proxy.
func (s *pgStage) exec(t *testing.T, ctx context.Context, sql string) {
	t.Helper()
	if _, err := s.direct.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// control is the control role's DSN.
func (s *pgStage) control() string { return s.server.DSN("fenceproxy", "postgres") }

// proxy serves a proxy of its own guard and control connections, in this process,
// and returns its address. wrap may weaken its fence.
func (s *pgStage) proxy(t *testing.T, ctx context.Context, b election.Backend, wrap func(guard.Fence) guard.Fence) string {
	t.Helper()
	f, err := pgfence.Open(ctx, s.control(), pgfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var fence guard.Fence = f
	if wrap != nil {
		fence = wrap(f)
	}
	g := guard.New(b, fence, guard.Config{})
	srv, err := pg.New(pg.Config{Upstream: s.server.Addr, Guard: pg.Admit(g), Binder: f, Logger: testLogger(t), Loops: loopstest.Start(t)})
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, srv.Serve, func() { g.Close(); f.Close() })
}

// serve runs a listener until the test ends, then after, and returns its address.
func serve(t *testing.T, run func(context.Context, net.Listener) error, after func()) string {
	t.Helper()
	l := testenv.Listen(t)
	t.Cleanup(after) // runs once the server has ended
	testenv.Serve(t, l, run)
	return l.Addr().String()
}

// testLogger writes warnings to the test's log.
func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func pgRace(t *testing.T, bin string, takeovers int, wrap func(guard.Fence) guard.Fence) int {
	ctx := testenv.Context(t)
	s := newPgStageOn(t, ctx, bin)
	s.exec(t, ctx, pgRaceTables)
	b := memory.New()
	r := &pgRaced{user: "app", direct: s.direct,
		proxies: [2]string{s.proxy(t, ctx, b, wrap), s.proxy(t, ctx, b, wrap)}}
	return race(t, ctx, b, "orders", r, takeovers)
}

// No write of number n or lower is applied after the first write of n+1, whatever
// way it is written and through whichever of two proxies.
func TestPostgresNoLateWrites(t *testing.T) {
	if late := pgRace(t, "", rounds(), nil); late != 0 {
		t.Errorf("%d late writes", late)
	}
}

// A shorter race on each version.
func TestPostgresNoLateWritesOnEveryVersion(t *testing.T) {
	for _, v := range testenv.PostgresVersions(t) {
		t.Run(v.String(), func(t *testing.T) {
			if late := pgRace(t, v.Bin, rounds()/5, nil); late != 0 {
				t.Errorf("%d late writes", late)
			}
		})
	}
}

// The same race finds late writes when old connections are not severed.
func TestPostgresRaceFindsMissingSever(t *testing.T) {
	if late := pgRace(t, "", 10, func(f guard.Fence) guard.Fence { return unsevered{f} }); late == 0 {
		t.Error("no late write without the sever step: this race cannot fail")
	}
}
