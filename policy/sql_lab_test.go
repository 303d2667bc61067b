package policy_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A lab is a server on which a statement's traces can be seen: whatever it leaves behind
// anywhere but in its own session.
type lab struct {
	t       testing.TB
	server  *servers.Process
	major   int
	outside string // a directory that the server may write to
	admin   *pgx.Conn
	ear     *pgx.Conn // listens on channel a
	heard   int
	hears   bool // a notification is expected, whatever the statement looks like

	readers map[string]*pgx.Conn // sessions without a token, by user

	idle, busy *pgx.Conn // victims of pg_terminate_backend and pg_cancel_backend
	sleeping   chan struct{}

	last map[string]string // the latest look, until something may have changed
}

// What every lab has. Statements of the tables use these names.
const labSchema = `
CREATE TABLE t (a int PRIMARY KEY, b text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE TABLE parted (a int) PARTITION BY LIST (a);
CREATE SEQUENCE s;
CREATE VIEW v AS SELECT a FROM t;
CREATE MATERIALIZED VIEW mv AS SELECT 1 AS a;
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION writes() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (9); RETURN 1; END $$;
CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (8); END $$;
CREATE PROCEDURE escapes() LANGUAGE plpgsql AS $$ BEGIN COMMIT; SET TRANSACTION READ WRITE; INSERT INTO t VALUES (8); ROLLBACK; END $$;
CREATE TYPE pair AS (x int, y int);
CREATE ROLE app LOGIN;
GRANT ALL ON ALL TABLES IN SCHEMA public TO app;
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app;
GRANT ALL ON SCHEMA public TO app;
CREATE EXTENSION dblink;
CREATE EXTENSION tablefunc;
VACUUM FREEZE;
CHECKPOINT`

