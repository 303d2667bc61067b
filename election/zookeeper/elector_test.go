package zookeeper

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestElector(t *testing.T) {
	z := testenv.SharedZooKeeper(t)
	c := plain(t, z)
	behind := followers(t, z)
	const chroot = "/elector"
	electiontest.RunElector(t, electiontest.Harness{
		Open:   func(t testing.TB) election.Backend { return openAt(t, strings.Join(behind, ","), chroot, Options{}) },
		Lose:   func(t testing.TB, b election.Backend, id string) { lose(t, c, b.(*Backend).path(id)) },
		Server: behind[0],
		OpenAt: func(t testing.TB, addr string) election.Backend { return openAt(t, addr, chroot, Options{}) },
	})
}
