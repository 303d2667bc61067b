package postgres

import (
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A place is a database with the table, and a role that has the rights that GrantSQL
// gives, and no others.
type place struct {
	t      testing.TB
	server *servers.Process
	db     string
	role   string
	schema string
	admin  *pgx.Conn
}

// newPlace makes a database on the server.
func newPlace(t testing.TB, p *servers.Process, schema string) *place {
	t.Helper()
	ctx := testenv.Context(t)
	root, err := pgx.Connect(ctx, p.DSN(servers.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close(ctx)
	x := &place{t: t, server: p, db: testenv.Name(t, "db"), role: testenv.Name(t, "role"), schema: schema}
	for _, s := range []string{"CREATE DATABASE " + x.db, "CREATE ROLE " + x.role + " LOGIN"} {
		if _, err := root.Exec(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if x.admin, err = pgx.Connect(ctx, p.DSN(servers.Superuser, x.db)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.admin.Close(ctx) })
	return x
}

// install makes the table and gives the rights.
func (x *place) install() *place {
	x.t.Helper()
	s, err := SchemaSQL(x.schema)
	if err != nil {
		x.t.Fatal(err)
	}
	g, err := GrantSQL(x.schema, x.role)
	if err != nil {
		x.t.Fatal(err)
	}
	x.exec(s + s + g) // twice: it does no harm
	return x
}

func (x *place) exec(statements string) {
	x.t.Helper()
	if _, err := x.admin.Exec(testenv.Context(x.t), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		x.t.Fatal(err)
	}
}

// dsn is the role's connection string, for a server at addr.
func (x *place) dsn(addr string, params ...string) string {
	u := url.URL{Scheme: "postgres", User: url.User(x.role), Host: addr, Path: x.db, RawQuery: strings.Join(append(params, "sslmode=disable"), "&")}
	return u.String()
}

func (x *place) open(t testing.TB, addr string, params ...string) *Backend {
	t.Helper()
	b, err := Open(t.Context(), x.dsn(addr, params...), Options{Schema: x.schema})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// opened is open for the length of the test.
func (x *place) opened(t testing.TB, params ...string) *Backend {
	t.Helper()
	b := x.open(t, x.server.Addr, params...)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// table is the table's name.
func (x *place) table() string {
	if x.schema == "" {
		return DefaultSchema + ".election"
	}
	return x.schema + ".election"
}

// harness is the suite's harness, with handles made by open.
func (x *place) harness(open func(t testing.TB, addr string) election.Backend) electiontest.Harness {
	admin, err := pgxpool.New(testenv.Context(x.t), x.server.DSN(servers.Superuser, x.db))
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(admin.Close)
	return electiontest.Harness{
		Hints: true,
		Open:  func(t testing.TB) election.Backend { return open(t, x.server.Addr) },
		Lose: func(t testing.TB, _ election.Backend, id string) {
			if _, err := admin.Exec(t.Context(), "DELETE FROM "+x.table()+" WHERE election = $1", id); err != nil {
				t.Error(err)
			}
		},
		Dump: func(t testing.TB, _ election.Backend) string {
			rows, err := admin.Query(t.Context(), "SELECT e::text FROM "+x.table()+" e")
			if err != nil {
				t.Fatal(err)
			}
			dump, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(dump, "\n")
		},
		Server: x.server.Addr,
		OpenAt: open,
	}
}

func TestConformance(t *testing.T) {
	p := testenv.SharedPostgres(t)
	t.Run("DSN", func(t *testing.T) {
		x := newPlace(t, p, "").install()
		electiontest.Run(t, x.harness(func(t testing.TB, addr string) election.Backend { return x.open(t, addr) }))
	})
	// What a role or a caller's pool may have set must not matter.
	t.Run("Serializable", func(t *testing.T) {
		x := newPlace(t, p, "some_schema").install()
		x.exec(fmt.Sprintf(`ALTER ROLE %s SET default_transaction_isolation = serializable;
			ALTER ROLE %[1]s SET search_path = nowhere;
			ALTER ROLE %[1]s SET timezone = 'Pacific/Kiritimati';
			ALTER ROLE %[1]s SET intervalstyle = iso_8601`, x.role))
		electiontest.Run(t, x.harness(func(t testing.TB, addr string) election.Backend { return x.open(t, addr) }))
	})
	t.Run("SQL", func(t *testing.T) {
		x := newPlace(t, p, "").install()
		electiontest.Run(t, x.harness(func(t testing.TB, addr string) election.Backend {
			db, err := sql.Open("pgx", x.dsn(addr))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			b, err := NewDB(db, Options{})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}))
	})
}
