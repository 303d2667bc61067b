package integration

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// lead acquires an election as soon as it is to be had.
func lead(t *testing.T, ctx context.Context, b election.Backend, id, owner string, ttl time.Duration) (guard.Credential, int64) {
	t.Helper()
	var got election.AcquireResult
	testenv.Eventually(t, owner+" leads", func() bool {
		var err error
		got, err = b.Acquire(ctx, id, election.AcquireOptions{Owner: owner, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status == election.Acquired
	})
	return guard.Credential{Election: id, Token: got.Token}, got.Number
}

// renewing keeps a lease until the returned function is called.
func renewing(t *testing.T, ctx context.Context, b election.Backend, c guard.Credential) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if _, err := b.Renew(ctx, c.Election, c.Token); err != nil && ctx.Err() == nil {
					t.Errorf("renew: %v", err)
				}
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

// A client is a session of a guarded resource.
type client interface {
	// write applies one write of the number.
	write(ctx context.Context, n int64) error
	close()
}

// A resource is a guarded resource behind proxies, as the fault tests see it.
type resource interface {
	// listener is the configuration of a listener in front of it.
	listener() string
	connect(ctx context.Context, addr string, c guard.Credential) (client, error)
	// applied is how many writes of the number have been applied.
	applied(t *testing.T, ctx context.Context, n int64) int
	// fence is the fence as it stands in the resource.
	fence(t *testing.T, ctx context.Context, id string) guard.Record
	// stall keeps the client's connection from being severed until the returned
	// function is called.
	stall(t *testing.T, ctx context.Context, c client) (resume func())
}

func mustConnect(t *testing.T, ctx context.Context, r resource, addr string, c guard.Credential) client {
	t.Helper()
	cl, err := r.connect(ctx, addr, c)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(cl.close)
	return cl
}

func mustWrite(t *testing.T, ctx context.Context, cl client, n int64) {
	t.Helper()
	if err := cl.write(ctx, n); err != nil {
		t.Fatalf("write of the live holder: %v", err)
	}
}

// mustRefuse checks that neither an old connection nor a new one with the old token
// writes, and that nothing was applied.
func mustRefuse(t *testing.T, ctx context.Context, r resource, addr string, old client, c guard.Credential, n int64) {
	t.Helper()
	before := r.applied(t, ctx, n)
	if old != nil {
		if err := old.write(ctx, n); err == nil {
			t.Error("a stale write on the old connection was accepted")
		}
	}
	again, err := r.connect(ctx, addr, c)
	if err == nil {
		defer again.close()
		if err := again.write(ctx, n); err == nil {
			t.Error("a stale write on a new connection was accepted")
		} else {
			t.Logf("refused: %v", err)
		}
	}
	if now := r.applied(t, ctx, n); now != before {
		t.Errorf("%d stale writes were applied", now-before)
	}
}

const shortTTL = time.Second

// A proxy that is stopped for longer than a lease, and continued, lets no stale write
// through that reached it before, while or after it was stopped.
func testProxyStopped(t *testing.T, ctx context.Context, r resource, backendURL string, b election.Backend) {
	p1, p2 := testenv.StartProxy(t, backendURL, r.listener()), testenv.StartProxy(t, backendURL, r.listener())
	a, na := lead(t, ctx, b, "e", "a", shortTTL)
	old := mustConnect(t, ctx, r, p1.Addr, a)
	mustWrite(t, ctx, old, na)

	p1.Pause(t)
	var wg sync.WaitGroup
	wg.Go(func() { // waits inside the stopped proxy
		if err := old.write(ctx, na); err == nil {
			t.Error("a write that waited in the stopped proxy was accepted")
		}
	})
	c, nc := lead(t, ctx, b, "e", "c", time.Minute)
	live := mustConnect(t, ctx, r, p2.Addr, c)
	mustWrite(t, ctx, live, nc)
	if got := r.applied(t, ctx, na); got != 1 {
		t.Errorf("%d writes of the old number", got)
	}
	p1.Signal(syscall.SIGCONT)
	wg.Wait()
	mustRefuse(t, ctx, r, p1.Addr, old, a, na)
	mustWrite(t, ctx, live, nc)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p1.Addr, c), nc)
	if got := r.applied(t, ctx, na); got != 1 {
		t.Errorf("%d writes of the old number", got)
	}
}

