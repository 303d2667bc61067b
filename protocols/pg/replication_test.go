package pg

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestReplicates(t *testing.T) {
	for text, want := range map[string]string{
		"IDENTIFY_SYSTEM":                                   "reads",
		" \n\tIDENTIFY_SYSTEM ;":                            "reads",
		"START_REPLICATION 0/16EFF08":                       "reads",
		"START_REPLICATION SLOT a LOGICAL 0/0":              "reads",
		"TIMELINE_HISTORY 2":                                "reads",
		"READ_REPLICATION_SLOT a":                           "reads",
		"UPLOAD_MANIFEST":                                   "reads",
		"BASE_BACKUP":                                       "reads",
		"BASE_BACKUP LABEL 'target' FAST":                   "reads",
		"BASE_BACKUP ( LABEL 'a', PROGRESS )":               "reads",
		"BASE_BACKUP (TARGET 'client')":                     "reads",
		"BASE_BACKUP (TARGET 'blackhole')":                  "reads",
		"BASE_BACKUP (TARGET 'server')":                     "writes",
		"BASE_BACKUP (LABEL 'a', target server)":            "writes",
		`BASE_BACKUP ("target" 'shell')`:                    "writes",
		"BASE_BACKUP (LABEL 'it''s', TARGET 'x')":           "writes",
		"BASE_BACKUP (TARGET":                               "writes",
		"BASE_BACKUP (LABEL 'a) TARGET client, '')":         "reads", // an open string: the server refuses it
		"CREATE_REPLICATION_SLOT a PHYSICAL":                "writes",
		"CREATE_REPLICATION_SLOT TEMPORARY PHYSICAL":        "writes",
		"CREATE_REPLICATION_SLOT a TEMPORARY PHYSICAL":      "reads",
		`CREATE_REPLICATION_SLOT "a b" TEMPORARY LOGICAL x`: "reads",
		`CREATE_REPLICATION_SLOT "a ""TEMPORARY" PHYSICAL`:  "writes",
		`CREATE_REPLICATION_SLOT a "TEMPORARY" PHYSICAL`:    "writes",
		"CREATE_REPLICATION_SLOT":                           "writes",
		"DROP_REPLICATION_SLOT a":                           "writes",
		"drop_replication_slot a":                           "writes",
		"ALTER_REPLICATION_SLOT a (FAILOVER true)":          "writes",
		"SHOW wal_level":                                    "SQL",
		"SELECT 1":                                          "SQL",
		"/* */ IDENTIFY_SYSTEM":                             "SQL",
		`"IDENTIFY_SYSTEM"`:                                 "SQL",
		"":                                                  "SQL",
	} {
		command, reads, name := replicates([]byte(text))
		got := map[bool]string{true: "reads", false: "writes"}[reads]
		if !command {
			got = "SQL"
		}
		if got != want {
			t.Errorf("%s: %s %s, not %s", text, got, name, want)
		}
	}
}

// Replication through the proxy, from servers of each version.
func TestReplication(t *testing.T) {
	for _, v := range testenv.PostgresVersions(t) {
		t.Run(v.String(), func(t *testing.T) {
			p := testenv.Postgres(t, servers.PostgresOptions{Bin: v.Bin, Settings: []string{"wal_level=logical"}})
			r := newRigAt(t, p, func(c *Config) { c.AllowReplication = true })
			mustExec(t, r.admin, "CREATE ROLE copier LOGIN REPLICATION")
			mustExec(t, r.admin, "GRANT SELECT ON t TO copier")
			for name, f := range map[string]func(*testing.T, testenv.Version, *rig){
				"reads": replicationReads, "programs": replicationPrograms, "backup": replicationBackup, "subscriber": replicationToASubscriber,
			} {
				t.Run(name, func(t *testing.T) {
					r.t = t
					f(t, v, r)
				})
			}
		})
	}
}

func (r *rig) copier(replication string) *peer {
	r.t.Helper()
	return r.peer(false, "user", "copier", "replication", replication)
}

// ask sends a Query and returns what comes up to ReadyForQuery.
func (p *peer) ask(sql string) string {
	p.t.Helper()
	p.send(appendQuery(nil, sql))
	return show(p.until('Z'), false)
}

func (p *peer) wants(sql, says string) {
	p.t.Helper()
	if s := p.ask(sql); !strings.Contains(s, says) {
		p.t.Errorf("%s: %s: should say %s", sql, s, says)
	}
}

