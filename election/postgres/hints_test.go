package postgres

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// listening is how many sessions of the role listen.
func (x *place) listening(t testing.TB) (n int) {
	t.Helper()
	err := x.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND query LIKE 'LISTEN%'", x.role).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// However many listen on a backend, they share one session, which is none of the pool's and
// ends with the last of them; a leader has none.
func TestHintsShareASession(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	pool, err := pgxpool.New(t.Context(), x.dsn(x.server.Addr, "pool_max_conns=1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db, err := sql.Open("pgx", x.dsn(x.server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	callers, err1 := New(pool, Options{})
	handle, err2 := NewDB(db, Options{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*Backend{"Own": x.opened(t, "pool_max_conns=1"), "Callers": callers, "Handle": handle} {
		t.Run(name, func(t *testing.T) {
			g := win(t, b, name, election.AcquireOptions{TTL: time.Hour})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			w := electiontest.NewWitness(t)
			var es []*election.Elector
			for _, id := range []string{name, name, name + "/other"} {
				e, err := election.NewElector(ctx, b, election.ElectorConfig{Election: id, TTL: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				if es = append(es, e); id == name {
					e.OnBecomeLeader(w.Lead)
				}
			}
			testenv.Eventually(t, "a session", func() bool { return x.listening(t) == 1 })
			if _, err := b.Resign(t.Context(), name, g.Token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
			w.Begun(testenv.Context(t), 1) // within the hour
			if n := x.listening(t); n != 1 {
				t.Errorf("%d sessions listen for the candidate that is left", n)
			}
			stop()
			for _, e := range es {
				if err := e.Wait(); err != nil {
					t.Error(err)
				}
			}
			testenv.Eventually(t, "the end of the session", func() bool { return x.listening(t) == 0 })
		})
	}
}

// Through a pooler nobody can listen, and a release is heard of by others all the same.
func TestHintsThroughAPooler(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	behind := x.open(t, pooler(t, x.server.Addr))
	t.Cleanup(func() { _ = behind.Close() })
	none, stop := context.WithCancel(testenv.Context(t))
	defer stop()
	if err := behind.Hints(none, "e", stop); !errors.Is(err, election.ErrNoHints) {
		t.Errorf("%v, want %v", err, election.ErrNoHints)
	}
	if n := x.listening(t); n != 0 {
		t.Errorf("%d sessions listen", n)
	}
	g := win(t, behind, "e", election.AcquireOptions{TTL: time.Hour})
	ctx, cancel := context.WithCancel(testenv.Context(t))
	hints := 0
	err := x.opened(t).Hints(ctx, "e", func() {
		switch hints++; hints {
		case 1: // it began
			go func() { _, _ = behind.Resign(ctx, "e", g.Token, election.ResignOptions{}) }()
		case 2:
			cancel()
		}
	})
	if hints != 2 {
		t.Errorf("%d hints; %v", hints, err)
	}
}

// Safety: a release is one also where it may not be notified.
func TestReleaseWithoutNotification(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	x.exec("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_notify(text, text) FROM PUBLIC")
	b := x.opened(t)
	g := win(t, b, "e", election.AcquireOptions{})
	for _, want := range []election.ResignStatus{election.Released, election.NotOwner} {
		if r, err := b.Resign(t.Context(), "e", g.Token, election.ResignOptions{}); err != nil || r.Status != want {
			t.Errorf("%+v, %v, want %v", r, err, want)
		}
	}
	if h := win(t, b, "e", election.AcquireOptions{}); h.Number <= g.Number {
		t.Errorf("number %d after %d", h.Number, g.Number)
	}
}

// What others notify, and what is released of a table elsewhere in the database, is none of
// this election's business.
func TestNotificationsOfOthers(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	b := x.opened(t)
	ctx, cancel := context.WithCancel(testenv.Context(t))
	g := win(t, b, "e", election.AcquireOptions{TTL: time.Hour})
	hints := 0
	err := b.Hints(ctx, "e", func() {
		switch hints++; hints {
		case 1: // it began
			go func() {
				for _, s := range []string{"'other', 'fenceproxy.e'", "'" + releasedChannel + "', 'other.e'", "'" + releasedChannel + "', 'fenceproxy.ee'"} {
					if err := b.db.exec(ctx, "SELECT pg_notify("+s+")"); err != nil {
						t.Error(err)
					}
				}
				_, _ = b.Resign(ctx, "e", g.Token, election.ResignOptions{})
			}()
		case 2:
			cancel()
		}
	})
	st, err2 := b.Status(t.Context(), "e")
	if hints != 2 || err2 != nil || st.Status != election.Vacant {
		t.Errorf("%d hints; %v; status %+v, %v", hints, err, st, err2)
	}
}
