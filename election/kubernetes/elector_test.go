package kubernetes

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
)

func TestElector(t *testing.T) {
	s := sharedSite(t)
	electiontest.RunElector(t, electiontest.Harness{
		Open:   func(t testing.TB) election.Backend { return s.openLeft(t, s.config) },
		Lose:   func(t testing.TB, _ election.Backend, id string) { s.lose(t, id) },
		Server: s.host(t),
		OpenAt: func(t testing.TB, addr string) election.Backend { return s.openLeft(t, s.at(addr)) },
	})
}
