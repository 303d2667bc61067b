package integration

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func split(addr string) (host, port string) {
	host, port, _ = net.SplitHostPort(addr)
	return host, port
}

// Two psql loops, each in front of a sidecar of its own, and sessions that stay: one side writes
// at a time, whatever happens to the leader, and what it wrote late is not there.
func TestPairOfSidecars(t *testing.T) {
	s := newSidecarStage(t)
	ctx := testenv.Context(t)
	a := s.sidecar("host-a")
	a.is(t, "/read-write")
	b := s.sidecar("host-b")
	b.is(t, "/replica")
	s.loop("a", a.Addr)
	s.loop("b", b.Addr)
	s.writes("a")

	// Sessions that stay: of the leader, in a transaction, and of the follower, as a reader.
	old, later := s.connect(s.dsn(a.Addr)), s.connect(s.dsn(b.Addr))
	if _, err := old.Exec(ctx, "BEGIN; INSERT INTO w (who) VALUES ('late')"); err != nil {
		t.Fatal(err)
	}
	_, err := later.Exec(ctx, "INSERT INTO w (who) VALUES ('refused')")
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != "25006" || !strings.Contains(e.Detail, `held by "host-a"`) {
		t.Fatalf("%v", err)
	}
	key := testenv.Name(t, "k")
	oldCache, laterCache := s.one(a.cache), s.one(b.cache)
	if err := oldCache.Set(ctx, key, "a", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := laterCache.Set(ctx, key, "b", 0).Err(); err == nil || !strings.Contains(err.Error(), `held by "host-a"`) {
		t.Errorf("%v", err)
	}

	// The leader stands still. The other takes over, and its sessions write without a word.
	a.Pause(t)
	b.is(t, "/read-write")
	s.writes("b")
	if _, err := later.Exec(ctx, "INSERT INTO w (who) VALUES ('later')"); err != nil {
		t.Error(err)
	}
	if err := laterCache.Set(ctx, key, "b", 0).Err(); err != nil {
		t.Error(err)
	}
	// It wakes up, and what it still had in hand comes to nothing.
	a.Signal(syscall.SIGCONT)
	if _, err := old.Exec(ctx, "COMMIT"); err == nil {
		t.Error("a stale COMMIT was answered well")
	}
	if err := oldCache.Set(ctx, key, "late", 0).Err(); err == nil {
		t.Error("a stale SET was answered well")
	}
	a.is(t, "/replica")

	// The leader is killed, and comes back as a follower.
	b.Kill()
	s.writes("a")
	b.Start(t)
	b.is(t, "/replica")
	// It ends in order: no lease has to run out.
	a.Signal(syscall.SIGTERM)
	s.writes("b")

	if got := s.cache.Get(ctx, key).Val(); got != "b" {
		t.Errorf("the key holds %q", got)
	}
	var n int
	if err := s.direct.QueryRow(ctx, "SELECT count(*) FROM w WHERE who IN ('late', 'refused')").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows that must not be there, %v", n, err)
	}
	s.ordered(4)
}

// one is a client of one connection, that is not tried again.
func (s *sidecarStage) one(addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1, DisableIdentity: true})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}
