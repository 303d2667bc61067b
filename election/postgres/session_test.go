package postgres

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// pooler stands before a server and does as poolers do: it names a session of its own
// making to each client.
func pooler(t testing.TB, server string) (addr string) {
	t.Helper()
	addr, _ = testenv.RelayTCP(t, server, nil, misname)
	return addr
}

// misname passes on what the server says, with another process in BackendKeyData.
func misname(to io.Writer, from io.Reader) {
	for named := false; !named; {
		var m bytes.Buffer
		if _, err := io.CopyN(&m, from, 5); err != nil {
			return
		}
		head := m.Bytes()
		if _, err := io.CopyN(&m, from, int64(binary.BigEndian.Uint32(head[1:5]))-4); err != nil {
			return
		}
		if named = m.Bytes()[0] == 'K'; named {
			m.Bytes()[8] ^= 1
		}
		if _, err := m.WriteTo(to); err != nil {
			return
		}
	}
	_, _ = io.Copy(to, from)
}

// prepared returns the statements that are prepared by name in the session of a backend
// whose pool has one connection.
func prepared(t testing.TB, b *Backend) []string {
	t.Helper()
	var all string
	err := b.db.row(t.Context(), "SELECT coalesce(string_agg(statement, ';'), '') FROM pg_prepared_statements WHERE statement NOT LIKE '%string_agg%'", nil, &all)
	if err != nil {
		t.Fatal(err)
	}
	return strings.FieldsFunc(all, func(r rune) bool { return r == ';' })
}

// Only what is read often is prepared, and only in a session that serves its connection
// alone, or where the connection string says so.
func TestPrepared(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	behind := pooler(t, x.server.Addr)
	pool, err := pgxpool.New(t.Context(), x.dsn(x.server.Addr, "pool_max_conns=1")) // in pgx's default mode, which prepares
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	callers, err := New(pool, Options{})
	if err != nil {
		t.Fatal(err)
	}
	direct := func(params ...string) *Backend { return x.opened(t, append(params, "pool_max_conns=1")...) }
	pooled := func(params ...string) *Backend {
		b := x.open(t, behind, append(params, "pool_max_conns=1")...)
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	for name, c := range map[string]struct {
		b    *Backend
		want string // a statement that is prepared
	}{
		"Direct":         {direct(), "SELECT pg_catalog.pg_is_in_recovery()"},
		"Pooler":         {pooled(), ""},
		"Callers":        {callers, ""},
		"NoCache":        {direct("statement_cache_capacity=0"), ""},
		"Exec":           {direct("default_query_exec_mode=exec"), ""},
		"Simple":         {direct("default_query_exec_mode=simple_protocol"), ""},
		"CacheDescribe":  {direct("default_query_exec_mode=cache_describe"), ""},
		"DescribeExec":   {direct("default_query_exec_mode=describe_exec"), ""},
		"CacheStatement": {pooled("default_query_exec_mode=cache_statement"), "WITH renewed AS"},
	} {
		t.Run(name, func(t *testing.T) {
			g := win(t, c.b, name, election.AcquireOptions{})
			for range 4 {
				if v, err := c.b.Validate(t.Context(), name, g.Token); err != nil || v.Standing != election.StandingCurrent || v.Number != g.Number {
					t.Fatalf("%+v, %v", v, err)
				}
				if r, err := c.b.Renew(t.Context(), name, g.Token); err != nil || r.Number != g.Number {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			got := prepared(t, c.b)
			switch {
			case c.want == "" && len(got) > 0, c.want != "" && !strings.Contains(strings.Join(got, ""), c.want):
				t.Errorf("prepared: %q", got)
			case name == "Direct" && len(got) != 1:
				t.Errorf("prepared: %q", got)
			}
		})
	}
}

// Safety: a session that is shared all the same, or emptied, costs an answer nothing:
// where its statement is not there, or another has its name, it did not run.
func TestPreparedIsLost(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	g := win(t, x.opened(t), "e", election.AcquireOptions{})
	validate := func(t *testing.T, b *Backend, want int) {
		t.Helper()
		for range 3 {
			if v, err := b.Validate(t.Context(), "e", g.Token); err != nil || v.Standing != election.StandingCurrent || v.Number != g.Number {
				t.Fatalf("%+v, %v", v, err)
			}
		}
		if got := prepared(t, b); len(got) != want {
			t.Errorf("prepared: %q", got)
		}
	}
	exec := func(t *testing.T, b *Backend, statement string) {
		t.Helper()
		if err := b.db.exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var name string
	t.Run("Emptied", func(t *testing.T) {
		b := x.opened(t, "pool_max_conns=1")
		validate(t, b, 1)
		if err := b.db.row(t.Context(), "SELECT name FROM pg_prepared_statements", nil, &name); err != nil {
			t.Fatal(err)
		}
		exec(t, b, "DISCARD ALL")
		validate(t, b, 0)
	})
	t.Run("NameTaken", func(t *testing.T) {
		b := x.opened(t, "pool_max_conns=1")
		exec(t, b, "PREPARE "+quote(name)+" AS SELECT false, 1::bigint, 'another', NULL::bytea, 1::float8")
		validate(t, b, 1)
	})
	t.Run("TableChanged", func(t *testing.T) {
		b := x.opened(t, "pool_max_conns=1")
		validate(t, b, 1)
		x.exec("ALTER TABLE fenceproxy.election ALTER owner TYPE varchar(200)")
		validate(t, b, 0)
		x.exec("ALTER TABLE fenceproxy.election ALTER owner TYPE text")
		validate(t, b, 0)
	})
}

// Nothing is locked in a session, and a pool of the caller's stays open.
func TestNoSessionState(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	pool, err := pgxpool.New(t.Context(), x.dsn(x.server.Addr, "pool_max_conns=1"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	mine, err := New(pool, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Backend{mine, x.opened(t, "pool_max_conns=1")} {
		for range 3 {
			for _, err := range five(t.Context(), b) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		var locks int
		err := b.db.row(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()", nil, &locks)
		if err != nil || locks != 0 {
			t.Errorf("%d locks, %v", locks, err)
		}
	}
	if err := mine.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the caller's pool after Close: %v", err)
	}
}

// A caller's handle may be in any of pgx's modes; GORM's users often choose the simple
// protocol.
func TestModesOfCallersHandle(t *testing.T) {
	x := newPlace(t, testenv.SharedPostgres(t), "").install()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			db, err := sql.Open("pgx", x.dsn(x.server.Addr, "default_query_exec_mode="+mode))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			b, err := NewDB(db, Options{})
			if err != nil {
				t.Fatal(err)
			}
			g := win(t, b, mode, election.AcquireOptions{Owner: `o'\"$1`, MinFencing: 1<<62 + 1})
			if v, err := b.Validate(t.Context(), mode, g.Token); err != nil || v.Standing != election.StandingCurrent ||
				v.Number != 1<<62+1 || v.Owner != g.Owner {
				t.Errorf("Validate: %+v, %v", v, err)
			}
			if r, err := b.Renew(t.Context(), mode, g.Token); err != nil || r.Number != g.Number {
				t.Errorf("Renew: %+v, %v", r, err)
			}
			if r, err := b.Resign(t.Context(), mode, g.Token, election.ResignOptions{}); err != nil || r.Status != election.Released {
				t.Errorf("Resign: %+v, %v", r, err)
			}
			if err := b.EnsureSchema(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
