package pgfence_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

var latencies = regexp.MustCompile(`(?s)SQL script 1: .*?latency average = ([0-9.]+) ms.*SQL script 2: .*?latency average = ([0-9.]+) ms`)

// What a protected one-row INSERT costs beside an unprotected one, as docs/protect.md has it:
// both by the same connection in one run of pgbench, in random order.
func TestProtectCost(t *testing.T) {
	seconds, runs, majors, modes := "1", 1, []int{18}, []string{"prepared"}
	if os.Getenv("FENCEPROXY_LONG") != "" {
		seconds, runs, majors, modes = "10", 5, []int{14, 18}, []string{"simple", "prepared"}
	}
	for _, major := range majors {
		c := install(t, testenv.SharedPostgresVersion(t, major))
		d := newProtectedDB(t, c)
		d.root("CREATE TABLE plain (id bigserial PRIMARY KEY, v text); CREATE TABLE billing.protected (LIKE plain INCLUDING ALL); GRANT ALL ON plain, billing.protected, plain_id_seq TO app")
		d.protect("billing.*=billing")
		// pgbench cannot be bound; it gets the proof that a bind would give it.
		d.root("CREATE FUNCTION proof() RETURNS text LANGUAGE sql SECURITY DEFINER AS $$ SELECT '7:' || " + pgfence.MacSQL("a.pid", "a.backend_start", "'7'", "'billing'") +
			" FROM fenceproxy.proof_key k, pg_stat_get_activity(pg_backend_pid()) a $$")
		args := []string{"-n", "-D", "proven=0", "-T", seconds}
		for _, table := range []string{"plain", "billing.protected"} {
			file := filepath.Join(t.TempDir(), table)
			must(t, os.WriteFile(file, fmt.Appendf(nil, "\\if :proven = 0\nSELECT set_config('fence.proof', proof(), false);\n\\set proven 1\n\\endif\nINSERT INTO %s (v) VALUES ('hello');\n", table), 0o600))
			args = append(args, "-f", file)
		}
		for range runs {
			for _, mode := range modes {
				out, err := exec.CommandContext(t.Context(), testenv.Tool(t, "pgbench"), append(args, "-M", mode, c.p.DSN("app", d.name))...).CombinedOutput()
				m := latencies.FindStringSubmatch(string(out))
				if err != nil || m == nil {
					t.Fatalf("%v\n%s", err, out)
				}
				var plain, protected float64
				_, err = fmt.Sscan(m[1]+" "+m[2], &plain, &protected)
				must(t, err)
				t.Logf("postgres%d, %s: %.3f ms, protected %.3f ms: %.2f x", major, mode, plain, protected, protected/plain)
				if protected > 5*plain {
					t.Errorf("%s: a protected INSERT takes %.3f ms, an unprotected one %.3f ms", mode, protected, plain)
				}
			}
		}
	}
}
