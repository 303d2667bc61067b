package respclients

import (
	"context"
	"os/exec"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// redisPy is the script of redis-py.
func redisPy(t *testing.T, ctx context.Context) *script {
	t.Helper()
	bin, file := testenv.Python(t, ctx, "redis"), testenv.Testdata(t, "python/client.py")
	testenv.Testdata(t, "commands.json")
	return external("redis-py", []int{2}, func(ctx context.Context, p place, mode string) *exec.Cmd {
		cmd := p.command(ctx, bin, file, mode)
		cmd.Env = append(cmd.Env, "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	})
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
