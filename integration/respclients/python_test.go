package respclients

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// redisPy is the script of redis-py.
func redisPy(t *testing.T, ctx context.Context) *script {
	t.Helper()
	bin, file := findPython(t, ctx, "redis"), testdata(t, "python/client.py")
	testdata(t, "commands.json")
	return external("redis-py", []int{2}, func(ctx context.Context, p place, mode string) *exec.Cmd {
		cmd := p.command(ctx, bin, file, mode)
		cmd.Env = append(cmd.Env, "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	})
}

// findPython returns a Python with a module: the one that FENCEPROXY_PYTHON names, the
// first on PATH, or the system's, which is where Debian's packages go.
func findPython(t *testing.T, ctx context.Context, module string) string {
	t.Helper()
	bins := []string{"python3", "/usr/bin/python3"}
	if bin := os.Getenv("FENCEPROXY_PYTHON"); bin != "" {
		bins = []string{bin}
	}
	for _, bin := range bins {
		if exec.CommandContext(ctx, bin, "-c", "import "+module).Run() == nil {
			return bin
		}
	}
	t.Fatalf("no Python among %v has the module %s (make deps installs it)", bins, module)
	return ""
}

// pyClosed is what redis-py says of a connection that the server closed.
const pyClosed = `redis\.exceptions\.ConnectionError|A ConnectionError occurred on while watching`

func TestRedisPy(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	redisPy(t, ctx).transcripts(t, ctx, newStage(t, ctx, "redispy"), "by a function", "WatchError", "MY error", "'message'")
}

func TestRedisPyLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "redispyloss")
	for _, p := range []func(guard.Credential) place{s.leader, s.binding} {
		redisPy(t, ctx).losing(t, ctx, s, p, pyClosed)
	}
}
