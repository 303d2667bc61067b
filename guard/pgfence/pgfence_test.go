package pgfence_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestSuite(t *testing.T) { everyVersion(t, suite) }

func suite(t *testing.T, c *cluster) {
	guardtest.Run(t, guardtest.Resource{
		Fence:    c.fence(t, pgfence.DefaultRole),
		Election: func(t testing.TB) string { return testenv.Name(t, "e:") },
		Bind: func(t testing.TB, term guard.Term, r guard.Record) (guardtest.Conn, error) {
			s := c.session(t, "app")
			_, err := c.fence(t, pgfence.DefaultRole).Bind(t.Context(), s.backend(), term, r)
			return s, err
		},
		Lose: func(t testing.TB, id string) { c.exec(t, "DELETE FROM fenceproxy.fence WHERE election = $1", id) },
	})
}

// A cluster is a server with the fence installed, and a role app that may write.
type cluster struct {
	p     *servers.Process
	admin *pgx.Conn
}

// everyVersion runs a test on every major version of Postgres.
func everyVersion(t *testing.T, test func(*testing.T, *cluster)) {
	testenv.EachPostgres(t, func(t *testing.T, _ testenv.Version, p *servers.Process) { test(t, install(t, p)) })
}

func shared(t testing.TB) *cluster { return install(t, testenv.SharedPostgres(t)) }

func install(t testing.TB, p *servers.Process) *cluster {
	t.Helper()
	c := &cluster{p: p}
	c.admin = c.connect(t, servers.Superuser)
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Login: true})
	must(t, err)
	c.exec(t, sql)
	c.exec(t, `DO $$ BEGIN IF to_regrole('app') IS NULL THEN CREATE ROLE app LOGIN; END IF; END $$;
		CREATE TABLE IF NOT EXISTS writes (n int); GRANT INSERT ON writes TO app`)
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	var err error
	if len(args) == 0 {
		_, err = c.admin.PgConn().Exec(t.Context(), sql).ReadAll()
	} else {
		_, err = c.admin.Exec(t.Context(), sql, args...)
	}
	must(t, err)
}

