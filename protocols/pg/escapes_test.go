package pg

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// snapshot is what a write of any kind would change.
const snapshot = `SELECT concat_ws(' ',
	(SELECT string_agg(t::text, ',' ORDER BY a) FROM t),
	(SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc), (SELECT count(*) FROM pg_namespace),
	(SELECT string_agg(proname || coalesce(proacl::text, ''), ',' ORDER BY oid) FROM pg_proc WHERE oid >= 16384),
	(SELECT string_agg(relname || reltuples || relfilenode || coalesce(relacl::text, ''), ',' ORDER BY oid) FROM pg_class WHERE oid >= 16384),
	(SELECT count(*) FROM pg_description WHERE objoid >= 16384),
	(SELECT string_agg(last_value::text, ',') FROM s),
	(SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM pg_prepared_xacts),
	(SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_replication_origin),
	(SELECT count(*) FROM pg_locks WHERE locktype='advisory'),
	(SELECT count(*) FROM pg_db_role_setting), (SELECT count(*) FROM pg_file_settings WHERE name='work_mem'),
	(SELECT string_agg(mode, ',') FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE relation='t'::regclass AND mode <> 'AccessShareLock' AND a.usename='eager'),
	(SELECT pg_conf_load_time()), (SELECT count(*) FROM pg_stat_activity WHERE pid = %VICTIM%))`

// Each statement that the policy knows to refuse, sent by a superuser who has no token, in
// both protocols: nothing changes, and nobody hears of it.
func TestEscapes(t *testing.T) {
	r := newRig(t, nil)
	prepareEscapes(t, r)
	victim := connect(t, r.pg.DSN("postgres", r.db))
	look := strings.ReplaceAll(snapshot, "%VICTIM%", queryString(t, victim, "SELECT pg_backend_pid()::text"))
	ear := connect(t, r.pg.DSN("postgres", r.db))
	mustExec(t, ear, "LISTEN a")
	before := queryString(t, r.admin, look)

	var texts []string
	b, err := os.ReadFile("../../policy/testdata/sql_refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(string(b), "\n") {
		if f := strings.SplitN(l, "|", 3); len(f) == 3 && !strings.HasPrefix(l, "#") {
			texts = append(texts, strings.TrimSpace(f[2]))
		}
	}
	texts = append(texts,
		"SELECT pg_terminate_backend("+queryString(t, victim, "SELECT pg_backend_pid()::text")+")",
		"SELECT pg_notify('a', 'heard')", "SELECT lo_creat(-1)", "SELECT lo_from_bytea(0, 'x')", "COMMIT PREPARED 'waiting'",
		"SELECT 1; NOTIFY a", "/* */ -- \n INSERT INTO t VALUES (5)", "select $$a$$; insert into t values (5)",
		"SELECT E'\\''; INSERT INTO t VALUES (5); --'", "BEGIN; SET LOCAL transaction_read_only TO off; INSERT INTO t VALUES (5); COMMIT",
		"COPY t(a) TO '/tmp/fenceproxy_escape'", "ANALYZE t", "SELECT * FROM t LIMIT 1 FOR NO KEY UPDATE", "CREATE TEMP TABLE x AS SELECT 1",
		"SELECT setval('s', 99)", "EXPLAIN (ANALYZE, COSTS off) EXECUTE nothing(pg_notify('a', ''))",
		"GRANT EXECUTE ON FUNCTION writes() TO app", "SELECT pg_advisory_lock_shared(3)",
	)
	for _, mode := range []string{"simple_protocol", "exec"} {
		c := connect(t, strings.Replace(r.dsn("&default_query_exec_mode="+mode), "app@", "eager@", 1))
		for _, text := range texts {
			var args []any
			if strings.Contains(text, "$2") {
				args = []any{"default_transaction_read_only", "off"}
			} else if strings.Contains(text, "$1") {
				args = []any{"off"}
				if strings.Contains(text, "client_encoding") {
					args = []any{"SJIS"}
				}
			}
			rows, err := c.Query(t.Context(), text, args...)
			if err == nil {
				rows.Close()
				err = rows.Err()
			}
			if err == nil {
				t.Errorf("%s: %s: let through", mode, text)
			} else if e, ok := err.(*pgconn.PgError); ok && e.Code != "25006" && !strings.HasPrefix(e.Message, "syntax error") {
				t.Errorf("%s: %s: %v", mode, text, err)
			}
			if after := queryString(t, r.admin, look); after != before {
				t.Fatalf("%s: %s: changed\n%s\nto\n%s", mode, text, before, after)
			}
		}
	}
	// What was not refused by the proxy the server refuses, or ends the session.
	for _, group := range [][]string{
		{"SELECT writes()"},
		{"SELECT * FROM writing"},
		{"SELECT flips()", "SELECT writes()"},
		{"SELECT flips(); SELECT writes()"},
		{"BEGIN", "SELECT flips()", "COMMIT", "SELECT writes()"},
		{"BEGIN; SELECT flips(); COMMIT", "SELECT writes()"},
		{"SELECT flips(); COMMIT; SELECT writes()"},
		{"SELECT flips()", "COMMIT", "SELECT writes()"},
		{"SELECT flips() AS a UNION SELECT flops()", "SELECT writes()"},
		{"SELECT tries()"},
	} {
		for _, extended := range []bool{false, true} {
			p := r.peer(false, "user", "eager")
			var b []byte
			for _, text := range group {
				if extended {
					b = appendParse(b, "", text)
					b = append(append(append(b, msg("B")...), msg("E")...), 'H', 0, 0, 0, 4)
				} else {
					b = appendQuery(b, text)
				}
			}
			p.send(append(b, "S\x00\x00\x00\x04X\x00\x00\x00\x04"...))
			said := show(p.rest(), false)
			if after := queryString(t, r.admin, look); after != before {
				t.Fatalf("%v: changed\n%s\nto\n%s\nsaid %s", group, before, after, said)
			}
			if !strings.Contains(said, "E ERROR") && !strings.Contains(said, "E FATAL 25006") {
				t.Errorf("%v: %s", group, said)
			}
		}
	}
	mustExec(t, ear, "SELECT 1")
	if ear.IsClosed() {
		t.Error("the listener was ended")
	}
	if _, err := victim.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("the victim was ended: %v", err)
	}
	mustExec(t, r.admin, "NOTIFY a, 'last'")
	if n, err := ear.WaitForNotification(t.Context()); err != nil || n.Payload != "last" {
		t.Errorf("heard %+v %v", n, err)
	}
}

