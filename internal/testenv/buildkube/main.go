// Command buildkube builds the Kubernetes API server of the tests and keeps it in the
// user's cache directory, unless it is there already. Run it from the module's root;
// "make test" does, so that no test has to wait for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "buildkube:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	_, err := servers.FindKube()
	if !errors.Is(err, servers.ErrNotInstalled) || os.Getenv("KUBEBUILDER_ASSETS") != "" {
		return err
	}
	_, err = servers.BuildKube(ctx, filepath.Join("internal", "testenv", "kubeapi"), os.Stderr)
	return err
}
