package pgclients

import (
	"context"
	"os/exec"
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
	modules, file := testenv.NodeModules(t, "node-postgres"), testenv.Testdata(t, "node-postgres/client.js")
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
