package memory

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
)

func TestElector(t *testing.T) {
	electiontest.RunElector(t, electiontest.Harness{
		Open: func(testing.TB) election.Backend { return New() },
		Lose: forget,
	})
}

// No server: calls fail instead of connections.
func TestTakeovers(t *testing.T) {
	electiontest.RunTakeovers(t, electiontest.Harness{
		Open: func(testing.TB) election.Backend { return New() },
		Lose: forget,
	}, electiontest.Server{})
}

// forget has the store lose an election.
func forget(_ testing.TB, b election.Backend, id string) {
	m := b.(*Backend)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.elections, id)
}
