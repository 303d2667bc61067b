package respclients

import (
	"context"
	"os/exec"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// node is a script for Node.js.
func node(t *testing.T, name string, protocols ...int) *script {
	t.Helper()
	bin, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v (make deps installs it)", err)
	}
	modules, file := testenv.NodeModules(t, "node-redis"), testenv.Testdata(t, "node-redis/"+name+".js")
	testenv.Testdata(t, "node-redis/script.js")
	testenv.Testdata(t, "commands.json")
	return external(name, protocols, func(ctx context.Context, p place, mode string) *exec.Cmd {
		cmd := p.command(ctx, bin, file, mode)
		cmd.Env = append(cmd.Env, "NODE_PATH="+modules)
		return cmd
	})
}

// nodeClosed is what ioredis and node-redis say of a connection that the server closed, in
// words of theirs or by Node's codes.
const nodeClosed = `Connection is closed|Socket closed unexpectedly|Command aborted due to connection close|Client reconnected after WATCH|ECONNRESET|EPIPE|ERR_STREAM_DESTROYED|ERR_STREAM_WRITE_AFTER_END`

func TestIORedis(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	node(t, "ioredis", 2).transcripts(t, ctx, newStage(t, ctx, "ioredis"), "by a function", "EXECABORT", "to a shard", "MY error")
}

func TestIORedisLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "ioredisloss")
	for _, p := range []func(guard.Credential) place{s.leader, s.binding} {
		node(t, "ioredis", 2).losing(t, ctx, s, p, nodeClosed)
	}
}

func TestNodeRedis(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	node(t, "noderedis", 2, 3).transcripts(t, ctx, newStage(t, ctx, "noderedis"), "by a function", "to a shard", "MY error", "WatchError")
}

func TestNodeRedisLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "noderedisloss")
	for _, p := range []func(guard.Credential) place{s.leader, s.binding, func(c guard.Credential) place { return s.leader(c).in(3) }} {
		node(t, "noderedis").losing(t, ctx, s, p, nodeClosed)
	}
}
