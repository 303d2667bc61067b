package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// program builds the command once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fenceproxy-program-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "fenceproxy")
	out, err := exec.Command("go", "build", "-o", bin, "../cmd/fenceproxy").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return bin, nil
})

// A proxyProcess is a fenceproxy serve of its own, with one listener.
type proxyProcess struct {
	addr   string
	config string
	cmd    *exec.Cmd
	ended  chan struct{}
}

// startProxy runs fenceproxy serve with one listener; listener holds its settings
// but for the address.
func startProxy(t *testing.T, elections, listener string) *proxyProcess {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p := &proxyProcess{addr: fmt.Sprintf("127.0.0.1:%d", port), config: filepath.Join(t.TempDir(), "fenceproxy.yaml")}
	text := fmt.Sprintf("elections:\n  backend: %s\nlisteners:\n  - listen: %s\n%s\n", elections, p.addr, indent(listener))
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	t.Cleanup(func() {
		p.signal(syscall.SIGCONT)
		p.kill()
	})
	return p
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

// start runs the proxy, again with the same configuration and address, and returns
// when it accepts connections.
func (p *proxyProcess) start(t *testing.T) {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "serve", "-c", p.config)
	cmd.Stdout, cmd.Stderr = io.Discard, t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	p.cmd, p.ended = cmd, ended
	eventually(t, "the proxy accepts connections", func() bool {
		select {
		case <-ended:
			t.Fatal("the proxy ended while starting")
		default:
		}
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

func (p *proxyProcess) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// pause stops the proxy with SIGSTOP, and returns when every thread of it stands.
func (p *proxyProcess) pause(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(t, "the proxy stands", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			t.Fatal("the proxy's threads cannot be seen")
		}
		for _, name := range threads {
			stat, err := os.ReadFile(name)
			if err != nil {
				continue // a thread that ended
			}
			_, state, _ := strings.Cut(string(stat), ") ")
			if !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return true
	})
}

// kill ends the proxy with SIGKILL.
func (p *proxyProcess) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("it never came that %s", what)
		}
	}
}

// lead acquires an election as soon as it is to be had.
func lead(t *testing.T, ctx context.Context, b election.Backend, id, owner string, ttl time.Duration) (guard.Credential, int64) {
	t.Helper()
	var got election.AcquireResult
	eventually(t, owner+" leads", func() bool {
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
	p1, p2 := startProxy(t, backendURL, r.listener()), startProxy(t, backendURL, r.listener())
	a, na := lead(t, ctx, b, "e", "a", shortTTL)
	old := mustConnect(t, ctx, r, p1.addr, a)
	mustWrite(t, ctx, old, na)

	p1.pause(t)
	var wg sync.WaitGroup
	wg.Go(func() { // waits inside the stopped proxy
		if err := old.write(ctx, na); err == nil {
			t.Error("a write that waited in the stopped proxy was accepted")
		}
	})
	c, nc := lead(t, ctx, b, "e", "c", time.Minute)
	live := mustConnect(t, ctx, r, p2.addr, c)
	mustWrite(t, ctx, live, nc)
	if got := r.applied(t, ctx, na); got != 1 {
		t.Errorf("%d writes of the old number", got)
	}
	p1.signal(syscall.SIGCONT)
	wg.Wait()
	mustRefuse(t, ctx, r, p1.addr, old, a, na)
	mustWrite(t, ctx, live, nc)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p1.addr, c), nc)
	if got := r.applied(t, ctx, na); got != 1 {
		t.Errorf("%d writes of the old number", got)
	}
}

// A proxy that is killed and started again knows the fence, lets the live holder go
// on and refuses the one before.
func testProxyKilled(t *testing.T, ctx context.Context, r resource, backendURL string, b election.Backend) {
	p1, p2 := startProxy(t, backendURL, r.listener()), startProxy(t, backendURL, r.listener())
	a, na := lead(t, ctx, b, "e", "a", shortTTL)
	stop := renewing(t, ctx, b, a)
	old := mustConnect(t, ctx, r, p1.addr, a)
	mustWrite(t, ctx, old, na)
	p1.kill()
	if err := old.write(ctx, na); err == nil {
		t.Error("a write went through a killed proxy")
	}
	p1.start(t)
	again := mustConnect(t, ctx, r, p1.addr, a)
	mustWrite(t, ctx, again, na)

	p1.pause(t) // its connection stays up while the lease runs out
	stop()
	c, nc := lead(t, ctx, b, "e", "c", time.Minute)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p2.addr, c), nc)
	p1.signal(syscall.SIGCONT)
	p1.kill()
	p1.start(t)
	mustRefuse(t, ctx, r, p1.addr, again, a, na)
	if f := r.fence(t, ctx, "e"); f.Highest != nc || f.State != guard.Severed {
		t.Errorf("the fence is %+v, want number %d, severed", f, nc)
	}
}

// A proxy that is killed between raise and sever leaves the fence raised; nobody writes
// until another proxy has finished the sever.
func testKilledBetweenRaiseAndSever(t *testing.T, ctx context.Context, r resource, backendURL string, b election.Backend) {
	p1, p2 := startProxy(t, backendURL, r.listener()), startProxy(t, backendURL, r.listener())
	a, na := lead(t, ctx, b, "e", "a", shortTTL)
	old := mustConnect(t, ctx, r, p1.addr, a)
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
	died := takeover(p2.addr)
	eventually(t, "the fence is raised", func() bool { return r.fence(t, ctx, "e").Highest == nc })
	p2.kill()
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
	finished := takeover(p1.addr)
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
	mustRefuse(t, ctx, r, p1.addr, old, a, na)
}

// The guarded server is started again: the live holder goes on at once, though the
// proxy's control connections broke too, and the one before stays refused.
func testServerRestarted(t *testing.T, ctx context.Context, r resource, backendURL string, b election.Backend, restart func(id string, live guard.Record)) {
	p := startProxy(t, backendURL, r.listener())
	a, na := lead(t, ctx, b, "e", "a", time.Minute)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p.addr, a), na)
	if _, err := b.Resign(ctx, "e", a.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	c, nc := lead(t, ctx, b, "e", "c", time.Minute)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p.addr, c), nc)
	restart("e", r.fence(t, ctx, "e"))
	mustWrite(t, ctx, mustConnect(t, ctx, r, p.addr, c), nc)
	mustRefuse(t, ctx, r, p.addr, nil, a, na)
	if f := r.fence(t, ctx, "e"); f.Highest != nc || f.State != guard.Severed {
		t.Errorf("the fence is %+v, want number %d, severed", f, nc)
	}
}
