package pgclients

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A book is the transcript of a program in this process.
type book struct {
	bytes.Buffer
}

// show writes what came of something.
func (b *book) show(what string, got any, err error) {
	fmt.Fprintf(b, "%s: ", what)
	if err == nil {
		text := fmt.Sprintf("%v", got)
		if len(text) > 2000 {
			text = fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
		}
		fmt.Fprintln(b, text)
		return
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		fmt.Fprintf(b, "%T %v\n", err, err)
		return
	}
	fmt.Fprintf(b, "%T %s %s | %s | %s | %s | %d | %s %s %s | %s | connection: %t\n", err, e.Code, e.Message, e.Severity, e.Detail, e.Hint,
		e.Position, e.TableName, e.ColumnName, e.ConstraintName, e.Where, pgconn.SafeToRetry(err))
}

// dsn is the URL of a place, with its token in a parameter of its own.
func (p place) dsn(more ...string) string {
	dsn := fmt.Sprintf("postgres://app:secret@%s/%s?sslmode=%s", p.addr, p.database, p.mode())
	if p.ca != "" {
		dsn += "&sslrootcert=" + p.ca
	}
	if p.token != "" {
		dsn += "&fence.token=" + p.token
	}
	return strings.Join(append([]string{dsn}, more...), "&")
}

// traced connects and writes every frame of the connection.
func traced(ctx context.Context, p place, b, frames *book, mode pgx.QueryExecMode) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(p.dsn())
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = mode
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := pgproto3.NewFrontend(r, w)
		f.Trace(frames, pgproto3.TracerOptions{SuppressTimestamps: true, RegressMode: true})
		return f
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		fmt.Fprintf(b, "notice: %s %s %s | %s\n", n.Severity, n.Code, n.Message, n.Hint)
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// framesVary is what differs in frames from run to run: the start-up message, which holds
// the token, the reports of default_transaction_read_only, process numbers, and the numbers
// of tables.
var framesVary = regexp.MustCompile(`(?m)^F\tStartupMessage.*\n|^.*"default_transaction_read_only".*\n|NotificationResponse\t.*?"l"|RowDescription.*`)

var tableNumber = regexp.MustCompile(`(" )\d{5,}( \d+)`)

// steady is the frames of each direction, without what varies. How those of the two lie
// between each other is a matter of time.
func steady(frames string) string {
	var sent, received strings.Builder
	for line := range strings.Lines(frames) {
		if strings.HasPrefix(line, "F") {
			sent.WriteString(line)
		} else {
			received.WriteString(line)
		}
	}
	frames = sent.String() + received.String()
	return framesVary.ReplaceAllStringFunc(frames, func(s string) string {
		switch {
		case strings.HasPrefix(s, "RowDescription"):
			return tableNumber.ReplaceAllString(s, "${1}TABLE${2}")
		case strings.HasPrefix(s, "Notification"):
			return "NotificationResponse"
		}
		return ""
	})
}

// pgxModes are the ways in which pgx runs a query.
var pgxModes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

// pgx sends and receives the same frames through the proxy, in each of its modes.
func TestPgx(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "pgx")
	leader := s.leader(s.lead(t, ctx, "pgx"))
	for _, mode := range pgxModes {
		t.Run(strings.ReplaceAll(mode.String(), " ", "_"), func(t *testing.T) {
			both := func(p place, run func(context.Context, *book, *pgx.Conn)) (string, string) {
				var b, frames book
				c, err := traced(ctx, p, &b, &frames, mode)
				if err != nil {
					t.Fatal(err)
				}
				run(ctx, &b, c)
				if err := c.Close(ctx); err != nil {
					t.Error(err)
				}
				return b.String(), steady(frames.String())
			}
			s.fresh(t, ctx)
			said, frames := both(s.direct(), pgxSession)
			testenv.Holds(t, "session", said, "copy in: 2000", "notify: l payload true", "done\n")
			s.fresh(t, ctx)
			gotSaid, gotFrames := both(leader, pgxSession)
			testenv.Same(t, "session", gotSaid, said)
			testenv.Same(t, "frames", gotFrames, frames)
			t.Logf("%d frames", strings.Count(frames, "\n"))

			said, frames = both(s.direct(), pgxReads)
			for who, p := range map[string]place{"reader": s.reader(), "leader": leader} {
				gotSaid, gotFrames = both(p, pgxReads)
				testenv.Same(t, "reads as "+who, gotSaid, said)
				testenv.Same(t, "frames as "+who, gotFrames, frames)
			}

			refused, _ := both(s.reader(), pgxWrites)
			if n := strings.Count(refused, "25006 write refused: this session has no live token of election \"pgx\""); n != strings.Count(refused, "\n") || n < 8 {
				t.Errorf("refused:\n%s", refused)
			}
		})
	}
}

