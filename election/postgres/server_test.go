package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func win(t testing.TB, b election.Backend, id string, o election.AcquireOptions) election.AcquireResult {
	t.Helper()
	g, err := b.Acquire(t.Context(), id, o)
	if err != nil || g.Status != election.Acquired {
		t.Fatalf("Acquire: %+v, %v", g, err)
	}
	return g
}

// five makes the five calls and returns their errors.
func five(ctx context.Context, b election.Backend) []error {
	token := election.NewToken()
	_, err1 := b.Validate(ctx, "e", token)
	_, err2 := b.Status(ctx, "e")
	_, err3 := b.Renew(ctx, "e", token)
	_, err4 := b.Acquire(ctx, "e", election.AcquireOptions{Token: token})
	_, err5 := b.Resign(ctx, "e", token, election.ResignOptions{})
	return []error{err1, err2, err3, err4, err5}
}

func TestNotInstalled(t *testing.T) {
	p := testenv.SharedPostgres(t)
	for name, made := range map[string]string{
		"Nothing":     "",
		"NoTable":     "CREATE SCHEMA fenceproxy",
		"OtherTable":  "CREATE SCHEMA fenceproxy; CREATE TABLE fenceproxy.election (election text PRIMARY KEY)",
		"OtherSchema": "CREATE SCHEMA other; CREATE TABLE other.election (election text PRIMARY KEY)",
	} {
		t.Run(name, func(t *testing.T) {
			x := newPlace(t, p, "")
			x.exec(made)
			x.exec("DO $$ BEGIN IF to_regnamespace('fenceproxy') IS NOT NULL THEN GRANT USAGE ON SCHEMA fenceproxy TO " + x.role +
				"; GRANT ALL ON ALL TABLES IN SCHEMA fenceproxy TO " + x.role + "; END IF; END $$")
			for _, err := range five(t.Context(), x.opened(t)) {
				if !errors.Is(err, ErrNotInstalled) || !errors.Is(err, election.ErrUnavailable) ||
					!strings.Contains(err.Error(), "run fenceproxy install") {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

func TestNoRights(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "")
	x.exec(schemaSQLFor(t, ""))
	b := x.opened(t)
	for _, err := range five(t.Context(), b) {
		if !errors.Is(err, election.ErrUnavailable) || errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%v", err)
		}
	}
	// A role without the right to make anything finds that all is there.
	if err := b.EnsureSchema(t.Context()); err != nil {
		t.Errorf("EnsureSchema where the table is: %v", err)
	}
	x.exec("DROP SCHEMA fenceproxy CASCADE")
	if err := b.EnsureSchema(t.Context()); !errors.Is(err, election.ErrUnavailable) {
		t.Errorf("EnsureSchema without rights: %v", err)
	}
}

func schemaSQLFor(t testing.TB, schema string) string {
	t.Helper()
	s, err := SchemaSQL(schema)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEnsureSchema(t *testing.T) {
	p := testenv.SharedPostgres(t)
	for _, schema := range []string{"", "_another1"} {
		x := newPlace(t, p, schema)
		x.exec("GRANT CREATE ON DATABASE " + x.db + " TO " + x.role)
		db, err := sql.Open("pgx", x.dsn(p.Addr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		bySQL, err := NewDB(db, Options{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		handles := []*Backend{x.opened(t), x.opened(t), bySQL, bySQL, x.opened(t), x.opened(t)}
		errs := make([]error, len(handles))
		var wg sync.WaitGroup
		for i, b := range handles {
			wg.Go(func() { errs[i] = b.EnsureSchema(t.Context()) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		g := win(t, handles[0], "e", election.AcquireOptions{})
		if r, err := bySQL.Renew(t.Context(), "e", g.Token); err != nil || r.Number != g.Number {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, s := range []string{
		"a b", `a"b`, "A", "1a", "pg_x", "a-b", "a.b", "a;drop", "ä", strings.Repeat("a", 64), "a\x00",
	} {
		if _, err := SchemaSQL(s); !errors.Is(err, ErrInvalidSchema) {
			t.Errorf("SchemaSQL(%q): %v", s, err)
		}
		if _, err := GrantSQL(s, "r"); !errors.Is(err, ErrInvalidSchema) {
			t.Errorf("GrantSQL(%q): %v", s, err)
		}
		if _, err := Open(t.Context(), "postgres://host/db", Options{Schema: s}); !errors.Is(err, ErrInvalidSchema) {
			t.Errorf("Open(%q): %v", s, err)
		}
	}
	if _, err := GrantSQL("", ""); err == nil {
		t.Error("an empty role was accepted")
	}
	// A keyword for a schema and a role with quotes: all is quoted.
	x := newPlace(t, testenv.SharedPostgres(t), "select")
	role := `o'dd "role; --` + x.role
	x.exec("CREATE ROLE " + quote(role))
	g, err := GrantSQL("select", role)
	if err != nil {
		t.Fatal(err)
	}
	x.exec(schemaSQLFor(t, "select") + g)
	x.exec("DROP OWNED BY " + quote(role) + "; DROP ROLE " + quote(role))
}

// E12: every connection is ended, or wiped as a pooler does; leadership is as it was.
func TestConnectionsEnd(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	b := x.opened(t)
	g := win(t, b, "e", election.AcquireOptions{})
	for range 5 {
		x.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + x.role + "'")
		var r election.RenewResult
		testenv.Eventually(t, "a new connection", func() bool {
			var err error
			r, err = b.Renew(t.Context(), "e", g.Token)
			if err != nil && !errors.Is(err, election.ErrUnavailable) {
				t.Fatal(err)
			}
			return err == nil
		})
		if r.Status != election.Renewed || r.Number != g.Number {
			t.Fatalf("Renew: %+v", r)
		}
		if err := b.db.exec(t.Context(), "DISCARD ALL"); err != nil {
			t.Fatal(err)
		}
		if v, err := b.Validate(t.Context(), "e", g.Token); err != nil || v.Standing != election.StandingCurrent {
			t.Fatalf("Validate: %+v, %v", v, err)
		}
	}
}

// Safety: of two that saw the same vacant row, the one that comes second looks again
// once the first has committed.
func TestSecondLook(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	first, second := x.opened(t), x.opened(t)
	g := win(t, first, "e", election.AcquireOptions{})
	if _, err := first.Resign(t.Context(), "e", g.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	// The first acquires, and is held up before its commit.
	o, err := election.AcquireOptions{Owner: "first"}.Normalize("e")
	if err != nil {
		t.Fatal(err)
	}
	digest := o.Token.Digest()
	tx, err := x.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var granted bool
	var owner string
	var number, left int64
	if err := tx.QueryRow(t.Context(), first.queries.acquire, "e", o.Owner, digest[:], o.TTL.Milliseconds(), int64(0)).
		Scan(&granted, &owner, &number, &left); err != nil || !granted {
		t.Fatal(granted, err)
	}
	type answer struct {
		r   election.AcquireResult
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		r, err := second.Acquire(t.Context(), "e", election.AcquireOptions{Owner: "second"})
		answered <- answer{r, err}
	}()
	watch := x.opened(t)
	testenv.Eventually(t, "the second waiting for the row", func() bool {
		var waiting bool
		err := watch.db.row(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND usename = '"+x.role+"')", nil, &waiting)
		return err == nil && waiting
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := <-answered
	if a.err != nil || a.r.Status != election.Busy || a.r.Owner != "first" || a.r.Number != number || number <= g.Number {
		t.Errorf("the second: %+v, %v; the first has number %d", a.r, a.err, number)
	}
}

// Candidates that ask in vain take no lock and write nothing.
func TestBusyDoesNotWait(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	b := x.opened(t)
	g := win(t, b, "e", election.AcquireOptions{})
	tx, err := x.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM fenceproxy.election FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r, err := b.Acquire(ctx, "e", election.AcquireOptions{}); err != nil || r.Status != election.Busy || r.Number != g.Number {
		t.Errorf("Acquire: %+v, %v", r, err)
	}
	// What needs the row waits for it, no longer than its context.
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if r, err := b.Renew(short, "e", g.Token); !errors.Is(err, election.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Renew: %+v, %v", r, err)
	}
}

// A server that crashes keeps what it said; one that has become a standby says nothing.
func TestCrashAndStandby(t *testing.T) {
	ctx := testenv.Context(t)
	dir, err := servers.InitPostgres(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p, err := servers.StartPostgres(ctx, servers.PostgresOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	restart := func() {
		if p, err = servers.StartPostgres(ctx, servers.PostgresOptions{Dir: dir, Port: p.Port()}); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { p.Stop() }()
	x := newPlace(t, p, "").install()
	b := x.opened(t)
	g := win(t, b, "e", election.AcquireOptions{TTL: time.Hour})
	p.Kill()
	if _, err := b.Validate(ctx, "e", g.Token); !errors.Is(err, election.ErrUnavailable) {
		t.Errorf("Validate with the server killed: %v", err)
	}
	restart()
	if r, err := b.Renew(ctx, "e", g.Token); err != nil || r.Status != election.Renewed || r.Number != g.Number {
		t.Errorf("Renew after the crash: %+v, %v", r, err)
	}
	p.Stop()
	if err := os.WriteFile(filepath.Join(dir, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	restart()
	for _, err := range five(ctx, b) {
		if !errors.Is(err, election.ErrUnavailable) || errors.Is(err, ErrNotInstalled) {
			t.Errorf("a standby answers: %v", err)
		}
	}
}

func TestConnectionStrings(t *testing.T) {
	for _, s := range []string{"postgres://host/db", "postgresql://u:p@host:1/db?pool_max_conns=3", "host=h user=u password=p dbname=d"} {
		b, err := Open(t.Context(), s, Options{})
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		_ = b.Close()
	}
	for _, s := range []string{
		"postgres://u:hun/ter2@host/db", "postgres://u:hun%ter2@host/db", "postgres://u:hunter2@host:port/db", "postgres://u:hun:ter2@host:x/db",
		"postgres://u:hunter2@host/db?sslmode=nonsense", "host=h password=hunter2 port=x", "host=h password='hunter2", "password=hun ter2 x",
		"postgres://u:hunter2@host/db?pool_max_conns=x", "postgres://host/db?password=hunter2&port=x", "postgres://u:hunter2@[host/db",
	} {
		b, err := Open(t.Context(), s, Options{})
		if err == nil {
			_ = b.Close()
			t.Errorf("%q accepted", s)
			continue
		}
		if text := fmt.Sprintf("%v %+v", err, err); !errors.Is(err, connurl.ErrInvalid) || strings.Contains(text, "hun") || strings.Contains(text, "ter2") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// A password that the server refuses shows nowhere.
func TestWrongPassword(t *testing.T) {
	p := testenv.Postgres(t, servers.PostgresOptions{
		HBA: "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n",
	})
	x := newPlace(t, p, "").install()
	x.exec("ALTER ROLE " + x.role + " PASSWORD 'right-password'")
	dsn := func(password string) string {
		return strings.Replace(x.dsn(p.Addr), "@", ":"+password+"@", 1)
	}
	db, err := sql.Open("pgx", dsn("wrong-password"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	bySQL, err := NewDB(db, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := Open(t.Context(), dsn("wrong-password"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	for _, b := range []*Backend{bySQL, wrong} {
		for _, err := range five(t.Context(), b) {
			if text := fmt.Sprintf("%v %+v", err, err); !errors.Is(err, election.ErrUnavailable) || strings.Contains(text, "wrong-password") {
				t.Errorf("%v", err)
			}
		}
	}
	right, err := Open(t.Context(), dsn("right-password"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer right.Close()
	win(t, right, "e", election.AcquireOptions{})
}

// What is logged by the server that logs all has digests only.
func TestTokenIsNeverSent(t *testing.T) {
	p := testenv.Postgres(t, servers.PostgresOptions{Settings: []string{"log_statement=all", "log_min_duration_statement=0"}})
	x := newPlace(t, p, "").install()
	b := x.opened(t)
	g := win(t, b, "e", election.AcquireOptions{})
	_, err1 := b.Renew(t.Context(), "e", g.Token)
	_, err2 := b.Validate(t.Context(), "e", g.Token)
	_, err3 := b.Resign(t.Context(), "e", g.Token, election.ResignOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the log", func() bool { return strings.Contains(p.Log(), "WITH released AS") })
	if log := p.Log(); strings.Contains(log, g.Token.Reveal()) || !strings.Contains(log, g.Token.Digest().String()) {
		t.Errorf("the log has the token, or not its digest:\n%s", log)
	}
}
