package zookeeper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// openAt opens a backend on the servers named, below a chroot.
func openAt(t testing.TB, addrs, chroot string, o Options) *Backend {
	t.Helper()
	o.Chroot = chroot
	b, err := Open(strings.Split(addrs, ","), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// opened is openAt for the length of the test.
func opened(t testing.TB, addrs, chroot string, o Options) *Backend {
	t.Helper()
	b := openAt(t, addrs, chroot, o)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// plain is a client for looking at the servers.
func plain(t testing.TB, z *servers.ZooKeeper) *zk.Conn { t.Helper(); return plainAt(t, z.Addrs()) }

func plainAt(t testing.TB, addrs string) *zk.Conn {
	t.Helper()
	c, event, err := zk.Connect(strings.Split(addrs, ","), 20*time.Second, zk.WithLogger(silence{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		for range event {
			// Only its end matters.
		}
	})
	return c
}

// remove deletes a node and all below it.
func remove(t testing.TB, c *zk.Conn, path string) {
	t.Helper()
	children, _, err := c.Children(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range children {
		remove(t, c, path+"/"+child)
	}
	if err := c.Delete(path, -1); err != nil {
		t.Fatal(err)
	}
}

// dump returns every node below path with its data, as text.
func dump(t testing.TB, c *zk.Conn, path string) string {
	t.Helper()
	data, _, err := c.Get(path)
	if err != nil {
		return "" // gone meanwhile
	}
	out := fmt.Sprintf("%s %s\n", path, data)
	children, _, err := c.Children(path)
	if err != nil {
		return out
	}
	for _, child := range children {
		out += dump(t, c, strings.TrimSuffix(path, "/")+"/"+child)
	}
	return out
}

// followers are the servers that do not lead. A sync does nothing at the one that leads:
// it may answer, for the moment that it takes to carry out its own decision, from before
// a change that another server has already told of (docs/elections/zookeeper.md).
func followers(t testing.TB, z *servers.ZooKeeper) (addrs []string) {
	t.Helper()
	leader, err := z.Leader(testenv.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range z.Nodes {
		if i != leader {
			addrs = append(addrs, p.Addr)
		}
	}
	return addrs
}

func TestConformance(t *testing.T) {
	z := testenv.SharedZooKeeper(t)
	c := plain(t, z)
	behind := followers(t, z)
	const chroot = "/conformance"
	electiontest.Run(t, electiontest.Harness{
		Hints: true,
		Open:  func(t testing.TB) election.Backend { return openAt(t, strings.Join(behind, ","), chroot, Options{}) },
		Lose:  func(t testing.TB, b election.Backend, id string) { remove(t, c, b.(*Backend).path(id)) },
		Dump: func(t testing.TB, _ election.Backend) string {
			if _, err := c.Sync("/"); err != nil {
				t.Fatal(err)
			}
			return dump(t, c, chroot)
		},
		Server: behind[0],
		Reads:  2, // the record, and the clock of the servers
		OpenAt: func(t testing.TB, addr string) election.Backend { return openAt(t, addr, chroot, Options{}) },
	})
}
