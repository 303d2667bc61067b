package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// SAFETY: lock at bind. A bind that has looked at the fence but has not committed holds
// the raise up, so that the sever sees it.
func TestRaiseWaitsForABindUnderWay(t *testing.T) { everyVersion(t, raiseWaitsForABindUnderWay) }

func raiseWaitsForABindUnderWay(t *testing.T, c *cluster) {
	f := c.fence(t, pgfence.DefaultRole)
	x, _ := guardtest.Term(testenv.Name(t, "e"), 7)
	r := guardtest.Record(x, guard.Severed, 1)
	must(t, f.Swap(t.Context(), x.Election, guard.Record{}, r))
	s := c.session(t, "app")
	pid := s.backend().PID

	// Somebody's uncommitted row of the same key stops the bind after its look at the
	// fence and before its end.
	blocker := c.connect(t, servers.Superuser)
	tx, err := blocker.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO fenceproxy.session VALUES ($1, now(), $2, 1, '')", pid, x.Election)
	must(t, err)
	bound := make(chan error, 1)
	go func() {
		_, err := f.Bind(t.Context(), s.backend(), x, r)
		bound <- err
	}()
	waiting := func(mode string) func() bool {
		return func() bool {
			return c.count(t, `SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = $1`, mode) > 0
		}
	}
	eventually(t, waiting("ShareLock")) // for the blocker's transaction

	// The takeover meanwhile.
	y := after(x)
	raised := guardtest.Record(y, guard.Raised, 2)
	taken := make(chan error, 1)
	go func() {
		err := f.Swap(t.Context(), x.Election, r, raised)
		if err == nil {
			err = f.Sever(t.Context(), y)
		}
		taken <- err
	}()
	select {
	case err := <-taken:
		t.Errorf("the takeover did not wait for the bind: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, tx.Rollback(t.Context()))
	must(t, <-bound)
	select {
	case err := <-taken:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the takeover does not end")
	}
	if s.Write(t.Context()) == nil {
		t.Error("a stale session writes after the takeover")
	}
}

// SAFETY: the bind's look at the fence comes after its lock, so that it sees a raise
// that was under way when it began.
func TestBindWaitsForARaiseUnderWay(t *testing.T) { everyVersion(t, bindWaitsForARaiseUnderWay) }

func bindWaitsForARaiseUnderWay(t *testing.T, c *cluster) {
	f := c.fence(t, pgfence.DefaultRole)
	x, _ := guardtest.Term(testenv.Name(t, "e"), 7)
	r := guardtest.Record(x, guard.Severed, 1)
	must(t, f.Swap(t.Context(), x.Election, guard.Record{}, r))
	s := c.session(t, "app")
	raiser := c.connect(t, pgfence.DefaultRole)
	tx, err := raiser.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE fenceproxy.gate IN EXCLUSIVE MODE")
	must(t, err)
	_, err = tx.Exec(t.Context(), "UPDATE fenceproxy.fence SET highest = 8, state = 'raised' WHERE election = $1", x.Election)
	must(t, err)
	bound := make(chan error, 1)
	go func() {
		_, err := f.Bind(t.Context(), s.backend(), x, r)
		bound <- err
	}()
	eventually(t, func() bool {
		select {
		case err := <-bound:
			t.Fatalf("did not wait: %v", err)
		default:
		}
		return c.count(t, "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'RowShareLock'") > 0
	})
	must(t, tx.Commit(t.Context()))
	if err := <-bound; !errors.Is(err, guard.ErrConflict) {
		t.Errorf("bound behind a raise: %v", err)
	}
}

func TestTheGateIsNotWaitedForForEver(t *testing.T) {
	c := shared(t)
	f, err := pgfence.Open(t.Context(), c.p.DSN(pgfence.DefaultRole, "postgres"), pgfence.Options{LockTimeout: 50 * time.Millisecond})
	must(t, err)
	defer f.Close()
	x, _ := guardtest.Term(testenv.Name(t, "e"), 7)
	r := guardtest.Record(x, guard.Severed, 1)
	tx, err := c.connect(t, servers.Superuser).Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE fenceproxy.gate")
	must(t, err)
	if err := f.Swap(t.Context(), x.Election, guard.Record{}, r); !errors.Is(err, pgfence.ErrGate) {
		t.Errorf("swap: %v", err)
	}
	if _, err := f.Bind(t.Context(), c.session(t, "app").backend(), x, r); !errors.Is(err, pgfence.ErrGate) {
		t.Errorf("bind: %v", err)
	}
	must(t, tx.Rollback(t.Context()))
	must(t, f.Swap(t.Context(), x.Election, guard.Record{}, r))
}

// SAFETY: wait for the exit. A signal that was sent is no end.
func TestSeverWaitsForAStoppedProcess(t *testing.T) { everyVersion(t, severWaitsForAStoppedProcess) }

func severWaitsForAStoppedProcess(t *testing.T, c *cluster) {
	f := c.fence(t, pgfence.DefaultRole)
	s, x := c.bound(t, f)
	pid := int(s.backend().PID)
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	err := f.Sever(within(t, time.Second), after(x))
	var e *pgfence.SeverError
	if !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || len(e.Left) != 1 || int(e.Left[0].PID) != pid ||
		!strings.Contains(err.Error(), fmt.Sprint("pid ", pid)) {
		t.Fatalf("got %v", err)
	}
	severed := make(chan error, 1)
	go func() { severed <- f.Sever(t.Context(), after(x)) }()
	select {
	case err := <-severed:
		t.Errorf("did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	must(t, <-severed)
	if s.Write(t.Context()) == nil {
		t.Error("not severed")
	}
}

// SAFETY: rights. Without them the server hides what a takeover has to see.
func TestRightsAreCheckedBeforeTheyAreReliedOn(t *testing.T) {
	c := install(t, testenv.Postgres(t, servers.PostgresOptions{}))
	f := c.fence(t, pgfence.DefaultRole)
	s, x := c.bound(t, f)
	r := guardtest.Record(x, guard.Severed, 1)
	for _, right := range []string{"pg_read_all_stats", "pg_signal_backend"} {
		c.exec(t, "REVOKE "+right+" FROM fenceproxy")
		if err := f.Sever(within(t, 5*time.Second), after(x)); !errors.Is(err, pgfence.ErrRights) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without %s: sever: %v", right, err)
		}
		other := c.session(t, "app")
		_, err := f.Bind(t.Context(), other.backend(), x, r)
		if !errors.Is(err, pgfence.ErrRights) {
			t.Errorf("without %s: bind: %v", right, err)
		}
		if ps := f.Check(t.Context()); len(ps) != 1 || !ps[0].Fatal || !strings.Contains(ps[0].What, right) {
			t.Errorf("without %s: check: %v", right, ps)
		}
		c.exec(t, "GRANT "+right+" TO fenceproxy")
	}
	if err := s.Write(t.Context()); err != nil {
		t.Errorf("the session was ended: %v", err)
	}
	if n := c.count(t, "SELECT count(*) FROM fenceproxy.session"); n != 1 {
		t.Errorf("%d rows", n)
	}
	must(t, f.Sever(t.Context(), after(x)))
	if s.Write(t.Context()) == nil {
		t.Error("not severed")
	}
}

// SAFETY: rights that are taken away while a takeover waits.
func TestRightsLostDuringATakeover(t *testing.T) {
	c := install(t, testenv.Postgres(t, servers.PostgresOptions{}))
	f := c.fence(t, pgfence.DefaultRole)
	s, x := c.bound(t, f)
	pid := int(s.backend().PID)
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	severed := make(chan error, 1)
	go func() { severed <- f.Sever(within(t, 20*time.Second), after(x)) }()
	eventually(t, func() bool {
		return c.count(t, `SELECT count(*) FROM pg_stat_activity WHERE usename = 'fenceproxy' AND query LIKE '%pg_terminate_backend%'`) > 0 ||
			len(severed) > 0
	})
	c.exec(t, "REVOKE pg_read_all_stats FROM fenceproxy")
	if err := <-severed; !errors.Is(err, pgfence.ErrRights) {
		t.Errorf("got %v", err)
	}
}

func TestSchemaMissing(t *testing.T) {
	p := testenv.Postgres(t, servers.PostgresOptions{})
	c := &cluster{p: p}
	c.admin = c.connect(t, servers.Superuser)
	c.exec(t, "CREATE ROLE fenceproxy LOGIN; GRANT pg_read_all_stats, pg_signal_backend TO fenceproxy")
	f := c.fence(t, pgfence.DefaultRole)
	x, _ := guardtest.Term("e", 7)
	r := guardtest.Record(x, guard.Severed, 1)
	if _, err := f.Read(t.Context(), "e"); !errors.Is(err, pgfence.ErrSchema) {
		t.Errorf("read: %v", err)
	}
	if err := f.Swap(t.Context(), "e", guard.Record{}, r); !errors.Is(err, pgfence.ErrSchema) {
		t.Errorf("swap: %v", err)
	}
	if err := f.Sever(t.Context(), x); !errors.Is(err, pgfence.ErrSchema) {
		t.Errorf("sever: %v", err)
	}
	if _, err := f.Bind(t.Context(), c.session(t, "fenceproxy").backend(), x, r); !errors.Is(err, pgfence.ErrSchema) {
		t.Errorf("bind: %v", err)
	}
	if ps := f.Check(t.Context()); len(ps) != 1 || !ps[0].Fatal || !strings.Contains(ps[0].Fix, "install") {
		t.Errorf("check: %v", ps)
	}
	c.exec(t, "CREATE SCHEMA fenceproxy; CREATE TABLE fenceproxy.fence (election text)")
	if ps := f.Check(t.Context()); len(ps) != 3 || !ps[0].Fatal {
		t.Errorf("check of half a schema: %v", ps)
	}
	if _, err := f.Read(t.Context(), "e"); !errors.Is(err, pgfence.ErrRights) {
		t.Errorf("read without usage: %v", err)
	}
}

// A role that became a superuser after its bind holds a takeover up, until it is one no
// more; nothing stale lands.
func TestSuperuserAfterItsBind(t *testing.T) {
	c := install(t, testenv.Postgres(t, servers.PostgresOptions{}))
	f := c.fence(t, pgfence.DefaultRole)
	s, x := c.bound(t, f)
	other := c.session(t, "app")
	_, err := f.Bind(t.Context(), other.backend(), x, guardtest.Record(x, guard.Severed, 1))
	must(t, err)
	// The server keeps the role of each process since its start, but asks the catalog
	// whether it is a superuser's.
	c.exec(t, "CREATE ROLE plain LOGIN; GRANT INSERT ON writes TO plain")
	var plain []session // one that may not be ended does not keep the others alive
	for range 10 {
		s := c.session(t, "plain")
		_, err := f.Bind(t.Context(), s.backend(), x, guardtest.Record(x, guard.Severed, 1))
		must(t, err)
		plain = append(plain, s)
	}
	c.exec(t, "ALTER ROLE app SUPERUSER")
	err = f.Sever(within(t, time.Second), after(x))
	var e *pgfence.SeverError
	if !errors.As(err, &e) || len(e.Left) != 2 || e.Left[0].Role != "app" || !errors.Is(e.Left[0].Err, pgfence.ErrRights) {
		t.Fatalf("got %v", err)
	}
	for _, s := range plain {
		if s.Write(t.Context()) == nil {
			t.Error("an ordinary session is alive")
		}
	}
	c.exec(t, "ALTER ROLE app NOSUPERUSER")
	must(t, f.Sever(t.Context(), after(x)))
	if s.Write(t.Context()) == nil || other.Write(t.Context()) == nil {
		t.Error("not severed")
	}
}

// A process id that is in use again is another process.
func TestUsedAgainProcessIsLeftAlone(t *testing.T) { everyVersion(t, usedAgainProcessIsLeftAlone) }

func usedAgainProcessIsLeftAlone(t *testing.T, c *cluster) {
	f := c.fence(t, pgfence.DefaultRole)
	x, _ := guardtest.Term(testenv.Name(t, "e"), 7)
	s := c.session(t, "app")
	c.exec(t, "INSERT INTO fenceproxy.session VALUES ($1, now() - interval '1 day', $2, 7, '')", s.backend().PID, x.Election)
	must(t, f.Sever(within(t, 5*time.Second), after(x)))
	must(t, s.Write(t.Context()))
	if n := c.count(t, "SELECT count(*) FROM fenceproxy.session WHERE election = $1", x.Election); n != 0 {
		t.Errorf("%d rows left", n)
	}
}

// A transaction that is open at the takeover never commits.
func TestOpenTransactionIsRolledBack(t *testing.T) { everyVersion(t, openTransactionIsRolledBack) }

func openTransactionIsRolledBack(t *testing.T, c *cluster) {
	f := c.fence(t, pgfence.DefaultRole)
	s, x := c.bound(t, f)
	before := c.count(t, "SELECT count(*) FROM writes")
	tx, err := s.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO writes VALUES (1)")
	must(t, err)
	must(t, f.Sever(t.Context(), after(x)))
	if tx.Commit(t.Context()) == nil {
		t.Error("committed")
	}
	if n := c.count(t, "SELECT count(*) FROM writes"); n != before {
		t.Errorf("%d rows more", n-before)
	}
}

// SAFETY: the raise is durable also where the server's transactions are not.
func TestRaiseSurvivesACrash(t *testing.T) {
	dir, err := servers.InitPostgres(t.Context(), "")
	must(t, err)
	start := func() *servers.Process {
		p, err := servers.StartPostgres(testenv.Context(t), servers.PostgresOptions{Dir: dir,
			Settings: []string{"synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=0"}})
		must(t, err)
		return p
	}
	p := start()
	c := install(t, p)
	f := c.fence(t, pgfence.DefaultRole)
	_, x := c.bound(t, f)
	y := after(x)
	c.exec(t, "CHECKPOINT")
	raised := guardtest.Record(y, guard.Raised, 2)
	must(t, f.Swap(t.Context(), x.Election, guardtest.Record(x, guard.Severed, 1), raised))
	p.Kill()
	f.Close()
	p = start()
	defer func() { p.Stop(); removeAll(t, dir) }()
	c2 := &cluster{p: p}
	c2.admin = c2.connect(t, servers.Superuser)
	rec, err := c2.fence(t, pgfence.DefaultRole).Read(t.Context(), x.Election)
	must(t, err)
	if rec != raised {
		t.Errorf("after the crash: %+v", rec)
	}
	if n := c2.count(t, "SELECT count(*) FROM fenceproxy.session"); n != 0 {
		t.Errorf("%d sessions outlived the crash", n)
	}
}

func TestSever500(t *testing.T) {
	c := install(t, testenv.Postgres(t, servers.PostgresOptions{Settings: []string{"max_connections=600"}}))
	f := c.fence(t, pgfence.DefaultRole)
	s, x := c.bound(t, f)
	all := []session{s}
	for len(all) < 500 {
		s := c.session(t, "app")
		_, err := f.Bind(t.Context(), s.backend(), x, guardtest.Record(x, guard.Severed, 1))
		must(t, err)
		all = append(all, s)
	}
	start := time.Now()
	must(t, f.Sever(t.Context(), after(x)))
	t.Logf("500 sessions severed in %v", time.Since(start))
	for _, s := range all {
		if s.Write(t.Context()) == nil {
			t.Fatal("a session is alive")
		}
	}
	if n := c.count(t, "SELECT count(*) FROM fenceproxy.session"); n != 0 {
		t.Errorf("%d rows left", n)
	}
}