func pgxRows(ctx context.Context, c *pgx.Conn, sql string, args ...any) (string, error) {
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		v, err := rows.Values()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%v", v)
	}
	return b.String() + " " + rows.CommandTag().String(), rows.Err()
}

func pgxSession(ctx context.Context, b *book, c *pgx.Conn) {
	rows := func(what, sql string, args ...any) {
		got, err := pgxRows(ctx, c, sql, args...)
		b.show(what, got, err)
	}
	exec := func(what, sql string, args ...any) {
		got, err := c.Exec(ctx, sql, args...)
		b.show(what, got, err)
	}
	b.show("parameter", c.PgConn().ParameterStatus("default_transaction_read_only"), nil)
	exec("create", "create table t (id int primary key check (id > 0), name text, raw bytea, n numeric, tags text[], doc jsonb, at timestamptz)")
	rows("insert", "insert into t values ($1, $2, $3, $4, $5, $6, $7) returning *", 1, "one", []byte{0, 1, 254}, "1.50",
		[]string{"a", "c"}, map[string]any{"a": nil}, time.Unix(0, 0).UTC())
	for i := 2; i < 12; i++ {
		exec("insert", "insert into t (id, name, n) values ($1, $2, $3)", i, fmt.Sprint("n", i), pgtype.Numeric{})
	}
	exec("duplicate", "insert into t (id) values ($1)", 1)
	exec("check", "insert into t (id) values ($1)", -1)
	exec("nowhere", "insert into nowhere values ($1)", 1)
	exec("update", "update t set name = upper(name) where id < $1", 4)
	n, err := c.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id", "name"}, pgx.CopyFromSlice(2000, func(i int) ([]any, error) { return []any{i + 100, "copied"}, nil }))
	b.show("copy in", n, err)
	n, err = c.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromRows([][]any{{5000}, {1}}))
	b.show("copy in that fails", n, err)
	n, err = c.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromFunc(func() ([]any, error) { return nil, errors.New("mine") }))
	b.show("copy in, given up", n, err)
	tag, err := c.PgConn().CopyFrom(ctx, strings.NewReader("6000,text\n"), "copy t (id, name) from stdin with (format csv)")
	b.show("copy in, text", tag, err)
	b.show("transaction", "", pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update t set name = 'in' where id = 1")
		b.show("in", "", err)
		b.show("savepoint", "", pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into t (id) values (1)")
			return err
		}))
		_, err = tx.Exec(ctx, "update t set name = 'still in' where id = 2")
		return err
	}))
	rows("names", "select name from t where id < 3 order by id")
	b.show("rolled back", "", pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "delete from t")
		return errors.Join(err, errors.New("no"))
	}))
	b.show("aborted", "", pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select 1 / 0")
		b.show("divide", "", err)
		_, err = tx.Exec(ctx, "select 1")
		return err
	}))
	batch := new(pgx.Batch)
	for i := range 20 {
		batch.Queue("update t set n = $1 where id = $2", i, i+1)
		batch.Queue("select n::text from t where id = $1", i+1)
	}
	pgxBatch(ctx, b, c, "batch", batch)
	batch = new(pgx.Batch)
	batch.Queue("insert into t (id) values (7000)")
	batch.Queue("insert into t (id) values (1)")
	batch.Queue("insert into t (id) values (7001)")
	pgxBatch(ctx, b, c, "batch that fails", batch)
	rows("none landed", "select count(*) from t where id in (7000, 7001)")

	p := c.PgConn().StartPipeline(ctx)
	p.SendPrepare("piped", "update t set name = $1 where id = $2 returning name", nil)
	b.show("sync", "", p.Sync())
	for i := range 5 {
		p.SendQueryPrepared("piped", [][]byte{fmt.Append(nil, "p", i), fmt.Append(nil, i+1)}, nil, nil)
	}
	p.SendFlushRequest()
	p.SendQueryParams("select count(*) from t where name like $1", [][]byte{[]byte("p%")}, nil, nil, nil)
	b.show("sync", "", p.Sync())
	p.SendQueryParams("select 1 / $1", [][]byte{[]byte("0")}, []uint32{pgtype.Int4OID}, nil, nil)
	p.SendQueryParams("select 'skipped'", nil, nil, nil, nil)
	b.show("sync", "", p.Sync())
	p.SendQueryParams("select 'after'", nil, nil, nil, nil)
	p.SendDeallocate("piped")
	b.show("sync", "", p.Sync())
	pgxPipeline(b, p)
	b.show("pipeline", "", p.Close())

	exec("notices", "do $$ begin raise notice 'hello' using hint = 'h'; raise warning 'careful'; end $$")
	exec("listen", "listen l")
	exec("notify", "select pg_notify('l', 'payload')")
	note, err := c.WaitForNotification(ctx)
	if err == nil {
		b.show("notify", fmt.Sprintln(note.Channel, note.Payload, note.PID == c.PgConn().PID()), nil)
	} else {
		b.show("notify", "", err)
	}
	results, err := c.PgConn().Exec(ctx, "insert into t (id) values (8000); update t set name = 'm' where id = 8000; select name from t where id = 8000; create temp table x as select 1").ReadAll()
	b.show("several", len(results), err)
	for _, r := range results {
		b.show("several", fmt.Sprintf("%s %q", r.CommandTag, r.Rows), r.Err)
	}
	exec("discard all", "discard all")
	c.TypeMap()
	pgxReads(ctx, b, c)
	rows("large", "select length($1::text), md5($2::text)", strings.Repeat("x", 500000), strings.Repeat("y", 500000))
	exec("written", "insert into written values ($1)", "session")
}

