package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
)

// The wires that the demo shows.
const (
	postgresWire = "postgres"
	redisWire    = "redis"
)

// An entry is one write: a row, or an element of a list.
type entry struct {
	worker string
	number int64
	// write names it: the worker and its count.
	write string
}

// A resource is one connection that a worker writes on.
type resource interface {
	write(context.Context, entry) error
	close()
}

// closed is no connection.
type closed struct{}

func (closed) write(context.Context, entry) error { return errors.New("not connected") }
func (closed) close()                             {}

type pgResource struct {
	conn  *pgx.Conn
	table string
}

// connectPostgres connects; the token, if there is one, goes into the connection
// string's options, as any driver can send it.
func connectPostgres(ctx context.Context, addr, table, electionID string, t election.Token) (resource, error) {
	c, err := pgx.ParseConfig(addr)
	if err != nil {
		return closed{}, fmt.Errorf("connecting: %w", err)
	}
	if !t.IsZero() {
		c.RuntimeParams["options"] = "-c fence.election=" + electionID + " -c fence.token=" + t.Reveal()
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return closed{}, fmt.Errorf("connecting: %w", err)
	}
	return &pgResource{conn, pgx.Identifier{table}.Sanitize()}, nil
}

func (r *pgResource) write(ctx context.Context, e entry) error {
	_, err := r.conn.Exec(ctx, "INSERT INTO "+r.table+" (worker, number, write) VALUES ($1, $2, $3)", e.worker, e.number, e.write)
	return err
}

func (r *pgResource) close() { _ = r.conn.Close(context.Background()) }

// readPostgres returns the rows of a table in the order of their insertion.
func readPostgres(ctx context.Context, dsn, table string) ([]entry, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("reading the table: %w", err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT worker, number, write FROM "+pgx.Identifier{table}.Sanitize()+" ORDER BY id")
	if err != nil {
		return nil, fmt.Errorf("reading the table: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e entry, err error) {
		err = row.Scan(&e.worker, &e.number, &e.write)
		return e, err
	})
}

type redisResource struct {
	client *redis.Client
	conn   *redis.Conn
	list   string
}

// redisOptions are options for one connection that is never replaced in silence.
func redisOptions(addr string) (*redis.Options, error) {
	o, err := redis.ParseURL(addr)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	o.MaxRetries, o.PoolSize, o.DisableIdentity = -1, 1, true
	return o, nil
}

// connectRedis connects; the token, if there is one, goes into the user name.
func connectRedis(ctx context.Context, addr, list, electionID string, t election.Token) (resource, error) {
	o, err := redisOptions(addr)
	if err != nil {
		return closed{}, err
	}
	if !t.IsZero() {
		o.Username, o.Password = "default;election="+electionID+";token="+t.Reveal(), "any"
	}
	client := redis.NewClient(o)
	conn := client.Conn()
	if err := conn.Ping(ctx).Err(); err != nil {
		_ = conn.Close()
		_ = client.Close()
		return closed{}, fmt.Errorf("connecting: %w", err)
	}
	return &redisResource{client, conn, list}, nil
}

func (r *redisResource) write(ctx context.Context, e entry) error {
	return r.conn.RPush(ctx, r.list, e.worker+" "+strconv.FormatInt(e.number, 10)+" "+e.write).Err()
}

func (r *redisResource) close() {
	_ = r.conn.Close()
	_ = r.client.Close()
}

// readRedis returns the elements of a list in the order of their arrival.
func readRedis(ctx context.Context, addr, list string) ([]entry, error) {
	o, err := redisOptions(addr)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(o)
	defer client.Close()
	items, err := client.LRange(ctx, list, 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the list: %w", err)
	}
	entries := make([]entry, len(items))
	for i, item := range items {
		f := strings.Fields(item)
		if len(f) != 3 {
			return nil, fmt.Errorf("reading the list: %q is not an entry", item)
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the list: %w", err)
		}
		entries[i] = entry{f[0], n, f[2]}
	}
	return entries, nil
}

// explain is an error as a program's log would show it, and its code: the SQLSTATE,
// or the first word of a Redis error.
func explain(err error) (text, code string) {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		text = pg.Severity + ": " + pg.Message + " (SQLSTATE " + pg.Code + ")"
		for _, more := range []string{pg.Detail, pg.Hint} {
			if more != "" {
				text += "\n" + more
			}
		}
		return text, pg.Code
	}
	var re redis.Error
	if errors.As(err, &re) {
		code, _, _ = strings.Cut(re.Error(), " ")
	}
	return err.Error(), code
}

// hostPort is where a URL leads.
func hostPort(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return addr
	}
	return u.Host
}
