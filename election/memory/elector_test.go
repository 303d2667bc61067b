package memory

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
)

func TestElector(t *testing.T) {
	electiontest.RunElector(t, electiontest.Harness{
		Open: func(testing.TB) election.Backend { return New() },
		Lose: func(_ testing.TB, b election.Backend, id string) {
			m := b.(*Backend)
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.elections, id)
		},
	})
}
