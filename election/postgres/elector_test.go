package postgres

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestElector(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	electiontest.RunElector(t, x.harness(func(t testing.TB, addr string) election.Backend { return x.open(t, addr) }))
}

// E12: whatever Postgres ends the elector's sessions for, the leadership goes on.
func TestElectorOnAHandle(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	db, err := sql.Open("pgx", x.dsn(x.server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetConnMaxLifetime(50 * time.Millisecond) // the pool recycles it, too
	ctx, cancel := context.WithCancel(t.Context())
	e, err := NewElector(ctx, db, "orders", 2*time.Second, 100*time.Millisecond, func(c *election.ElectorConfig) { c.Owner = "a" })
	if err != nil {
		t.Fatal(err)
	}
	w := electiontest.NewWitness(t)
	e.OnBecomeLeader(w.Lead)
	wait, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	r := w.Begun(wait, 1)
	if r.Term.Election != "orders" || r.Term.Owner != "a" {
		t.Errorf("term %+v", r.Term)
	}
	ended := 0
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for r := time.Now(); time.Since(r) < 4*time.Second; <-tick.C { // two leases
		var n int
		if err := x.admin.QueryRow(wait, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1", x.role).Scan(&n); err != nil {
			t.Fatal(err)
		}
		ended += n
	}
	if ended == 0 {
		t.Error("no session was ended")
	}
	if term, ok := e.Term(); !ok || term.Number != r.Term.Number {
		t.Errorf("after %d sessions were ended: term %+v, %v; it was %d", ended, term, ok, r.Term.Number)
	}
	cancel()
	if err := e.Wait(); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("the caller's handle after the end: %v", err)
	}
	for _, c := range []struct {
		name             string
		lease, heartbeat time.Duration
		want             error
	}{
		{"or ders", 0, 0, election.ErrInvalidID},
		{"orders", time.Millisecond, 0, election.ErrInvalidTTL},
		{"orders", time.Second, time.Second, election.ErrInvalidTTL},
	} {
		if _, err := NewElector(t.Context(), db, c.name, c.lease, c.heartbeat); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