func pgxReads(ctx context.Context, b *book, c *pgx.Conn) {
	rows := func(what, sql string, args ...any) {
		got, err := pgxRows(ctx, c, sql, args...)
		b.show(what, got, err)
	}
	// pgx forgets the statements that DISCARD ALL took from the server.
	b.show("forget", "", c.DeallocateAll(ctx))
	rows("types", `select 1, 2::bigint, 1.5::float8, 12345678901234567890.123456789::numeric::text, 'text', null, true, '\x00ff'::bytea,
		array[1, null, 3], '{"a": [1, null]}'::jsonb, '2020-02-29'::date::text, '12:34'::time::text, '1 day 2 hours'::interval, '{1,2}'::text[]`)
	rows("parameters", "select $1::int, $2::text, $3::bytea, $4::text, $5::int[], $6::jsonb, $7::timestamptz at time zone 'UTC'", 1, "it's \\", []byte{0, 255}, nil,
		[]int{1, 2}, map[string]any{"k": []int{1}}, time.Unix(0, 0).UTC())
	for i := range 3 {
		rows("again", "select id, name from t where id = $1", i)
	}
	rows("divide", "select 1 / $1::int", 0)
	rows("nowhere", "select * from nowhere")
	rows("bad value", "select $1::text::int", "x")
	rows("bad argument", "select $1::int", struct{}{})
	// Left before its end, on a connection that goes on.
	r, err := c.Query(ctx, "select i from generate_series(1, 20000) i")
	if err == nil {
		r.Next()
		r.Close()
	}
	b.show("left early", r.CommandTag(), errors.Join(err, r.Err()))
	batch := new(pgx.Batch)
	for i := range 10 {
		batch.Queue("select id, name from t where id = $1", i)
	}
	pgxBatch(ctx, b, c, "batch", batch)
	batch = new(pgx.Batch)
	batch.Queue("select 1")
	batch.Queue("select 1 / 0")
	batch.Queue("select 3")
	pgxBatch(ctx, b, c, "batch that fails", batch)
	b.show("cursor", "", pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "declare cur cursor for select id from t order by id"); err != nil {
			return err
		}
		for range 3 {
			rows("fetch", "fetch 5 from cur")
		}
		return nil
	}))
	h := sha256.New()
	tag, err := c.PgConn().CopyTo(ctx, h, "copy (select id, name from t order by id) to stdout")
	b.show("copy out", fmt.Sprintf("%s %x", tag, h.Sum(nil)), err)
	_, err = c.PgConn().CopyTo(ctx, h, "copy (select 1 / 0) to stdout")
	b.show("copy out that fails", "", err)
	d, err := c.Prepare(ctx, "described", "select id, name from t where id = $1")
	b.show("prepare", "", err)
	if err == nil {
		b.show("description", fmt.Sprint(d.ParamOIDs, d.Fields[0].Name, d.Fields[1].DataTypeOID), nil)
	}
	rows("prepared", "described", 1)
	b.show("deallocate", "", c.Deallocate(ctx, "described"))
	results, err := c.PgConn().Exec(ctx, "select 1; select 'two'; select 3 where false; select 1 / 0; select 5").ReadAll()
	b.show("several", len(results), err)
	rows("large", "select length($1::text), md5($2::text)", strings.Repeat("x", 50000), strings.Repeat("y", 50000))
	rows("large back", "select repeat('z', 1000000)")
	_, err = c.Exec(ctx, "set statement_timeout = 100")
	b.show("set", "", err)
	rows("timeout", "select pg_sleep(600)")
	_, err = c.Exec(ctx, "reset statement_timeout")
	b.show("reset", "", err)
	b.show("ping", "", c.Ping(ctx))
	fmt.Fprintln(b, "done")
}

