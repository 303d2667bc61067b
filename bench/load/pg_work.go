package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// PreparePostgres makes the table of the scenarios anew, over a connection that may write
// it. RemovePostgres removes it.
func PreparePostgres(ctx context.Context, t *Target) error {
	return pgRun(ctx, t, "DROP TABLE IF EXISTS "+pgTable,
		"CREATE TABLE "+pgTable+" (id integer PRIMARY KEY, balance integer NOT NULL, filler text) WITH (fillfactor = 70)",
		fmt.Sprintf("INSERT INTO %s SELECT i, 0, repeat('x', 64) FROM generate_series(1, %d) i", pgTable, pgRows),
		"VACUUM ANALYZE "+pgTable)
}

// RemovePostgres removes what PreparePostgres made.
func RemovePostgres(ctx context.Context, t *Target) error {
	return pgRun(ctx, t, "DROP TABLE IF EXISTS "+pgTable)
}

func pgRun(ctx context.Context, t *Target, statements ...string) error {
	conn, err := pgConnect(ctx, t)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("target %s: %w", t.Name, err)
		}
	}
	return nil
}

// Sizes of the scenarios that move much.
const (
	copyLine  = 128      // bytes of a line of COPY FROM STDIN
	copyChunk = 32 << 10 // bytes of a CopyData
	copyBytes = 8 << 20  // of a request
	largeRow  = 8 << 10
)

// pgReads and the like open sessions of prepared statements.
func pgReads(ctx context.Context, t *Target, _ int) (session, error) {
	return pgPrepared(ctx, t, []string{read}, read)
}

func pgWrites(ctx context.Context, t *Target, _ int) (session, error) {
	return pgPrepared(ctx, t, []string{write}, write)
}

func pgPipeline(ctx context.Context, t *Target, _ int) (session, error) {
	var all []string
	for i := range 16 {
		if i%8 == 3 {
			all = append(all, write)
		} else {
			all = append(all, read)
		}
	}
	return pgPrepared(ctx, t, []string{read, write}, all...)
}

func pgPrepared(ctx context.Context, t *Target, prepare []string, statements ...string) (session, error) {
	p, err := openPg(ctx, t, prepare...)
	if err != nil {
		return nil, err
	}
	p.prepared(statements)
	return p, nil
}

// pgMixed makes a write after every four reads.
func pgMixed(ctx context.Context, t *Target, _ int) (session, error) {
	p, err := openPg(ctx, t, read, write)
	if err != nil {
		return nil, err
	}
	p.prepared([]string{write})
	aWrite := p.next
	p.prepared([]string{read})
	p.next = fourToOne(p.next, aWrite)
	return p, nil
}

// fourToOne makes a request of b after every four of a.
func fourToOne(a, b func() ([]byte, int)) func() ([]byte, int) {
	n := 0
	return func() ([]byte, int) {
		if n++; n%5 == 0 {
			return b()
		}
		return a()
	}
}

// pgQuery opens a session that sends one text.
func pgQuery(sql string) opener {
	return func(ctx context.Context, t *Target, _ int) (session, error) {
		p, err := openPg(ctx, t)
		if err != nil {
			return nil, err
		}
		p.query(sql)
		return p, nil
	}
}

// Texts that answer with copyBytes of data.
var (
	largeRows = fmt.Sprintf("SELECT repeat('x', %d) FROM generate_series(1, %d)", largeRow, copyBytes/largeRow)
	copyOut   = "COPY (" + largeRows + ") TO STDOUT"
)

// A pgCopyIn sends data that the server reads whole and keeps nothing of.
type pgCopyIn struct {
	*pgSession
	data []byte
}

func openCopyIn(ctx context.Context, t *Target, _ int) (session, error) {
	p, err := openPg(ctx, t)
	if err != nil {
		return nil, err
	}
	line := append(append([]byte("1\t2\t"), bytes.Repeat([]byte("x"), copyLine-5)...), '\n')
	chunk := message(nil, 'd', bytes.Repeat(line, copyChunk/copyLine))
	return &pgCopyIn{p, chunk}, nil
}

func (p *pgCopyIn) do() error {
	if _, err := p.stream.Write(message(nil, 'Q', []byte("COPY "+pgTable+" FROM STDIN WHERE id IS NULL"), []byte{0})); err != nil {
		return err
	}
	if err := p.until('G', 1); err != nil {
		return err
	}
	for range copyBytes / copyChunk {
		if _, err := p.stream.Write(p.data); err != nil {
			return err
		}
	}
	if _, err := p.stream.Write(message(nil, 'c')); err != nil {
		return err
	}
	return p.until('Z', 1)
}

// A pgNotify waits, in one session, for what it sends in another: a request is done when
// the notification has arrived.
type pgNotify struct{ sender, waiter *pgSession }

func openNotify(ctx context.Context, t *Target, i int) (session, error) {
	sender, err := openPg(ctx, t)
	if err != nil {
		return nil, err
	}
	sender.query(fmt.Sprintf("NOTIFY %s_%d", pgTable, i))
	waiter, err := openPg(ctx, t)
	if err != nil {
		sender.close()
		return nil, err
	}
	waiter.query(fmt.Sprintf("LISTEN %s_%d", pgTable, i))
	n := &pgNotify{sender, waiter}
	if err := waiter.do(); err != nil {
		n.close()
		return nil, fmt.Errorf("target %s: %w", t.Name, err)
	}
	return n, nil
}

func (n *pgNotify) do() error {
	if err := n.sender.do(); err != nil {
		return err
	}
	return n.waiter.until('A', 1)
}

func (n *pgNotify) interrupt() { n.sender.interrupt(); n.waiter.interrupt() }
func (n *pgNotify) close()     { n.sender.close(); n.waiter.close() }

// A pgConnecting connects, reads a row and leaves. It is bound at its connect where the
// target is fenced; that is not asked for.
type pgConnecting struct {
	ctx    context.Context //nolint:containedctx // the life of the session, as its opener got it
	cancel context.CancelFunc
	config *pgconn.Config
}

func openConnecting(ctx context.Context, t *Target, _ int) (session, error) {
	c, err := pgConfig(t)
	if err != nil {
		return nil, err
	}
	s := &pgConnecting{config: c}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s, nil
}

func (s *pgConnecting) do() error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, s.config)
	if err != nil {
		return err
	}
	rs, err := conn.Exec(ctx, "SELECT 1").ReadAll()
	if err == nil && len(rs) != 1 {
		err = errors.New("no row")
	}
	return errors.Join(err, conn.Close(ctx))
}

func (s *pgConnecting) interrupt() { s.cancel() }
func (s *pgConnecting) close()     { s.cancel() }

// A pgIdle does nothing but be there.
type pgIdle struct{ conn *pgconn.PgConn }

func openIdlePg(ctx context.Context, t *Target, _ int) (session, error) {
	conn, err := pgConnect(ctx, t)
	if err != nil {
		return nil, err
	}
	return &pgIdle{conn}, nil
}

func (s *pgIdle) do() error  { return nil }
func (s *pgIdle) interrupt() {}
func (s *pgIdle) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.conn.Close(ctx)
}
