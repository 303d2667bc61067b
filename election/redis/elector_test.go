package redis

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestElector(t *testing.T) {
	p := testenv.SharedRedis(t)
	c := plain(t, p.Addr)
	electiontest.RunElector(t, electiontest.Harness{
		Open:   func(t testing.TB) election.Backend { return openAt(t, p.Addr) },
		Lose:   func(t testing.TB, _ election.Backend, id string) { lose(t, c, id) },
		Server: p.Addr,
		OpenAt: func(t testing.TB, addr string) election.Backend { return openAt(t, addr) },
	})
}
