package pgclients

import (
	"context"
	"os/exec"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// python is a script that needs modules.
func python(t *testing.T, ctx context.Context, name string, modules ...string) *script {
	t.Helper()
	bin, file := testenv.Python(t, ctx, modules...), testenv.Testdata(t, name+"/client.py")
	return &script{name: name, command: func(ctx context.Context, p place, mode string) *exec.Cmd {
		cmd := p.command(ctx, bin, file, mode)
		cmd.Env = append(cmd.Env, "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1")
		return cmd
	}}
}

func TestPsycopg(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	c := python(t, ctx, "psycopg", "psycopg", "psycopg_pool")
	c.transcripts(t, ctx, newStage(t, ctx, "psycopg"), "copy in: 2000", "QueryCanceled 57014", "notify: [('l', 'payload', True)")
}

func TestPsycopgLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	c := python(t, ctx, "psycopg", "psycopg", "psycopg_pool")
	c.losing(t, ctx, newStage(t, ctx, "psycopgloss"))
}

func TestPsycopg2(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	c := python(t, ctx, "psycopg2", "psycopg2")
	c.transcripts(t, ctx, newStage(t, ctx, "psycopgtwo"), "QueryCanceled 57014", "notify: [('l', 'payload', True)", "large object: (10, 500001, 500000)")
}

func TestPsycopg2LosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	c := python(t, ctx, "psycopg2", "psycopg2")
	c.losing(t, ctx, newStage(t, ctx, "psycopgtwoloss"))
}
