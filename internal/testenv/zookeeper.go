package testenv

import (
	"context"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// ZooKeeper starts a ZooKeeper ensemble of the test's own.
func ZooKeeper(t testing.TB, o servers.ZooKeeperOptions) *servers.ZooKeeper {
	t.Helper()
	z, err := servers.StartZooKeeper(Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(z.Log())
		}
		z.Stop()
	})
	return z
}

var zookeeper struct {
	sync.Mutex
	shared *servers.ZooKeeper
}

// SharedZooKeeper returns the package's one ensemble of three ZooKeeper servers,
// started at the first call. Tests keep apart by chroot and leave it running. The
// package's TestMain must call Main.
func SharedZooKeeper(t testing.TB) *servers.ZooKeeper {
	t.Helper()
	zookeeper.Lock()
	defer zookeeper.Unlock()
	if zookeeper.shared == nil {
		z, err := servers.StartZooKeeper(context.Background(), servers.ZooKeeperOptions{})
		if err != nil {
			t.Fatal(err)
		}
		zookeeper.shared = z
		shared.Lock()
		shared.all = append(shared.all, z)
		shared.Unlock()
	}
	return zookeeper.shared
}
