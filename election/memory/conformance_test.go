package memory

import (
	"fmt"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) {
	electiontest.Run(t, electiontest.Harness{
		Open:    func(testing.TB) election.Backend { return New() },
		HoldOff: true, Hints: true,
		Lose: forget,
		Dump: func(_ testing.TB, b election.Backend) string {
			m := b.(*Backend)
			m.mu.Lock()
			defer m.mu.Unlock()
			dump := ""
			for id, r := range m.elections {
				dump += fmt.Sprintf("%q %+v %v\n", id, *r, r.digest)
			}
			return dump
		},
	})
}