func prepareEscapes(t *testing.T, r *rig) {
	t.Helper()
	for _, sql := range []string{
		"DO $$ BEGIN CREATE ROLE eager LOGIN SUPERUSER; EXCEPTION WHEN duplicate_object THEN END $$",
		"INSERT INTO t VALUES (1, 'one'), (2, 'two')",
		"CREATE SEQUENCE s", "CREATE VIEW v AS SELECT 1", "CREATE MATERIALIZED VIEW mv AS SELECT 1 AS a",
		"CREATE FUNCTION writes() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (9); RETURN 1; END $$",
		"CREATE FUNCTION flips() RETURNS int LANGUAGE plpgsql AS $$ BEGIN SET default_transaction_read_only = off; RETURN 1; END $$",
		"CREATE FUNCTION flops() RETURNS int LANGUAGE plpgsql AS $$ BEGIN SET default_transaction_read_only = on; RETURN 1; END $$",
		"CREATE FUNCTION tries() RETURNS int LANGUAGE plpgsql AS $$ BEGIN SET transaction_read_only = off; PERFORM writes(); RETURN 1; END $$",
		"CREATE VIEW writing AS SELECT writes()",
		"CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN COMMIT; SET TRANSACTION READ WRITE; INSERT INTO t VALUES (8); END $$",
		"CREATE EXTENSION dblink", "CREATE EXTENSION tablefunc",
		"BEGIN", "INSERT INTO t VALUES (7)", "PREPARE TRANSACTION 'waiting'",
	} {
		mustExec(t, r.admin, sql)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		c, err := pgx.Connect(ctx, r.pg.DSN("postgres", r.db))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close(ctx)
		if _, err := c.Exec(ctx, "ROLLBACK PREPARED 'waiting'"); err != nil {
			t.Error(err)
		}
	})
}
