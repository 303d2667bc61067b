package examples

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

const (
	electionsTable = "postgres://app@127.0.0.1:5432/postgres"
	throughProxy   = "postgres://app@127.0.0.1:6432/"
)

// refusal is in what a worker hears that stood within its transaction: "stale leader
// refused: …", or, where the lease ended before the proxy was told who leads, "refused:
// cannot find out …".
const refusal = "refused: "

func TestGo(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "go", "fenceproxy.yaml")
	bin := filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "../../examples/go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	elections := s.addresses.Replace(electionsTable)
	env := []string{"ELECTIONS=" + elections, "DATABASE=" + s.addresses.Replace(throughProxy) + s.database, "LEASE=" + lease}
	takeover{
		start: func(name string) *worker {
			return s.start(t, ctx, name, "go run ./examples/go "+name, env, bin, name)
		},
		refused: refusal,
		midway:  s.inTransaction(t, ctx),
	}.run(t)
	inOrder(t, s.journal(t, ctx), "aba")
	vacant(t, ctx, elections, "orders")
}

// What is stopped is fenceproxy run. The script goes on all the while, which only the
// fence can stop.
func TestShell(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "shell", "fenceproxy.yaml")
	elections := s.addresses.Replace(electionsTable)
	env := append(s.libpq(t), "FENCEPROXY_ELECTIONS="+elections)
	takeover{
		start: func(name string) *worker {
			return s.start(t, ctx, name, "WORKER="+name+" fenceproxy run --election nightly -- ./job.sh", append(env, "WORKER="+name),
				testenv.Program(t), "run", "--election", "nightly", "--ttl", lease, "--", "./job.sh")
		},
		refused: "ERROR:  stale leader refused",
		early:   true,
	}.run(t)
	inOrder(t, s.journal(t, ctx), "aba")
	vacant(t, ctx, elections, "nightly")
}
