package integration

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	electionredis "github.com/fenceproxy/fenceproxy/election/redis"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// pgResource is a Postgres as the fault tests see it.
type pgResource struct {
	*pgStage
	f *pgfence.Fence
}

func newPgResource(t *testing.T, ctx context.Context) *pgResource {
	t.Helper()
	s := newPgStage(t, ctx)
	s.exec(t, ctx, "create table w (n bigint not null); grant all on w to app")
	f, err := pgfence.Open(ctx, s.control(), pgfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return &pgResource{s, f}
}

func (r *pgResource) listener() string {
	return fmt.Sprintf("protocol: postgres\nupstream: %s\ncontrol: %s", r.server.Addr, r.control())
}

type pgClient struct{ c *pgx.Conn }

func (r *pgResource) connect(ctx context.Context, addr string, c guard.Credential) (client, error) {
	conn, err := (&pgRaced{proxies: [2]string{addr}, user: "app"}).connect(ctx, c, 0)
	if err != nil {
		return nil, err
	}
	return &pgClient{conn}, nil
}

func (c *pgClient) write(ctx context.Context, n int64) error {
	_, err := c.c.Exec(ctx, "insert into w values ($1)", pgx.QueryExecModeExec, n)
	return err
}

func (c *pgClient) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.c.Close(ctx)
}

func (r *pgResource) applied(t *testing.T, ctx context.Context, n int64) (got int) {
	t.Helper()
	if err := r.direct.QueryRow(ctx, "select count(*) from w where n = $1", n).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func (r *pgResource) fence(t *testing.T, ctx context.Context, id string) guard.Record {
	t.Helper()
	f, err := r.f.Read(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// stall stops the client's server process: signals wait until it goes on.
func (r *pgResource) stall(t *testing.T, ctx context.Context, c client) func() {
	t.Helper()
	pid := int(c.(*pgClient).c.PgConn().PID())
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	t.Cleanup(resume)
	return resume
}

// redisElections is an election backend on a Redis of its own, and its URL.
func redisElections(t *testing.T) (string, election.Backend) {
	t.Helper()
	url := "redis://" + testenv.Redis(t).Addr + "/0"
	b, err := electionredis.OpenURL(url, electionredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return url, b
}

func TestPostgresProxyStoppedLongerThanALease(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	testProxyStopped(t, ctx, newPgResource(t, ctx), url, b)
}

func TestPostgresProxyKilledAndRestarted(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	testProxyKilled(t, ctx, newPgResource(t, ctx), url, b)
}

func TestPostgresProxyKilledBetweenRaiseAndSever(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	testKilledBetweenRaiseAndSever(t, ctx, newPgResource(t, ctx), url, b)
}

// The guarded server crashes and starts again: its sessions are gone, the fence is not.
func TestPostgresCrashed(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	r := newPgResource(t, ctx)
	testServerRestarted(t, ctx, r, url, b, func(id string, live guard.Record) {
		crash(t, ctx, r)
		if f := r.fence(t, ctx, id); f != live {
			t.Errorf("the fence is %+v, want %+v", f, live)
		}
	})
}

// crash kills a server process, upon which Postgres ends all others and recovers.
func crash(t *testing.T, ctx context.Context, r *pgResource) {
	t.Helper()
	// The checkpointer is another one after a recovery.
	var pid, checkpointer int
	const other = "(select pid from pg_stat_activity where backend_type = 'checkpointer')"
	if err := r.direct.QueryRow(ctx, "select pg_backend_pid(), "+other).Scan(&pid, &checkpointer); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the server has recovered", func() bool {
		var recovered bool
		err := r.direct.QueryRow(ctx, "select coalesce("+other+" <> $1, false)", pgx.QueryExecModeExec, checkpointer).Scan(&recovered)
		return err == nil && recovered
	})
}