func replicationReads(t *testing.T, v testenv.Version, r *rig) {
	t.Helper()
	before := r.rows()
	for _, mode := range []string{"true", "database"} {
		p := r.copier(mode)
		p.wants("IDENTIFY_SYSTEM", "IDENTIFY_SYSTEM")
		p.wants("SHOW wal_level", `C "SHOW"`)
		p.wants("CREATE_REPLICATION_SLOT kept PHYSICAL", "E ERROR FP009")
		p.wants("DROP_REPLICATION_SLOT kept", "E ERROR FP009")
		p.wants("ALTER_REPLICATION_SLOT kept (FAILOVER true)", "E ERROR FP009")
		p.wants("BASE_BACKUP (TARGET 'server', TARGET_DETAIL '/tmp/fenceproxy_backup')", "E ERROR FP009")
		p.wants("CREATE_REPLICATION_SLOT brief"+mode+" TEMPORARY PHYSICAL", `C "CREATE_REPLICATION_SLOT"`)
		if v.Major >= 15 {
			p.wants("READ_REPLICATION_SLOT kept", `C "READ_REPLICATION_SLOT"`)
		}
		p.send(messages(t, `P "" "SELECT 1"
			S
			F`))
		if s := show(p.until('Z'), false); !strings.Contains(s, "E ERROR 08P01") {
			t.Error(s)
		}
		p.until('Z')
		// The stream, in both directions, and its end.
		lsn := queryString(t, r.admin, "SELECT pg_current_wal_lsn()::text")
		p.send(appendQuery(nil, "START_REPLICATION "+lsn))
		p.until('W')
		mustExec(t, r.admin, "INSERT INTO t VALUES (21); DELETE FROM t WHERE a = 21")
		p.until('d')
		// A status that asks for an answer: it must not wait for the stream's end.
		status := append([]byte("d\x00\x00\x00\x26r"), make([]byte, 33)...)
		status[len(status)-1] = 1
		p.send(status)
		for !bytes.HasPrefix(p.until('d')[5:], []byte("k")) {
		}
		p.send(msg("c"))
		p.until('Z')
		p.wants("IDENTIFY_SYSTEM", "IDENTIFY_SYSTEM")
	}
	// SQL of a logical connection is a reader's.
	p := r.copier("database")
	p.wants("SELECT count(*) FROM t", `C "SELECT 1"`)
	p.wants("INSERT INTO t VALUES (1)", "E ERROR 25006")
	p.wants("SELECT pg_create_physical_replication_slot('kept')", "E ERROR 25006")
	p.wants("BEGIN READ WRITE; INSERT INTO t VALUES (1); COMMIT", "E ERROR 25006")
	p.wants("SET fence.token = '"+r.guard.lead().Reveal()+"'", "E ERROR FP009")
	p.wants("SHOW default_transaction_read_only; CREATE TABLE x (a int)", "E ERROR 25006")
	p.wants("/* */ DROP_REPLICATION_SLOT a", "E ERROR 25006")
	p.wants("BEGIN", "Z T")
	p.wants("INSERT INTO t VALUES (1)", "Z E")
	p.wants("DROP_REPLICATION_SLOT a", "Z E")
	p.wants("ROLLBACK", "Z I")
	if n := queryString(t, r.admin, "SELECT count(*)::text FROM pg_replication_slots WHERE NOT temporary AND slot_name LIKE 'kept%'"); n != "0" {
		t.Errorf("%s slots", n)
	}
	if got := r.rows(); got != before {
		t.Errorf("rows %s, before %s", got, before)
	}
}

// A token on a replication connection brings a warning, and no bind.
func TestReplicationIsNotBound(t *testing.T) {
	r := newRig(t, func(c *Config) { c.AllowReplication = true })
	mustExec(t, r.admin, "DO $$ BEGIN CREATE ROLE copier LOGIN REPLICATION; EXCEPTION WHEN duplicate_object THEN END $$")
	p := dial(t, r.addr)
	p.send(startPacket(v3, "user", "copier", "database", r.db, "replication", "1", "fence.token", r.guard.lead().Reveal()))
	s := show(p.until('Z'), false)
	if !strings.Contains(s, "N WARNING FP009") || r.guard.boundSessions() != 0 {
		t.Error(s, r.guard.boundSessions())
	}
	p.wants("SHOW fence.status", `C "SHOW"`)
}

