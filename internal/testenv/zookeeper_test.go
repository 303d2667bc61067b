package testenv

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

func TestZooKeeperStartsRestartsAndWipes(t *testing.T) {
	z := SharedZooKeeper(t)
	if _, err := z.Leader(t.Context()); err != nil || len(z.Nodes) != 3 || z.Nodes[0].Version == "" {
		t.Errorf("%+v, %v", z, err)
	}
	one := ZooKeeper(t, servers.ZooKeeperOptions{Nodes: 1})
	one.Nodes[0].Kill()
	if err := one.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := one.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log(one.Nodes[0].Version)
}
