package pgclients

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// dumpVaries is the random key that a dump has in two lines.
var dumpVaries = regexp.MustCompile(`(?m)^\\(un)?restrict .*\n`)

func dump(t *testing.T, ctx context.Context, p place, args ...string) string {
	t.Helper()
	return dumpVaries.ReplaceAllString(p.run(t, ctx, "", testenv.Tool(t, "pg_dump"), args...), "")
}

// dumpStage is a stage whose database has some of everything.
func dumpStage(t *testing.T, ctx context.Context, name string, server *servers.Process) *stage {
	t.Helper()
	s := newStageOn(t, ctx, name, server)
	script, err := os.ReadFile("testdata/dump.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, ctx, server.DSN("app", name)).Exec(ctx, string(script), pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	return s
}

// A backup taken by a reader is the one taken without the proxy, in each format and in
// parallel; what a leader restores of it is the same again.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]*servers.Process{"dump": testenv.SharedPostgres(t), "dumpold": testenv.SharedPostgresVersion(t, 14)} {
		t.Run(name, func(t *testing.T) {
			ctx := testenv.Context(t)
			s := dumpStage(t, ctx, name, server)
			leader := s.leader(s.lead(t, ctx, "dump"))
			for _, args := range [][]string{nil, {"--inserts", "--schema=shop"}, {"--schema-only"}, {"--data-only", "--column-inserts", "--rows-per-insert=50"}, {"--serializable-deferrable"}} {
				want := dump(t, ctx, s.direct(), args...)
				testenv.Holds(t, "dump", want, "PostgreSQL database dump complete")
				testenv.Same(t, "as reader", dump(t, ctx, s.reader(), args...), want)
				testenv.Same(t, "as leader", dump(t, ctx, leader, args...), want)
			}
			want := dump(t, ctx, s.direct())
			restored := leader
			restored.database = name + "_restored"
			for _, f := range []struct{ dump, restore []string }{
				{[]string{"-Fc"}, []string{"--single-transaction", "--exit-on-error"}},
				{[]string{"-Ft"}, nil},
				{[]string{"-Fd", "-j3"}, []string{"-j3"}},
			} {
				file := filepath.Join(t.TempDir(), "dump")
				s.reader().run(t, ctx, "", testenv.Tool(t, "pg_dump"), append(f.dump, "-f", file)...)
				s.drop(t, ctx, restored.database)
				s.exec(t, ctx, "create database "+restored.database+" owner app")
				// The public schema is there already.
				list := restored.run(t, ctx, "", testenv.Tool(t, "pg_restore"), "-l", file)
				keep := regexp.MustCompile(`(?m)^\d+; \d+ \d+ (SCHEMA|COMMENT|ACL) - (SCHEMA )?public.*\n`).ReplaceAllString(list, "")
				listed := filepath.Join(t.TempDir(), "list")
				if err := os.WriteFile(listed, []byte(keep), 0o600); err != nil {
					t.Fatal(err)
				}
				restored.run(t, ctx, "", testenv.Tool(t, "pg_restore"), append(f.restore, "-L", listed, "-d", restored.database, file)...)
				at := s.reader()
				at.database = restored.database
				testenv.Same(t, "restored", strings.ReplaceAll(dump(t, ctx, at), restored.database, name), want)
			}
			s.drop(t, ctx, restored.database)
		})
	}
}

// pg_dumpall reads as a superuser, who may read though he cannot be bound.
func TestDumpAll(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "dumpall")
	all := func(p place) string {
		return dumpVaries.ReplaceAllString(p.run(t, ctx, "", testenv.Tool(t, "pg_dumpall"), "-U", servers.Superuser, "--globals-only"), "")
	}
	want := all(s.direct())
	testenv.Holds(t, "globals", want, "CREATE ROLE app")
	testenv.Same(t, "globals", all(s.reader()), want)
}

// A reader restores nothing, and says why.
func TestRestoreRefused(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "dumprefused")
	file := filepath.Join(t.TempDir(), "dump")
	s.reader().run(t, ctx, "", testenv.Tool(t, "pg_dump"), "-Fc", "-f", file)
	out, err := s.reader().try(ctx, "", testenv.Tool(t, "pg_restore"), "-d", s.name, "--exit-on-error", "--data-only", file)
	if err == nil || !strings.Contains(out, "write refused: this session has no live token of election \"dumprefused\"") {
		t.Errorf("%v %s", err, out)
	}
}

// A pg_restore that loses leadership fails with the server's FATAL, and nothing of its
// transaction lands.
func TestRestoreLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "dumploss")
	s.exec(t, ctx, "set role none")
	holder := s.lead(t, ctx, "restore")
	file := filepath.Join(t.TempDir(), "dump")
	own := connect(t, ctx, s.server.DSN("app", s.name))
	for _, sql := range []string{"create table a as select i from generate_series(1, 1000) i", "create table b as table a"} {
		if _, err := own.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	s.reader().run(t, ctx, "", testenv.Tool(t, "pg_dump"), "-Fc", "-f", file)
	// It restores a, and waits for b.
	tx, err := own.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"delete from a", "commit", "begin", "lock table b"} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := s.leader(holder).try(ctx, "", testenv.Tool(t, "pg_restore"), "-d", s.name, "--data-only", "--single-transaction", file)
		done <- result{out, err}
	}()
	testenv.Eventually(t, "pg_restore waits", func() bool {
		var n int
		err := s.admin.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = $1 and wait_event_type = 'Lock'", s.name).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
	s.resign(t, ctx, holder)
	s.write(t, ctx, s.lead(t, ctx, "other"), "other")
	r := <-done
	if r.err == nil || !strings.Contains(r.out, "stale leader refused: election \"dumploss\"") {
		t.Errorf("%v %s", r.err, r.out)
	}
	var left int
	if err := own.QueryRow(ctx, "select count(*) from a").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows landed (%v)", left, err)
	}
}
