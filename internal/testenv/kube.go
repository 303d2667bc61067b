package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// kubeShared is the package's one Kubernetes API server.
var kubeShared struct {
	sync.Mutex
	k *servers.Kube
}

// Kube starts a Kubernetes API server of the test's own. Its programs are those in
// the directory that KUBEBUILDER_ASSETS names, or are built, once a machine, from the
// module in kubeapi.
func Kube(t testing.TB, o servers.KubeOptions) *servers.Kube {
	t.Helper()
	k := startKube(t, Context(t), o)
	t.Cleanup(func() {
		k.Stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", k.Name, k.Log())
		}
	})
	return k
}

// SharedKubeconfig returns the path of a kubeconfig whose current context is an
// administrator of a Kubernetes API server that the tests of the package share: the
// one of FENCEPROXY_KUBECONFIG, or one that is started at the first call. Tests keep
// apart by namespaces. The package's TestMain must call Main.
func SharedKubeconfig(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("FENCEPROXY_KUBECONFIG"); path != "" {
		return path
	}
	kubeShared.Lock()
	defer kubeShared.Unlock()
	if kubeShared.k == nil {
		k := startKube(t, context.Background(), servers.KubeOptions{})
		kubeShared.k = k
		shared.Lock()
		shared.all = append(shared.all, k)
		shared.Unlock()
	}
	path, err := kubeShared.k.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func startKube(t testing.TB, ctx context.Context, o servers.KubeOptions) *servers.Kube {
	t.Helper()
	if o.Programs == (servers.KubePrograms{}) {
		var err error
		if o.Programs, err = KubePrograms(ctx); err != nil {
			t.Fatal(err)
		}
	}
	k, err := servers.StartKube(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// KubePrograms finds or builds the programs of an API server.
func KubePrograms(ctx context.Context) (servers.KubePrograms, error) {
	p, err := servers.FindKube()
	if !errors.Is(err, servers.ErrNotInstalled) || os.Getenv("KUBEBUILDER_ASSETS") != "" {
		return p, err
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return p, fmt.Errorf("looking for the sources of the API server: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	return servers.BuildKube(ctx, filepath.Join(root, "internal", "testenv", "kubeapi"), os.Stderr)
}
