package kubernetes

import (
	"net/http"
	"os"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// ownAPIServer starts an API server of the test's own, and says what can be done to it.
// It has no way to end connections but its own end.
func ownAPIServer(t *testing.T) (electiontest.Harness, electiontest.Server) {
	t.Helper()
	k := testenv.Kube(t, servers.KubeOptions{})
	path, err := k.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, path)
	programs, err := testenv.KubePrograms(testenv.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	restart := func(t testing.TB) {
		again, err := servers.StartKube(testenv.Context(t), servers.KubeOptions{Programs: programs, Port: k.Port(), Dir: k.Dir})
		if err != nil {
			t.Fatal(err)
		}
		k = again
	}
	t.Cleanup(func() { k.Stop() })
	return electiontest.Harness{
			Open: func(t testing.TB) election.Backend { return s.openLeft(t, s.config) },
			Lose: func(t testing.TB, _ election.Backend, id string) {
				if status, answer := s.ask(t, http.MethodDelete, s.leases(leaseName(id)), nil); status != http.StatusOK && status != http.StatusNotFound {
					t.Errorf("deleting the Lease: %d: %s", status, answer)
				}
			},
			Server: s.host(t),
			OpenAt: func(t testing.TB, addr string) election.Backend { return s.openLeft(t, s.at(addr)) },
		}, electiontest.Server{
			Freeze: func(t testing.TB) func() { return testenv.Freeze(t, k.Process) },
			Restart: func(t testing.TB) {
				k.Kill()
				restart(t)
			},
			Wipe: func(t testing.TB) {
				k.Kill()
				if err := os.RemoveAll(k.EtcdDir()); err != nil {
					t.Fatal(err)
				}
				restart(t)
				s.makeNamespace(t)
			},
		}
}

func TestTakeovers(t *testing.T) {
	h, s := ownAPIServer(t)
	electiontest.RunTakeovers(t, h, s)
}

func TestElectorOnFailingServer(t *testing.T) {
	h, s := ownAPIServer(t)
	electiontest.RunServerFaults(t, h, s)
}
