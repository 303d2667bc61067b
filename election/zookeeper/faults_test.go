package zookeeper

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// ownEnsemble starts an ensemble of the test's own, and says what can be done to it. All
// handles are on one of its servers, so that this one can be done to.
func ownEnsemble(t *testing.T, o Options) (electiontest.Harness, electiontest.Server) {
	t.Helper()
	ctx := testenv.Context(t)
	z := testenv.ZooKeeper(t, servers.ZooKeeperOptions{})
	const chroot = "/faults"
	leader, err := z.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	all := &taps{}
	o.Dial = all.dial
	follower := (leader + 1) % len(z.Nodes)
	at := func(t testing.TB, addr string) election.Backend { return openAt(t, addr, chroot, o) }
	admin := func(t testing.TB, f func(c *zk.Conn)) { // by all of the servers
		c, event, err := zk.Connect(strings.Split(z.Addrs(), ","), 20*time.Second, zk.WithLogger(silence{}))
		if err != nil {
			t.Error(err)
			return
		}
		f(c)
		c.Close()
		for range event {
			// Only its end matters.
		}
	}
	return electiontest.Harness{
			Open: func(t testing.TB) election.Backend { return openAt(t, z.Addrs(), chroot, Options{}) },
			Lose: func(t testing.TB, b election.Backend, id string) {
				admin(t, func(c *zk.Conn) { lose(t, c, b.(*Backend).path(id)) })
			},
			Server: z.Nodes[follower].Addr,
			OpenAt: at,
		}, electiontest.Server{
			Freeze: func(t testing.TB) func() { return testenv.Freeze(t, z.Nodes[follower]) },
			Restart: func(t testing.TB) {
				for _, p := range z.Nodes {
					p.Kill()
				}
				if err := z.Restart(ctx); err != nil {
					t.Fatal(err)
				}
			},
			Wipe: func(t testing.TB) {
				if err := z.Wipe(ctx); err != nil {
					t.Fatal(err)
				}
			},
			EndConnections: func(t testing.TB) { all.endSessions(t, z.Nodes[leader].Addr) },
		}
}

// taps are what many handles dial through.
type taps struct {
	mu  sync.Mutex
	all []*tap
}

func (x *taps) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p := &tap{}
	x.mu.Lock()
	x.all = append(x.all, p)
	x.mu.Unlock()
	return p.dial(ctx, network, addr)
}

// endSessions ends all sessions that there were.
func (x *taps) endSessions(t testing.TB, addr string) {
	t.Helper()
	x.mu.Lock()
	all := x.all
	x.all = nil
	x.mu.Unlock()
	for _, p := range all {
		p.mu.Lock()
		greeted := len(p.greet) >= 40
		p.mu.Unlock()
		if greeted {
			p.endSession(t, addr)
		}
	}
}

func TestTakeovers(t *testing.T) {
	h, s := ownEnsemble(t, Options{SessionTimeout: time.Second, AnswerTimeout: 100 * time.Millisecond})
	electiontest.RunTakeovers(t, h, s)
}

// lose deletes a node and all below it, whatever others do to it meanwhile.
func lose(t testing.TB, c *zk.Conn, path string) {
	for range 1000 {
		children, _, err := c.Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		for _, child := range children {
			_ = c.Delete(path+"/"+child, -1)
		}
		if err == nil {
			err = c.Delete(path, -1)
		}
		switch {
		case err == nil, errors.Is(err, zk.ErrNoNode):
			return
		case !errors.Is(err, zk.ErrNotEmpty):
			t.Errorf("deleting %s: %v", path, err)
			return
		}
	}
	t.Errorf("deleting %s: it always came back", path)
}

// Where the server ends sessions, it is sessions that end, not connections alone (E10).
func TestElectorOnFailingServer(t *testing.T) {
	h, s := ownEnsemble(t, Options{SessionTimeout: 2 * time.Second})
	electiontest.RunServerFaults(t, h, s)
}