func pgxBatch(ctx context.Context, b *book, c *pgx.Conn, what string, batch *pgx.Batch) {
	r := c.SendBatch(ctx, batch)
	for range batch.Len() {
		rows, err := r.Query()
		got := ""
		if err == nil {
			for rows.Next() {
				v, err := rows.Values()
				got += fmt.Sprintf("%v%v", v, err)
			}
			err = rows.Err()
		}
		b.show(what, got, err)
	}
	b.show(what, "closed", r.Close())
}

func pgxPipeline(b *book, p *pgconn.Pipeline) {
	for {
		r, err := p.GetResults()
		switch r := r.(type) {
		case nil:
			b.show("no result", "", err)
			if err == nil {
				return
			}
		case *pgconn.ResultReader:
			got := r.Read()
			b.show("result", fmt.Sprintf("%s %q", got.CommandTag, got.Rows), got.Err)
		default:
			b.show("result", fmt.Sprintf("%T", r), err)
		}
	}
}

// pgxWrites tries writes that a reader may not make: one line each.
func pgxWrites(ctx context.Context, b *book, c *pgx.Conn) {
	exec := func(what, sql string, args ...any) {
		got, err := c.Exec(ctx, sql, args...)
		b.show(what, got, err)
		if err := c.Ping(ctx); err != nil {
			b.show(what, "out of step", err)
		}
	}
	exec("insert", "insert into written values ('stale')")
	exec("parameters", "insert into written values ($1)", "stale")
	exec("again", "insert into written values ($1)", "stale")
	exec("returning", "delete from written returning what")
	exec("ddl", "create table x (i int)")
	exec("function", "select nextval('no')")
	exec("notify", "notify l")
	n, err := c.CopyFrom(ctx, pgx.Identifier{"written"}, []string{"what"}, pgx.CopyFromRows([][]any{{"stale"}}))
	b.show("copy", n, err)
	batch := new(pgx.Batch)
	batch.Queue("select 1")
	batch.Queue("insert into written values ('stale')")
	batch.Queue("select 2")
	b.show("batch", "", c.SendBatch(ctx, batch).Close())
	b.show("block", "", pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into written values ('stale')")
		return err
	}))
	b.show("read write", "", pgx.BeginTxFunc(ctx, c, pgx.TxOptions{AccessMode: pgx.ReadWrite}, func(pgx.Tx) error { return nil }))
	_, err = c.PgConn().Exec(ctx, "select 1; insert into written values ('stale')").ReadAll()
	b.show("several", "", err)
}