func newLab(t testing.TB, v testenv.Version) *lab {
	t.Helper()
	p := testenv.Postgres(t, servers.PostgresOptions{Bin: v.Bin, Settings: []string{
		"max_prepared_transactions=10", "wal_level=logical", "autovacuum=off", "checkpoint_timeout=1h", "track_activities=on",
	}})
	l := &lab{t: t, server: p, major: v.Major, outside: filepath.Join(p.Dir, "outside")}
	if err := os.Mkdir(l.outside, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(l.outside, 0o777); err != nil { // whatever the umask
		t.Fatal(err)
	}
	l.admin = l.connect(servers.Superuser)
	for sql := range strings.SplitSeq(labSchema, ";\n") {
		l.exec(l.admin, sql)
	}
	return l
}

// use lets a part of the test use the lab: what it needs lasts as long as that part.
func (l *lab) use(t testing.TB) {
	l.t = t
	l.readers = make(map[string]*pgx.Conn)
	l.hear()
	l.restore()
}

// hear listens for notifications.
func (l *lab) hear() {
	l.ear = l.connectConfig(servers.Superuser, func(c *pgx.ConnConfig) {
		c.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { l.heard++ }
	})
	l.exec(l.ear, "LISTEN a")
}

func (l *lab) connect(user string) *pgx.Conn { return l.connectConfig(user, func(*pgx.ConnConfig) {}) }

func (l *lab) connectConfig(user string, set func(*pgx.ConnConfig)) *pgx.Conn {
	l.t.Helper()
	c, err := pgx.ParseConfig(l.server.DSN(user, "postgres"))
	if err != nil {
		l.t.Fatal(err)
	}
	c.RuntimeParams["statement_timeout"] = "20s"
	set(c)
	conn, err := pgx.ConnectConfig(l.t.Context(), c)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// reader opens a session as the proxy does for one without a live token.
func (l *lab) reader(user string) *pgx.Conn {
	l.t.Helper()
	return l.connectConfig(user, func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_read_only"] = "on" })
}

func (l *lab) exec(c *pgx.Conn, sql string) {
	l.t.Helper()
	if _, err := c.PgConn().Exec(l.t.Context(), sql).ReadAll(); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
}

func (l *lab) scalar(c *pgx.Conn, sql string) string {
	l.t.Helper()
	r, err := c.PgConn().Exec(l.t.Context(), sql).ReadAll()
	if err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
	last := r[len(r)-1]
	if len(last.Rows) == 0 || len(last.Rows[0]) == 0 {
		return ""
	}
	return string(last.Rows[0][0])
}

// restore gives the lab back what a statement may have taken or left.
func (l *lab) restore() {
	l.t.Helper()
	l.last = nil
	l.exec(l.admin, "DELETE FROM t WHERE a > 2; INSERT INTO t VALUES (1, 'one'), (2, 'two') ON CONFLICT DO NOTHING")
	l.exec(l.admin, "SELECT lo_from_bytea(4242, 'x') WHERE NOT EXISTS (SELECT FROM pg_largeobject_metadata WHERE oid=4242); GRANT ALL ON LARGE OBJECT 4242 TO app")
	for _, sql := range []string{
		"SELECT 'DROP '||CASE relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END||' n' FROM pg_class WHERE relname='n'",
		"SELECT 'ROLLBACK PREPARED '''||gid||'''' FROM pg_prepared_xacts",
		"SELECT format('SELECT pg_drop_replication_slot(%L)', slot_name) FROM pg_replication_slots WHERE slot_name<>'held'",
		"SELECT format('SELECT pg_replication_origin_drop(%L)', roname) FROM pg_replication_origin WHERE roname<>'origin'",
		"SELECT 'DROP DATABASE '||datname FROM pg_database WHERE datname LIKE 'extra%'",
		"SELECT 'DROP TABLESPACE '||spcname FROM pg_tablespace WHERE spcname LIKE 'extra%'",
		"SELECT 'SELECT pg_terminate_backend('||pid||')' FROM pg_stat_activity WHERE backend_type LIKE '%autoprewarm%'",
	} {
		for undo := l.scalar(l.admin, sql); undo != ""; undo = l.scalar(l.admin, sql) {
			l.exec(l.admin, undo)
		}
	}
	l.exec(l.admin, "SELECT pg_create_logical_replication_slot('held', 'test_decoding') WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name='held')")
	l.exec(l.admin, "SELECT pg_replication_origin_create('origin') WHERE NOT EXISTS (SELECT FROM pg_replication_origin WHERE roname='origin')")
	if b, err := os.ReadFile(filepath.Join(l.server.Dir, "data", "postgresql.auto.conf")); err != nil || strings.Contains(string(b), "=") {
		l.exec(l.admin, "ALTER SYSTEM RESET ALL")
	}
	left, err := filepath.Glob(l.outside + "/*")
	for _, f := range left {
		err = errors.Join(err, os.RemoveAll(f))
	}
	if err != nil {
		l.t.Fatal(err)
	}
	if l.idle == nil || l.idle.IsClosed() || l.idle.Ping(l.t.Context()) != nil {
		l.idle = l.connect(servers.Superuser)
		l.exec(l.idle, "SET application_name = 'idle victim'")
	}
	if !l.slept() {
		return
	}
	l.wake()
	l.busy = l.connect(servers.Superuser)
	l.t.Cleanup(l.wake) // before its connection is closed
	l.exec(l.busy, "SET application_name = 'busy victim'; SET statement_timeout = 0")
	l.sleeping = make(chan struct{})
	go func(c *pgx.Conn, done chan struct{}) {
		defer close(done)
		_, _ = c.PgConn().Exec(context.Background(), "SELECT pg_sleep(3600)").ReadAll()
	}(l.busy, l.sleeping)
	for l.scalar(l.admin, "SELECT state FROM pg_stat_activity WHERE wait_event='PgSleep'") != "active" {
		// It is about to begin.
	}
}

// slept reports whether the busy victim was woken, or never slept.
func (l *lab) slept() bool {
	if l.sleeping == nil {
		return true
	}
	select {
	case <-l.sleeping:
		return true
	default:
		return false
	}
}

// wake ends the busy victim.
func (l *lab) wake() {
	if l.busy == nil {
		return
	}
	_ = l.busy.PgConn().Conn().Close()
	<-l.sleeping
	l.busy = nil
}

// fillAny replaces the names that fill replaces, for the policy, which knows no server.
func fillAny(sql string) []byte {
	return []byte(strings.NewReplacer("{idle}", "1", "{busy}", "1", "{outside}", "/x", "{dsn}", "").Replace(sql))
}

// fill replaces the names that a table's statement has for what only this lab knows.
func (l *lab) fill(sql string) string {
	if strings.Contains(sql, "{") {
		for name, c := range map[string]*pgx.Conn{"{idle}": l.idle, "{busy}": l.busy} {
			sql = strings.ReplaceAll(sql, name, fmt.Sprint(c.PgConn().PID()))
		}
		sql = strings.ReplaceAll(sql, "{outside}", l.outside)
		sql = strings.ReplaceAll(sql, "{dsn}", strings.TrimSuffix(l.server.DSN(servers.Superuser, "postgres"), "?sslmode=disable"))
	}
	return sql
}

// traces are what can be seen from outside, by name. A name's first word is what a table
// calls the effect.
const traces = `
SELECT 'xid', pg_snapshot_xmax(pg_current_snapshot())::text
UNION ALL SELECT 'wal', pg_current_wal_insert_lsn()::text
UNION ALL SELECT 'checkpoint', checkpoint_lsn::text FROM pg_control_checkpoint()
UNION ALL SELECT 'config', pg_conf_load_time()::text
UNION ALL SELECT 'slot '||slot_name, concat_ws(' ', active, restart_lsn, confirmed_flush_lsn) FROM pg_replication_slots
UNION ALL SELECT 'origin '||external_id, concat_ws(' ', remote_lsn, local_lsn) FROM pg_replication_origin_status
UNION ALL SELECT 'prepared '||gid, '' FROM pg_prepared_xacts
UNION ALL SELECT 'sequence', concat_ws(' ', last_value, is_called) FROM s
UNION ALL SELECT 'stats', concat_ws(' ', min(stats_reset), max(stats_reset), (SELECT stats_reset FROM pg_stat_bgwriter),
	(SELECT stats_reset FROM pg_stat_archiver), (SELECT stats_reset FROM pg_stat_wal), (SELECT max(stats_reset) FROM pg_stat_slru)) FROM pg_stat_database
UNION ALL SELECT 'session '||pid, concat_ws(' ', backend_type, state, query_start)
	FROM pg_stat_activity WHERE application_name LIKE '% victim' OR backend_type NOT IN ('client backend', 'parallel worker')
UNION ALL SELECT 'advisory '||pid||' '||objid||mode, '' FROM pg_locks WHERE locktype = 'advisory'
UNION ALL SELECT 'lock('||mode||') '||pid||' '||coalesce(relation, 0), '' FROM pg_locks
	WHERE mode <> 'AccessShareLock' AND locktype NOT IN ('virtualxid', 'transactionid', 'advisory') AND pid <> pg_backend_pid()`

// look takes down everything that a statement may change.
func (l *lab) look() map[string]string {
	l.t.Helper()
	rows, err := l.admin.PgConn().Exec(l.t.Context(), traces).ReadAll()
	if err != nil {
		l.t.Fatal(err)
	}
	seen := make(map[string]string)
	for _, r := range rows[0].Rows {
		seen[string(r[0])] = string(r[1])
	}
	seen["notify"] = fmt.Sprint(l.heard)
	data := filepath.Join(l.server.Dir, "data")
	for _, pattern := range []string{l.outside, data, data + "/*", data + "/*/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, path := range paths {
			// A directory's time changes with the files in it.
			info, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				l.t.Fatal(err)
			}
			switch rel := strings.TrimPrefix(path, data+"/"); {
			case !info.IsDir(), strings.HasPrefix(rel, "pg_wal"), strings.HasPrefix(rel, "pg_stat_tmp"), strings.HasPrefix(rel, "pg_subtrans"),
				strings.HasPrefix(rel, "pg_notify"), strings.HasPrefix(rel, "pg_xact"), rel == "base/pgsql_tmp":
			default:
				seen["file "+path] = info.ModTime().String()
			}
		}
	}
	conf, err := os.ReadFile(filepath.Join(data, "postgresql.auto.conf"))
	if err != nil {
		l.t.Fatal(err)
	}
	seen["file postgresql.auto.conf"] = string(conf)
	return seen
}

// changed are the effects by which two looks differ.
func changed(before, after map[string]string) map[string]bool {
	effects := make(map[string]bool)
	for name, v := range after {
		if was, ok := before[name]; !ok || was != v {
			effects[effect(name)] = true
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			effects[effect(name)] = true
		}
	}
	return effects
}

func effect(name string) string {
	e, _, _ := strings.Cut(name, " ")
	return e
}

// outcome is what the server said to a statement, and what it left behind: "ok xid", or
// "25006".
type outcome struct {
	code    string // ok or an SQLSTATE
	effects map[string]bool
}

func (o outcome) String() string {
	words := []string{}
	for e := range o.effects {
		words = append(words, e)
	}
	sort.Strings(words)
	return strings.Join(append([]string{o.code}, words...), " ")
}

// try runs a statement in a session and says what it left behind: while its
// transaction is open, and once that is committed. Statements that do not run in a
// transaction block run without.
func (l *lab) try(c *pgx.Conn, sql string, bare bool) outcome {
	l.t.Helper()
	before := l.last
	if before == nil {
		before = l.look()
	}
	o := outcome{effects: make(map[string]bool)}
	note := func(after map[string]string) {
		l.last = after
		for e := range changed(before, after) {
			o.effects[e] = true
		}
	}
	if !bare {
		l.exec(c, "BEGIN")
	}
	o.code = sqlstate(c, sql)
	if o.code == "25001" && !bare && c.PgConn().TxStatus() == 'E' {
		l.exec(c, "ROLLBACK")
		o.code = sqlstate(c, sql)
	}
	if o.code == "ok" && l.busy != nil && strings.Contains(sql, fmt.Sprint(l.busy.PgConn().PID())) {
		// A signal takes a moment to be acted on.
		select {
		case <-l.sleeping:
		case <-time.After(5 * time.Second):
		}
	}
	if c.IsClosed() {
		o.effects["closed"] = true
		note(l.look())
		return o
	}
	if c.PgConn().TxStatus() == 'T' {
		if l.scalar(c, "SELECT pg_current_xact_id_if_assigned()") != "" {
			o.effects["xid"] = true
		}
		if l.scalar(c, "SHOW transaction_read_only") != "on" {
			o.effects["read-write"] = true
		}
		note(l.look())
		if s := sqlstate(c, "COMMIT"); s != "ok" {
			o.code += "+" + s
		}
	} else if c.PgConn().TxStatus() == 'E' {
		l.exec(c, "ROLLBACK")
	}
	if l.scalar(c, "SHOW transaction_read_only") != "on" {
		o.effects["read-write"] = true
	}
	note(l.look())
	// Who notifies takes a transaction number.
	if o.effects["xid"] && (l.hears || strings.Contains(strings.ToLower(sql), "notify")) {
		heard := l.heard
		if l.listen(); l.heard != heard {
			o.effects["notify"] = true
			l.last = nil
		}
	}
	return o
}

// listen gives a notification that is on its way a moment to be heard.
func (l *lab) listen() {
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*time.Second)
	defer cancel()
	if err := l.ear.PgConn().WaitForNotification(ctx); err != nil && ctx.Err() == nil {
		l.t.Fatal(err)
	}
	if l.ear.IsClosed() { // by the time-out
		l.hear()
	}
}

// sqlstate runs a text in the simple protocol.
func sqlstate(c *pgx.Conn, sql string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := c.PgConn().Exec(ctx, sql).ReadAll()
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &pgErr):
		return pgErr.Code
	default:
		return err.Error()
	}
}
