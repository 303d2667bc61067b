package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// TestScramThroughBothLegs follows check's advice from a listener that refuses libpq's
// default on, until psql logs in; then it does the same with a file.
func TestScramThroughBothLegs(t *testing.T) {
	ca := testenv.NewAuthority(t)
	server, own := ca.Issue("db", []string{"127.0.0.1"}, nil), ca.Issue("proxy", []string{"127.0.0.1"}, nil)
	p := testenv.Postgres(t, servers.PostgresOptions{Settings: []string{"ssl=on", "ssl_cert_file=" + server.Cert, "ssl_key_file=" + server.Key},
		HBA: "host all postgres,fenceproxy 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"})
	if r := command(t, "", "install", "--elections", "--dsn", p.DSN(servers.Superuser, "postgres")); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	conn, err := pgx.Connect(t.Context(), p.DSN(servers.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE ROLE app LOGIN PASSWORD 'hunter2'"); err != nil {
		t.Fatal(err)
	}
	control := p.DSN("fenceproxy", "postgres")
	check := func(more string) result {
		t.Helper()
		return command(t, "", "check", "-c", configFile(t, postgresConfig+"    tls: {cert: %s, key: %s}\n%s", control, freeAddr(t), p.Addr, control, "orders", own.Cert, own.Key, more))
	}
	login := func(more, password string, logs ...string) (out string) {
		t.Helper()
		addr := freeAddr(t)
		proxy := serve(t, configFile(t, postgresConfig+"    tls: {cert: %s, key: %s}\n%s", control, addr, p.Addr, control, "orders", own.Cert, own.Key, more), addr, logs...)
		host, port, _ := strings.Cut(addr, ":")
		cmd := exec.CommandContext(testenv.Context(t), "psql", "-XAtwc", "SELECT 'in'",
			fmt.Sprintf("host=%s port=%s user=app dbname=postgres sslmode=verify-full sslrootcert=%s", host, port, ca.CA))
		cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
		b, _ := cmd.CombinedOutput()
		_ = proxy.Process.Signal(os.Interrupt)
		proxy.ended(t)
		log := proxy.log.String()
		if strings.Contains(log, "SCRAM-SHA-256$") || strings.Contains(log, "hunter2") {
			t.Errorf("a secret is in the log:\n%s", log)
		}
		return strings.TrimSpace(string(b))
	}

	advice := check("")
	if advice.code != exitOK || !strings.Contains(advice.out, "warn  db: TLS on both legs shows two certificates") {
		t.Fatalf("%+v", advice)
	}
	out := login("", "hunter2", "check: TLS on both legs shows two certificates")
	if !strings.Contains(out, "SCRAM channel binding cannot pass") || !strings.Contains(out, "fenceproxy install --scram") {
		t.Error(out)
	}
	const byControl = "    scram_verifiers: control\n"
	if r := check(byControl); r.code != exitFailure || !strings.Contains(r.out, "there is no function fenceproxy.scram_verifier") {
		t.Errorf("%+v", r)
	}
	m := regexp.MustCompile(`run: fenceproxy (install --scram --dsn) '(.*)'`).FindStringSubmatch(advice.out)
	if m == nil {
		t.Fatalf("advises no command: %s", advice.out)
	}
	if r := command(t, "", append(strings.Fields(m[1]), m[2])...); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	if r := check(byControl); r.code != exitOK || strings.Contains(r.out, "two certificates") {
		t.Errorf("%+v", r)
	}
	if out := login(byControl, "hunter2"); out != "in" {
		t.Error(out)
	}
	if out := login(byControl, "hunter3"); !strings.Contains(out, `FATAL:  password authentication failed for user "app"`) {
		t.Error(out)
	}

	var verifier string
	if err := conn.QueryRow(t.Context(), "SELECT rolpassword FROM pg_authid WHERE rolname = 'app'").Scan(&verifier); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "scram.txt")
	byFile := "    scram_userlist: " + path + "\n"
	for _, c := range []struct {
		text string
		mode os.FileMode
		says string
	}{
		{`"app" "` + verifier + `"`, 0o644, "everybody may read or change it"},
		{`"app" "hunter2"`, 0o600, "scram.txt:1: not a SCRAM-SHA-256 verifier"},
		{`"app" "` + verifier + `"`, 0o600, ""},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		r := check(byFile)
		if (r.code == exitOK) != (c.says == "") || !strings.Contains(r.out, c.says) || strings.Contains(r.out, "hunter2") {
			t.Errorf("%+v", r)
		}
	}
	if out := login(byFile, "hunter2"); out != "in" {
		t.Error(out)
	}
}
