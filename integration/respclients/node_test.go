package respclients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
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
	modules, file := nodeModules(t), testdata(t, "node-redis/"+name+".js")
	testdata(t, "node-redis/script.js")
	testdata(t, "commands.json")
	return external(name, protocols, func(ctx context.Context, p place, mode string) *exec.Cmd {
		cmd := p.command(ctx, bin, file, mode)
		cmd.Env = append(cmd.Env, "NODE_PATH="+modules)
		return cmd
	})
}

// nodeModules returns the directory that .ci/deps put the modules of package-lock.json in.
func nodeModules(t *testing.T) string {
	t.Helper()
	lock, err := os.ReadFile("testdata/node-redis/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	caches := []string{"/var/cache"}
	if cache, err := os.UserCacheDir(); err == nil {
		caches = append(caches, cache)
	}
	for _, cache := range caches {
		dir := filepath.Join(cache, "fenceproxy", "node-redis-"+hex.EncodeToString(sum[:6]), "node_modules")
		if _, err := os.Stat(filepath.Join(dir, "ioredis")); err == nil {
			return dir
		}
	}
	t.Fatalf("ioredis is not in fenceproxy's folder below %v (make deps installs it)", caches)
	return ""
}

// nodeClosed is what ioredis and node-redis say of a connection that the server closed.
const nodeClosed = `Connection is closed|Socket closed unexpectedly|Command aborted due to connection close|Client reconnected after WATCH|ECONNRESET|EPIPE`

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
