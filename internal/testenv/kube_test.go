package testenv

import (
	"os"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// A Kubernetes API server starts again on what an earlier one left behind.
func TestKubeStartsAgain(t *testing.T) {
	k := Kube(t, servers.KubeOptions{})
	first, err := k.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	k.Kill()
	again := Kube(t, servers.KubeOptions{Dir: k.Dir, Port: k.Port()})
	second, err := again.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(second); err != nil || string(after) != string(before) {
		t.Errorf("the kubeconfig changed from\n%s\nto\n%s, %v", before, after, err)
	}
}