func (c *cluster) count(t testing.TB, sql string, args ...any) int {
	t.Helper()
	var n int
	must(t, c.admin.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

func (c *cluster) connect(t testing.TB, user string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.p.DSN(user, "postgres"))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (c *cluster) fence(t testing.TB, role string) *pgfence.Fence {
	t.Helper()
	f, err := pgfence.Open(t.Context(), c.p.DSN(role, "postgres"), pgfence.Options{})
	must(t, err)
	t.Cleanup(f.Close)
	return f
}

type session struct{ *pgx.Conn }

func (c *cluster) session(t testing.TB, user string) session { return session{c.connect(t, user)} }

func (s session) backend() pgfence.Backend {
	return pgfence.BackendOf(s.PgConn().PID(), s.PgConn().Conn())
}

func (s session) Write(ctx context.Context) error {
	_, err := s.Exec(ctx, "INSERT INTO writes VALUES (1)")
	return err
}

// bound is a session of app's that is bound to a fresh term, and the term.
func (c *cluster) bound(t testing.TB, f *pgfence.Fence) (session, guard.Term) {
	t.Helper()
	x, _ := guardtest.Term(testenv.Name(t, "e"), 7)
	r := guardtest.Record(x, guard.Severed, 1)
	must(t, f.Swap(t.Context(), x.Election, guard.Record{}, r))
	s := c.session(t, "app")
	_, err := f.Bind(t.Context(), s.backend(), x, r)
	must(t, err)
	return s, x
}

func after(x guard.Term) guard.Term {
	y, _ := guardtest.Term(x.Election, x.Number+1)
	return y
}

// within is a context for what must not happen.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for an event that has no other sign.
func eventually(t testing.TB, is func() bool) {
	t.Helper()
	testenv.Within(t, 20*time.Second, "what is waited for", is)
}

func TestBindRefuses(t *testing.T) { everyVersion(t, bindRefuses) }

func bindRefuses(t *testing.T, c *cluster) {
	f := c.fence(t, pgfence.DefaultRole)
	x, _ := guardtest.Term(testenv.Name(t, "e"), 7)
	r := guardtest.Record(x, guard.Severed, 1)
	must(t, f.Swap(t.Context(), x.Election, guard.Record{}, r))
	s, super := c.session(t, "app"), c.session(t, servers.Superuser)
	_, err := super.Exec(t.Context(), "SET SESSION AUTHORIZATION app")
	must(t, err)
	checkpointer := uint32(c.count(t, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"))
	good := s.backend()
	port := netip.AddrPortFrom(good.Addr.Addr(), good.Addr.Port()+1)
	host := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), good.Addr.Port())
	for _, b := range []struct {
		name string
		b    pgfence.Backend
		want error
		why  guard.Reason
	}{
		{"superuser in disguise", super.backend(), pgfence.ErrSuperuser, guard.Unseverable},
		{"other port", pgfence.Backend{PID: good.PID, Addr: port}, pgfence.ErrPooler, guard.Unseverable},
		{"other address", pgfence.Backend{PID: good.PID, Addr: host}, pgfence.ErrPooler, guard.Unseverable},
		{"nobody knows who listens", pgfence.Backend{PID: good.PID}, pgfence.ErrUnproven, guard.Unseverable},
		{"not a Unix socket", pgfence.Backend{PID: good.PID, Listener: c.p.PID()}, pgfence.ErrPooler, guard.Unseverable},
		{"no such process", pgfence.Backend{PID: 1 << 30, Addr: good.Addr}, pgfence.ErrGone, guard.Unseverable},
		{"no client's process", pgfence.Backend{PID: checkpointer, Addr: good.Addr}, pgfence.ErrGone, guard.Unseverable},
	} {
		_, err := f.Bind(t.Context(), b.b, x, r)
		var refused *guard.Refusal
		if !errors.Is(err, b.want) || !errors.As(err, &refused) || refused.Reason != b.why || refused.Held != 7 {
			t.Errorf("%s: %v", b.name, err)
		}
	}
	if n := c.count(t, "SELECT count(*) FROM fenceproxy.session WHERE election = $1", x.Election); n != 0 {
		t.Errorf("%d sessions bound", n)
	}
	bound, err := f.Bind(t.Context(), good, x, r)
	must(t, err)
	if !bound.PreparedTransactions || bound.PID != good.PID || bound.Start.IsZero() {
		t.Errorf("%+v", bound)
	}
	// Again, and by a mapped address.
	good.Addr = netip.AddrPortFrom(netip.AddrFrom16(good.Addr.Addr().As16()), good.Addr.Port())
	_, err = f.Bind(t.Context(), good, x, r)
	must(t, err)
}

// A pooler or a relay has another socket than the proxy's.
func TestPoolerIsDetected(t *testing.T) {
	c := shared(t)
	f := c.fence(t, pgfence.DefaultRole)
	x, _ := guardtest.Term(testenv.Name(t, "e"), 7)
	r := guardtest.Record(x, guard.Severed, 1)
	must(t, f.Swap(t.Context(), x.Election, guard.Record{}, r))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", c.p.Addr)
		if err != nil {
			return
		}
		relay(in, out)
	}()
	conn, err := pgx.Connect(t.Context(), "postgres://app@"+l.Addr().String()+"/postgres?sslmode=disable")
	must(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := f.Bind(t.Context(), session{conn}.backend(), x, r); !errors.Is(err, pgfence.ErrPooler) {
		t.Errorf("%v", err)
	}
}

func relay(a, b net.Conn) {
	done := make(chan struct{})
	pump := func(to, from net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				_, _ = to.Write(buf[:n])
			}
			if err != nil {
				_, _ = to.Close(), from.Close()
				return
			}
		}
	}
	go func() { pump(a, b); close(done) }()
	pump(b, a)
	<-done
}

func TestUnbindOnlyWhatHasEnded(t *testing.T) { everyVersion(t, unbindOnlyWhatHasEnded) }

func unbindOnlyWhatHasEnded(t *testing.T, c *cluster) {
	f := c.fence(t, pgfence.DefaultRole)
	x, _ := guardtest.Term(testenv.Name(t, "e"), 7)
	r := guardtest.Record(x, guard.Severed, 1)
	must(t, f.Swap(t.Context(), x.Election, guard.Record{}, r))
	s := c.session(t, "app")
	b, err := f.Bind(t.Context(), s.backend(), x, r)
	must(t, err)
	rows := func() int {
		return c.count(t, "SELECT count(*) FROM fenceproxy.session WHERE election = $1", x.Election)
	}
	must(t, f.Unbind(t.Context(), b))
	if rows() != 1 {
		t.Error("a live session was forgotten")
	}
	must(t, s.Close(t.Context()))
	eventually(t, func() bool {
		must(t, f.Unbind(t.Context(), b))
		return rows() == 0
	})
}

func TestPasswordNeverInAnError(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:hunter2/x@host:5432/db", "postgres://u:hunter2 x@h/db", "postgres://u:hunter2@h:port/db",
		"host=h password='hunter2", "postgres://u:%zzhunter2@h/db", "hunter2", "host=h port=hunter2",
	} {
		f, err := pgfence.Open(t.Context(), dsn, pgfence.Options{})
		if err == nil {
			f.Close()
			t.Errorf("%s: no error", dsn)
			continue
		}
		if !errors.Is(err, pgfence.ErrDSN) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
	f, err := pgfence.Open(t.Context(), "postgres://u:hunter2@127.0.0.1:1/db", pgfence.Options{})
	must(t, err)
	defer f.Close()
	_, err = f.Read(t.Context(), "e")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
	if ps := f.Check(t.Context()); len(ps) != 1 || !ps[0].Fatal || strings.Contains(ps[0].String(), "hunter2") {
		t.Errorf("%v", ps)
	}
}