func replicationPrograms(t *testing.T, v testenv.Version, r *rig) {
	t.Helper()
	host, port, _ := strings.Cut(r.addr, ":")
	at := []string{"-h", host, "-p", port, "-U", "copier", "--no-password"}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, append(at, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s %v: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	dir := t.TempDir()
	// Those of 15 refuse later servers, though pg_recvlogical does not.
	if v.Major <= 15 {
		run("pg_basebackup", "-D", filepath.Join(dir, "stream"), "-X", "stream", "--checkpoint=fast")
		run("pg_basebackup", "-D", filepath.Join(dir, "fetch"), "-X", "fetch", "-Ft", "--checkpoint=fast")

		mustExec(t, r.admin, "SELECT pg_create_physical_replication_slot('wal', true)")
		end := queryString(t, r.admin, "SELECT pg_current_wal_lsn()::text")
		mustExec(t, r.admin, "INSERT INTO t VALUES (1)")
		run("pg_receivewal", "-D", dir, "--slot", "wal", "--endpos", end, "--no-loop", "--synchronous")
	}

	mustExec(t, r.admin, "SELECT pg_create_logical_replication_slot('changes', 'pgoutput')")
	mustExec(t, r.admin, "CREATE PUBLICATION p FOR TABLE t")
	mustExec(t, r.admin, "INSERT INTO t VALUES (2, 'the second')")
	end := queryString(t, r.admin, "SELECT pg_current_wal_lsn()::text")
	file := filepath.Join(dir, "changes")
	run("pg_recvlogical", "-d", r.db, "--slot", "changes", "--start", "-f", file, "--endpos", end, "--no-loop",
		"-o", "proto_version=1", "-o", "publication_names=p")
	if b := queryString(t, r.admin, "SELECT (confirmed_flush_lsn > '0/0')::text FROM pg_replication_slots WHERE slot_name='changes'"); b != "true" {
		t.Error("the slot did not move")
	}
	out, err := exec.CommandContext(t.Context(), "pg_recvlogical", append(at, "-d", r.db, "--slot", "changes", "--drop-slot")...).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("not allowed through this proxy")) {
		t.Errorf("%v: %s", err, out)
	}
}

// A base backup, and a manifest for the next, in the words of later servers' programs.
func replicationBackup(t *testing.T, v testenv.Version, r *rig) {
	t.Helper()
	p := r.copier("true")
	if v.Major < 15 {
		p.wants("BASE_BACKUP LABEL 'target' FAST NOWAIT", `C "SELECT"`)
		return
	}
	p.wants("BASE_BACKUP (LABEL 'a', CHECKPOINT 'fast', WAIT false, MANIFEST 'yes')", `C "BASE_BACKUP"`)
	p.wants("BASE_BACKUP (CHECKPOINT 'fast', WAIT false, TARGET 'blackhole')", `C "BASE_BACKUP"`)
	if v.Major < 17 {
		return
	}
	p.send(appendQuery(nil, "UPLOAD_MANIFEST"))
	p.until('G')
	p.send(messages(t, `d "{}"
		c`))
	if s := show(p.until('Z'), false); !strings.Contains(s, "manifest") {
		t.Error(s)
	}
	p.wants("IDENTIFY_SYSTEM", "IDENTIFY_SYSTEM")
}

// A subscriber of each version follows through the proxy.
func replicationToASubscriber(t *testing.T, _ testenv.Version, r *rig) {
	t.Helper()
	mustExec(t, r.admin, "CREATE PUBLICATION followed FOR TABLE t")
	mustExec(t, r.admin, "SELECT pg_create_logical_replication_slot('followed', 'pgoutput')")
	mustExec(t, r.admin, "CREATE DATABASE other")
	c := connect(t, r.pg.DSN(servers.Superuser, "other"))
	mustExec(t, c, "CREATE TABLE t (a int PRIMARY KEY, b text)")
	host, port, _ := strings.Cut(r.addr, ":")
	mustExec(t, c, fmt.Sprintf("CREATE SUBSCRIPTION s CONNECTION 'host=%s port=%s user=copier dbname=%s' PUBLICATION followed "+
		"WITH (create_slot=false, slot_name='followed', copy_data=false)", host, port, r.db))
	mustExec(t, r.admin, "INSERT INTO t VALUES (11, 'one')")
	for queryString(t, c, "SELECT count(*)::text FROM t WHERE b = 'one'") != "1" {
		runtime.Gosched()
	}
	mustExec(t, c, "ALTER SUBSCRIPTION s DISABLE")
	mustExec(t, c, "ALTER SUBSCRIPTION s SET (slot_name=NONE)")
	mustExec(t, c, "DROP SUBSCRIPTION s")
}

// A standby that reads through the proxy ends with the proxy, at once.
func TestReplicationEndsAtShutdown(t *testing.T) {
	r := newRig(t, func(c *Config) { c.AllowReplication = true })
	mustExec(t, r.admin, "DO $$ BEGIN CREATE ROLE copier LOGIN REPLICATION; EXCEPTION WHEN duplicate_object THEN END $$")
	p := r.copier("true")
	p.send(appendQuery(nil, fmt.Sprintf("START_REPLICATION %s", queryString(t, r.admin, "SELECT pg_current_wal_lsn()::text"))))
	p.until('W')
	go r.stop()
	if s := show(p.until('E'), false); !strings.Contains(s, "E FATAL 57P01") {
		t.Error(s)
	}
	runtime.KeepAlive(p)
}
