package pgclients

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// nodePostgres is the script of node-postgres.
func nodePostgres(t *testing.T) *script {
	t.Helper()
	bin, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v (make deps installs it)", err)
	}
	modules, file := nodeModules(t), testdata(t, "node-postgres/client.js")
	return &script{name: "node-postgres", command: func(ctx context.Context, p place, mode string) *exec.Cmd {
		cmd := p.command(ctx, bin, file, mode)
		cmd.Env = append(cmd.Env, "NODE_PATH="+modules)
		switch {
		case p.ca != "":
			cmd.Env = append(cmd.Env, "NODE_EXTRA_CA_CERTS="+p.ca)
		case p.sslmode == "require":
			// Its "require" verifies; this is what others mean by it.
			cmd.Env = append(cmd.Env, "PGSSLMODE=no-verify")
		}
		return cmd
	}}
}

// nodeModules returns the directory that .ci/deps put the modules of package-lock.json in.
func nodeModules(t *testing.T) string {
	t.Helper()
	lock, err := os.ReadFile("testdata/node-postgres/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	caches := []string{"/var/cache"}
	if cache, err := os.UserCacheDir(); err == nil {
		caches = append(caches, cache)
	}
	for _, cache := range caches {
		dir := filepath.Join(cache, "fenceproxy", "node-postgres-"+hex.EncodeToString(sum[:6]), "node_modules")
		if _, err := os.Stat(filepath.Join(dir, "pg")); err == nil {
			return dir
		}
	}
	t.Fatalf("node-postgres is not in fenceproxy's folder below %v (make deps installs it)", caches)
	return ""
}

func TestNodePostgres(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	nodePostgres(t).transcripts(t, ctx, newStage(t, ctx, "nodepg"), "copy in: 2000", "cancel: DatabaseError 57014", `["l","payload",true]`)
}

func TestNodePostgresLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	nodePostgres(t).losing(t, ctx, newStage(t, ctx, "nodepgloss"))
}
