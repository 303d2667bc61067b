package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5/pgconn"
)

// The table of the sessions, and how many rows it has.
const (
	pgTable = "fenceproxy_bench"
	pgRows  = 100000
)

// Prepared statements, each with one parameter, a row's id.
const (
	read  = "r"
	write = "w"
)

var pgStatements = map[string]string{
	read:  "SELECT balance FROM " + pgTable + " WHERE id = $1",
	write: "UPDATE " + pgTable + " SET balance = balance + 1 WHERE id = $1",
}

// pgConfig is how a target is connected to.
func pgConfig(t *Target) (*pgconn.Config, error) {
	c, err := pgconn.ParseConfig(t.URL)
	if err != nil {
		return nil, fmt.Errorf("target %s: its URL is not one of Postgres", t.Name) // the text may hold a password
	}
	if t.Fenced() {
		c.RuntimeParams["fence.token"] = t.Token.Reveal()
		if t.Election != "" {
			c.RuntimeParams["fence.election"] = t.Election
		}
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = patience
	}
	return c, nil
}

// pgConnect connects to a target, and makes sure that a session that is to be bound is.
func pgConnect(ctx context.Context, t *Target) (*pgconn.PgConn, error) {
	c, err := pgConfig(t)
	if err != nil {
		return nil, err
	}
	conn, err := pgconn.ConnectConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", t.Name, err)
	}
	if t.Fenced() {
		if err := pgBound(ctx, conn); err != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
			return nil, fmt.Errorf("target %s: %w", t.Name, err)
		}
	}
	return conn, nil
}

var errNotBound = errors.New("the session is not bound: is the token live, and is this a fenceproxy?")

func pgBound(ctx context.Context, conn *pgconn.PgConn) error {
	rs, err := conn.Exec(ctx, "SHOW fence.status").ReadAll()
	if err != nil {
		return fmt.Errorf("%w (%w)", errNotBound, err)
	}
	if len(rs) != 1 || len(rs[0].Rows) != 1 || string(rs[0].Rows[0][0]) != "bound" {
		return errNotBound
	}
	return nil
}

// A pgSession makes requests of prepared bytes.
type pgSession struct {
	stream stream
	buf    []byte
	have   int // bytes of buf that hold something
	skip   int // bytes to come of a message that was seen
	// next writes the next request, and says how many ReadyForQuery answer it.
	next func() (request []byte, ready int)
}

// openPg connects, prepares the statements of these names, and takes the connection over.
func openPg(ctx context.Context, t *Target, statements ...string) (*pgSession, error) {
	conn, err := pgConnect(ctx, t)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*pgSession, error) {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("target %s: %w", t.Name, err)
	}
	for _, name := range statements {
		if _, err := conn.Prepare(ctx, name, pgStatements[name], nil); err != nil {
			return fail(err)
		}
	}
	h, err := conn.Hijack()
	if err != nil {
		return fail(err)
	}
	s, err := newStream(h.Conn)
	if err != nil {
		_ = h.Conn.Close()
		return nil, fmt.Errorf("target %s: %w", t.Name, err)
	}
	return &pgSession{stream: s, buf: make([]byte, 64<<10)}, nil
}

func (p *pgSession) do() error {
	request, ready := p.next()
	if _, err := p.stream.Write(request); err != nil {
		return err
	}
	return p.until('Z', ready)
}

func (p *pgSession) interrupt() { p.stream.interrupt() }

func (p *pgSession) close() {
	_, _ = p.stream.Write([]byte{'X', 0, 0, 0, 4})
	_ = p.stream.Close()
}

// until reads messages until n of the kind have come. An error of the server's is an error.
func (p *pgSession) until(kind byte, n int) error {
	var refused error
	for {
		at := min(p.skip, p.have)
		p.skip -= at
		for p.skip == 0 && n > 0 && p.have-at >= 5 {
			m := p.buf[at:p.have]
			size := 1 + int(binary.BigEndian.Uint32(m[1:5]))
			if size < 5 {
				return fmt.Errorf("a message of %d bytes", size)
			}
			if m[0] == 'E' {
				if len(m) < size && size <= len(p.buf) {
					break // all of it is wanted
				}
				refused = &refusedError{pgErrorText(m[5:min(size, len(m))])}
			}
			if m[0] == kind {
				n--
			}
			p.skip = max(0, size-len(m))
			at += size - p.skip
		}
		p.have = copy(p.buf, p.buf[at:p.have])
		if n == 0 || refused != nil && kind != 'Z' {
			return refused
		}
		got, err := p.stream.Read(p.buf[p.have:])
		if err != nil {
			return err
		}
		p.have += got
	}
}

// pgErrorText is the code and the message of an ErrorResponse.
func pgErrorText(fields []byte) string {
	var code, message string
	for len(fields) > 1 {
		end := 1
		for end < len(fields) && fields[end] != 0 {
			end++
		}
		switch fields[0] {
		case 'C':
			code = string(fields[1:end])
		case 'M':
			message = string(fields[1:end])
		}
		fields = fields[min(end+1, len(fields)):]
	}
	return fmt.Sprintf("%s (SQLSTATE %s)", message, code)
}

// Messages of the extended query protocol, as far as a session needs them.

func message(b []byte, kind byte, body ...[]byte) []byte {
	size := 4
	for _, p := range body {
		size += len(p)
	}
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	for _, p := range body {
		b = append(b, p...)
	}
	return b
}

// execute appends Bind and Execute of a prepared statement with one integer, and returns
// where the integer is.
func execute(b []byte, statement string) (out []byte, parameter int) {
	body := append([]byte{0}, statement...)
	body = append(body, 0,
		0, 1, 0, 1, // one format: binary
		0, 1, 0, 0, 0, 4, 0, 0, 0, 0, // one parameter of four bytes
		0, 0) // results as texts
	b = message(b, 'B', body)
	parameter = len(b) - 2 - 4
	return message(b, 'E', []byte{0, 0, 0, 0, 0}), parameter
}

// prepared makes requests of so many statements each, the kinds in turn, with one Sync.
func (p *pgSession) prepared(statements []string) {
	var b []byte
	var at []int
	for _, s := range statements {
		var param int
		b, param = execute(b, s)
		at = append(at, param)
	}
	b = message(b, 'S')
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // which row is no secret
	p.next = func() ([]byte, int) {
		for _, i := range at {
			binary.BigEndian.PutUint32(b[i:], uint32(1+random.IntN(pgRows)))
		}
		return b, 1
	}
}

// query makes the request of one text, again and again.
func (p *pgSession) query(sql string) {
	b := message(nil, 'Q', []byte(sql), []byte{0})
	p.next = func() ([]byte, int) { return b, 1 }
}
