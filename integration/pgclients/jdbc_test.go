package pgclients

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// compiled is the script of JDBC, compiled once.
var compiled struct {
	sync.Mutex
	dir string
}

// jdbc is the script of the PostgreSQL JDBC driver.
func jdbc(t *testing.T, ctx context.Context) *script {
	t.Helper()
	jar := os.Getenv("FENCEPROXY_JDBC_JAR")
	if jar == "" {
		jar = "/usr/share/java/postgresql.jar"
	}
	if _, err := os.Stat(jar); err != nil {
		t.Fatalf("the JDBC driver: %v (make deps installs it, or FENCEPROXY_JDBC_JAR names it)", err)
	}
	for _, name := range []string{"java", "javac"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%v (make deps installs it)", err)
		}
	}
	compiled.Lock()
	defer compiled.Unlock()
	if compiled.dir == "" {
		dir := testenv.SharedDir(t)
		out, err := exec.CommandContext(ctx, "javac", "-J-XX:TieredStopAtLevel=1", "-cp", jar, "-d", dir, testenv.Testdata(t, "jdbc/Client.java"), testenv.Testdata(t, "jdbc/Target.java")).CombinedOutput()
		if err != nil {
			t.Fatalf("javac: %v\n%s", err, out)
		}
		compiled.dir = dir
	}
	return &script{name: "jdbc", command: func(ctx context.Context, p place, mode string) *exec.Cmd {
		class := "Client"
		if mode == targets {
			class = "Target"
		}
		return p.command(ctx, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", compiled.dir+":"+jar, class, mode)
	}}
}

func TestJDBC(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	jdbc(t, ctx).transcripts(t, ctx, newStage(t, ctx, "jdbc"), "copy in: 2000", "cancel: org.postgresql.util.PSQLException 57014", "l payload true;", "large object: 200001 700001")
}

// targets is the mode that asks for each kind of server.
const targets = "targets"

// The driver finds the leader with targetServerType=primary, and readers with secondary.
func TestJDBCTargetServerType(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "jdbctarget")
	c := s.lead(t, ctx, "jdbc")
	out, err := jdbc(t, ctx).command(ctx, place{addr: s.proxy, database: s.name, token: c.Token.Reveal()}, targets).CombinedOutput()
	const want = `reader any: yes
reader primary: no
reader secondary: yes
reader preferSecondary: yes
leader any: yes
leader primary: yes
leader secondary: no
leader preferSecondary: yes
`
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestJDBCLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	jdbc(t, ctx).losing(t, ctx, newStage(t, ctx, "jdbcloss"))
}
