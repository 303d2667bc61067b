package pgfence_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A dump restores what it holds and is protected afterwards; data alone are refused, unless
// the triggers are off.
func TestProtectDumpAndRestore(t *testing.T) {
	c := shared(t)
	d := newProtectedDB(t, c)
	e := testenv.Name(t, "billing")
	s := d.connect("app")
	d.do(s, "INSERT INTO billing.invoice VALUES (1); INSERT INTO billing.line VALUES (1, 1)")
	d.p.NewTables = true
	d.protect("billing.*=" + e)
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), testenv.Tool(t, name), args...).CombinedOutput()
		return string(out), err
	}
	mustRun := func(name string, args ...string) {
		t.Helper()
		if out, err := run(name, args...); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	all, part := filepath.Join(dir, "all"), filepath.Join(dir, "part")
	mustRun("pg_dump", "-Fc", "-f", all, c.p.DSN(servers.Superuser, d.name))
	mustRun("pg_dump", "-Fc", "-f", part, "--exclude-schema=fenceproxy", "-n", "billing", c.p.DSN("app", d.name)) // who may not read the key
	if _, err := os.Stat(part); err != nil {
		t.Fatal(err)
	}
	restored := &protectedDB{t: t, c: c, name: d.name + "_r", f: d.f}
	c.exec(t, "CREATE DATABASE "+restored.name)
	mustRun("pg_restore", "--exit-on-error", "-d", c.p.DSN(servers.Superuser, restored.name), all)
	restored.p = pgfence.Protector{Control: c.admin, Tables: restored.connect(servers.Superuser).Conn}
	direct, leader := restored.connect("app"), restored.connect("app")
	restored.refused(direct, "INSERT INTO billing.line VALUES (1)")
	restored.do(leader, "SET fence.proof = '"+restored.bind(leader, e)+"'; INSERT INTO billing.line VALUES (1)")
	restored.do(direct, "CREATE TABLE billing.fresh ()")
	restored.refused(direct, "INSERT INTO billing.fresh DEFAULT VALUES")

	super := c.p.DSN(servers.Superuser, restored.name)
	before := restored.count("billing.line")
	out, err := run("pg_restore", "--data-only", "-t", "line", "-d", super, all)
	if err == nil || !strings.Contains(out, "not bound to election") {
		t.Errorf("%v %s", err, out)
	}
	mustRun("pg_restore", "--data-only", "--disable-triggers", "-t", "line", "-d", super, all)
	if n := restored.count("billing.line"); n != before+1 {
		t.Errorf("%d rows, were %d", n, before)
	}
	restored.refused(direct, "INSERT INTO billing.line VALUES (1)")
	// Without the schema fenceproxy the tables are there, and not protected.
	restored.root("DROP SCHEMA billing CASCADE; DROP SCHEMA fenceproxy CASCADE")
	if out, err := run("pg_restore", "-d", super, part); err == nil || strings.Count(out, "error:") != 2 {
		t.Errorf("%v %s", err, out)
	}
	restored.do(direct, "INSERT INTO billing.line VALUES (1)")
	restored.protect("billing.*=" + e)
	restored.refused(direct, "INSERT INTO billing.line VALUES (1)")
	_, err = c.admin.Exec(t.Context(), "DELETE FROM fenceproxy.protected_database WHERE name = $1", restored.name)
	must(t, err)
}

// What logical replication applies is let through, and refused with Always.
func TestProtectLogicalReplication(t *testing.T) {
	c := install(t, testenv.Postgres(t, servers.PostgresOptions{Settings: []string{"wal_level=logical", "wal_retrieve_retry_interval=100ms"}}))
	from, to := newProtectedDB(t, c), newProtectedDB(t, c)
	from.root("CREATE PUBLICATION p FOR TABLE billing.invoice")
	from.root("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
	to.protect("billing.*=billing")
	to.root("CREATE SUBSCRIPTION s CONNECTION '" + c.p.DSN(servers.Superuser, from.name) + "' PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)")
	s := from.connect("app")
	d := to
	d.refused(d.connect("app"), "INSERT INTO billing.invoice VALUES (1)")
	from.do(s, "INSERT INTO billing.invoice VALUES (1)")
	eventually(t, func() bool { return to.count("billing.invoice") == 1 })
	always := []pgfence.Protection{{Pattern: "billing.*", Election: "billing", Always: true}}
	_, _, err := to.p.Protect(t.Context(), always)
	must(t, err)
	from.do(s, "UPDATE billing.invoice SET note = 'x'")
	eventually(t, func() bool {
		// The first refusal was of the session that came directly.
		return strings.Count(c.p.Log(), "not bound to election \"billing\", which protects table billing.invoice") > 1
	})
	if n := to.count("billing.invoice WHERE note IS NULL"); n != 1 {
		t.Error("applied")
	}
	to.protect("billing.*=billing")
	eventually(t, func() bool { return to.count("billing.invoice WHERE note = 'x'") == 1 })
	to.root("ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
	eventually(t, func() bool {
		_, err := c.admin.Exec(t.Context(), "SELECT pg_drop_replication_slot('s')")
		return err == nil
	})
}
