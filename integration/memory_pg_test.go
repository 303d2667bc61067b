package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// long reports whether the long versions of tests run (make race-long).
func long() bool { return os.Getenv("FENCEPROXY_LONG") != "" }

// memoryOf is a value of /proc/PID/status in bytes: VmRSS, or VmHWM, the most that it ever was.
func memoryOf(t *testing.T, p *testenv.Proxy, what string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(status), what+":")
	f := strings.Fields(rest)
	if !ok || len(f) < 2 || f[1] != "kB" {
		t.Fatalf("no %s in\n%s", what, status)
	}
	n, err := strconv.Atoi(f[0])
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// forget makes VmHWM what VmRSS is now.
func forget(t *testing.T, p *testenv.Proxy) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// A gate is a client's reader or writer that stops after some bytes until it is opened.
type gate struct {
	after   int64
	passed  atomic.Int64
	reached chan struct{}
	open    chan struct{}
	line    []byte
	left    int64 // bytes to give
}

func newGate(after int64) *gate {
	return &gate{after: after, reached: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) pass(n int) {
	if now := g.passed.Add(int64(n)); now >= g.after && now-int64(n) < g.after {
		close(g.reached)
		<-g.open
	}
}

// Write takes what a client reads.
func (g *gate) Write(b []byte) (int, error) { g.pass(len(b)); return len(b), nil }

// Read gives what a client sends: lines.
func (g *gate) Read(b []byte) (int, error) {
	if g.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n+len(g.line) <= len(b) && g.left > 0 {
		n += copy(b[n:], g.line)
		g.left -= int64(len(g.line))
	}
	g.pass(n)
	return n, nil
}

// Much data passes through a proxy of a small size: 64 MB (in the long version 1 GB) of COPY
// in and out; a result that the client stops reading; a COPY that the server stops reading.
func TestPostgresMemoryOfMuchData(t *testing.T) {
	const most = 64 << 20 // over the idle size
	size := int64(64 << 20)
	if long() {
		size = 1 << 30
	}
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	r := newPgResource(t, ctx)
	// A machine that is busy with this may leave questions to the election backend waiting.
	p := testenv.StartProxy(t, url, r.listener(), "guard: {permit: 10m}")
	c, _ := lead(t, ctx, b, "e", "a", time.Hour)
	conn := func() *pgconn.PgConn {
		t.Helper()
		return mustConnect(t, ctx, r, p.Addr, c).(*pgClient).c.PgConn()
	}
	warm := conn()
	if _, err := warm.Exec(ctx, "create temp table big (a text)").ReadAll(); err != nil {
		t.Fatal(err)
	}
	idle := memoryOf(t, p, "VmRSS")
	line := append(bytes.Repeat([]byte("x"), 1<<13-1), '\n')
	rows := size >> 13
	out := fmt.Sprintf("(select repeat('x', 8191) from generate_series(1, %d))", rows)
	run := func(name string, do func(t *testing.T)) {
		if t.Failed() {
			return // they share a connection
		}
		t.Run(name, func(t *testing.T) {
			forget(t, p)
			start := time.Now()
			do(t)
			over := memoryOf(t, p, "VmHWM") - idle
			t.Logf("%d MB in %v; the proxy grew from %d MB by %d MB", size>>20, time.Since(start).Round(10*time.Millisecond), idle>>20, over>>20)
			if over > most {
				t.Errorf("the proxy grew by %d MB", over>>20)
			}
		})
	}
	run("copy in", func(t *testing.T) {
		g := newGate(-1)
		g.line, g.left = line, size
		tag, err := warm.CopyFrom(ctx, g, "copy big from stdin")
		if err != nil || tag.RowsAffected() != rows {
			t.Errorf("%v, %v", tag, err)
		}
	})
	run("copy out", func(t *testing.T) {
		g := newGate(-1)
		if tag, err := warm.CopyTo(ctx, g, "copy "+out+" to stdout"); err != nil || tag.RowsAffected() != rows {
			t.Errorf("%v, %v", tag, err)
		}
		if g.passed.Load() != size {
			t.Errorf("%d bytes", g.passed.Load())
		}
	})
	run("a client that stops reading", func(t *testing.T) {
		pid := int32(warm.PID())
		rr := warm.ExecParams(ctx, "select * from "+out+" x", nil, nil, nil, nil)
		if !rr.NextRow() {
			t.Fatal("no row")
		}
		testenv.Eventually(t, "the server waits for the client", func() bool {
			var waits bool
			if err := r.direct.QueryRow(ctx, "select coalesce(wait_event = 'ClientWrite', false) from pg_stat_activity where pid=$1", pid).Scan(&waits); err != nil {
				t.Fatal(err)
			}
			return waits
		})
		n := int64(1)
		for rr.NextRow() {
			n++
		}
		if _, err := rr.Close(); err != nil || n != rows {
			t.Errorf("%d rows of %d, %v", n, rows, err)
		}
	})
	run("a server that stops reading", func(t *testing.T) {
		resume := sync.OnceFunc(func() { _ = syscall.Kill(int(warm.PID()), syscall.SIGCONT) })
		defer resume()
		g := newGate(size / 8)
		g.line, g.left = line, size
		done := make(chan error, 1)
		go func() {
			_, err := warm.CopyFrom(ctx, g, "copy big from stdin")
			done <- err
		}()
		select {
		case <-g.reached:
		case err := <-done:
			t.Fatalf("before the server was stopped: %v", err)
		}
		if err := syscall.Kill(int(warm.PID()), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		close(g.open)
		last, same := int64(-1), 0
		testenv.Eventually(t, "the client's data waits", func() bool {
			now := g.passed.Load()
			if same++; now != last {
				last, same = now, 0
			}
			return same > 50
		})
		if last >= size {
			t.Errorf("all %d bytes went on before a server that does not read", last)
		}
		resume()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What sessions cost: RSS over the idle size, each.
func TestPostgresMemoryOfSessions(t *testing.T) {
	idle, busy := 200, 20
	if long() {
		idle, busy = 2000, 200
	}
	const most = 40 << 10 // bytes an idle session
	ctx := testenv.Context(t)
	url, _ := redisElections(t)
	s := newPgStageOn(t, ctx, "", fmt.Sprintf("max_connections=%d", idle+busy+50))
	p := testenv.StartProxy(t, url, (&pgResource{pgStage: s}).listener())

	connect := func(n int) []*pgx.Conn {
		t.Helper()
		conns := make([]*pgx.Conn, n)
		var wg sync.WaitGroup
		next := atomic.Int64{}
		for range 8 {
			wg.Go(func() {
				for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
					c, err := (&pgRaced{proxies: [2]string{p.Addr}, user: "app"}).connect(ctx, guard.Credential{}, 0)
					if err == nil {
						_, err = c.Exec(ctx, "select count(*) from pg_class where relkind = 'r'")
					}
					if err != nil {
						t.Error(err)
						return
					}
					conns[i] = c
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		t.Cleanup(func() { closeAll(conns) })
		return conns
	}
	closeAll(connect(20)) // what all share
	files := filesOf(t, p)
	before := memoryOf(t, p, "VmRSS")
	conns := connect(idle)
	after := memoryOf(t, p, "VmRSS")
	each := (after - before) / idle
	t.Logf("%d idle sessions: %d kB each (%d MB, then %d MB)", idle, each>>10, before>>20, after>>20)
	if each > most {
		t.Errorf("an idle session costs %d kB", each>>10)
	}

	// Beside them, sessions that work.
	working := connect(busy)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var done atomic.Int64
	for _, c := range working {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := c.Exec(ctx, "select repeat('x', 20000)"); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	testenv.Eventually(t, "they work", func() bool { return done.Load() > int64(busy*50) })
	with := memoryOf(t, p, "VmRSS")
	close(stop)
	wg.Wait()
	t.Logf("%d busy sessions more: %d kB each (%d MB)", busy, (with-after)/busy>>10, with>>20)

	closeAll(working)
	closeAll(conns)
	testenv.Eventually(t, "all connections are closed", func() bool { return filesOf(t, p) <= files })
	// Again the same number costs nothing more: nothing was left behind.
	closeAll(connect(idle))
	testenv.Eventually(t, "all connections are closed again", func() bool { return filesOf(t, p) <= files })
	again := memoryOf(t, p, "VmRSS")
	t.Logf("after all have left, and as many came and left again: %d MB", again>>20)
	if again > with+with/4 {
		t.Errorf("memory grew from %d MB to %d MB", with>>20, again>>20)
	}
}

func closeAll(conns []*pgx.Conn) {
	var wg sync.WaitGroup
	for _, c := range conns {
		if c == nil || c.IsClosed() {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = c.Close(ctx)
		})
	}
	wg.Wait()
}

// filesOf is how many files and connections a proxy has open.
func filesOf(t *testing.T, p *testenv.Proxy) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