// A proxy that is killed and started again knows the fence, lets the live holder go
// on and refuses the one before.
func testProxyKilled(t *testing.T, ctx context.Context, r resource, backendURL string, b election.Backend) {
	p1, p2 := testenv.StartProxy(t, backendURL, r.listener()), testenv.StartProxy(t, backendURL, r.listener())
	a, na := lead(t, ctx, b, "e", "a", shortTTL)
	stop := renewing(t, ctx, b, a)
	old := mustConnect(t, ctx, r, p1.Addr, a)
	mustWrite(t, ctx, old, na)
	p1.Kill()
	if err := old.write(ctx, na); err == nil {
		t.Error("a write went through a killed proxy")
	}
	p1.Start(t)
	again := mustConnect(t, ctx, r, p1.Addr, a)
	mustWrite(t, ctx, again, na)

	p1.Pause(t) // its connection stays up while the lease runs out
	stop()
	c, nc := lead(t, ctx, b, "e", "c", time.Minute)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p2.Addr, c), nc)
	p1.Signal(syscall.SIGCONT)
	p1.Kill()
	p1.Start(t)
	mustRefuse(t, ctx, r, p1.Addr, again, a, na)
	if f := r.fence(t, ctx, "e"); f.Highest != nc || f.State != guard.Severed {
		t.Errorf("the fence is %+v, want number %d, severed", f, nc)
	}
}

// A proxy that is killed between raise and sever leaves the fence raised; nobody writes
// until another proxy has finished the sever.
func testKilledBetweenRaiseAndSever(t *testing.T, ctx context.Context, r resource, backendURL string, b election.Backend) {
	p1, p2 := testenv.StartProxy(t, backendURL, r.listener()), testenv.StartProxy(t, backendURL, r.listener())
	a, na := lead(t, ctx, b, "e", "a", shortTTL)
	old := mustConnect(t, ctx, r, p1.Addr, a)
	mustWrite(t, ctx, old, na)
	resume := r.stall(t, ctx, old)
	c, nc := lead(t, ctx, b, "e", "c", time.Minute)

	// takeover connects and writes, and says how that went.
	takeover := func(addr string) chan error {
		done := make(chan error, 1)
		go func() {
			cl, err := r.connect(ctx, addr, c)
			if err == nil {
				err = cl.write(ctx, nc)
				cl.close()
			}
			done <- err
		}()
		return done
	}
	died := takeover(p2.Addr)
	testenv.Eventually(t, "the fence is raised", func() bool { return r.fence(t, ctx, "e").Highest == nc })
	p2.Kill()
	if err := <-died; err == nil {
		t.Fatal("a write went through a killed proxy")
	}
	if f := r.fence(t, ctx, "e"); f.State != guard.Raised {
		t.Fatalf("the fence is %+v, want raised", f)
	}
	if got := r.applied(t, ctx, nc); got != 0 {
		t.Errorf("%d writes before the sever", got)
	}
	// The old holder cannot come back while the fence is raised.
	finished := takeover(p1.Addr)
	select {
	case err := <-finished:
		t.Errorf("the takeover did not wait for the old connection's end: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	resume()
	if err := <-finished; err != nil {
		t.Errorf("the next proxy did not finish the sever: %v", err)
	}
	if f := r.fence(t, ctx, "e"); f.Highest != nc || f.State != guard.Severed {
		t.Errorf("the fence is %+v, want number %d, severed", f, nc)
	}
	mustRefuse(t, ctx, r, p1.Addr, old, a, na)
}

// The guarded server is started again: the live holder goes on at once, though the
// proxy's control connections broke too, and the one before stays refused.
func testServerRestarted(t *testing.T, ctx context.Context, r resource, backendURL string, b election.Backend, restart func(id string, live guard.Record)) {
	p := testenv.StartProxy(t, backendURL, r.listener())
	a, na := lead(t, ctx, b, "e", "a", time.Minute)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p.Addr, a), na)
	if _, err := b.Resign(ctx, "e", a.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	c, nc := lead(t, ctx, b, "e", "c", time.Minute)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p.Addr, c), nc)
	restart("e", r.fence(t, ctx, "e"))
	mustWrite(t, ctx, mustConnect(t, ctx, r, p.Addr, c), nc)
	mustRefuse(t, ctx, r, p.Addr, nil, a, na)
	if f := r.fence(t, ctx, "e"); f.Highest != nc || f.State != guard.Severed {
		t.Errorf("the fence is %+v, want number %d, severed", f, nc)
	}
}
