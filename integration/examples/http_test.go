package examples

import (
	"cmp"
	"os"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestPython(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "python", "fenceproxy.yaml")
	python := testenv.Python(t, ctx, "psycopg")
	env := []string{"FENCEPROXY=http://" + s.at("127.0.0.1:9180"), "DATABASE=" + s.addresses.Replace(throughProxy) + s.database, leaseSeconds, "PYTHONDONTWRITEBYTECODE=1"}
	takeover{
		start: func(name string) *worker {
			return s.start(t, ctx, name, "python3 worker.py "+name, env, python, "worker.py", name)
		},
		refused: refusal,
		midway:  s.inTransaction(t, ctx),
	}.run(t)
	inOrder(t, s.journal(t, ctx), "aba")
	vacant(t, ctx, s.addresses.Replace(electionsTable), "reports")
}

func TestJava(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "java", "fenceproxy.yaml")
	const jar = "/usr/share/java/postgresql.jar"
	env := []string{"FENCEPROXY=http://" + s.at("127.0.0.1:9180"), "DATABASE=jdbc:postgresql://" + s.at("127.0.0.1:6432") + "/" + s.database + "?user=app", leaseSeconds}
	takeover{
		start: func(name string) *worker {
			return s.start(t, ctx, name, "java -cp "+jar+" Worker.java "+name, env,
				"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", cmp.Or(os.Getenv("FENCEPROXY_JDBC_JAR"), jar), "Worker.java", name)
		},
		refused: refusal,
		midway:  s.inTransaction(t, ctx),
	}.run(t)
	inOrder(t, s.journal(t, ctx), "aba")
	vacant(t, ctx, s.addresses.Replace(electionsTable), "invoices")
}
