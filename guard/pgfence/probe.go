package pgfence

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Kind is what a server says of itself.
type Kind struct {
	// Standby: it is in recovery.
	Standby bool
	// ReadOnly: sessions begin read-only (default_transaction_read_only).
	ReadOnly bool
	// Started tells servers apart, and two runs of one server.
	Started string
}

// A Prober asks servers what they are, with the role, the password and the TLS settings
// of a control DSN. It keeps one connection to each server that it has asked.
//
// It does not say that a server is of the cluster whose fence the control connection
// keeps: a bind says that.
type Prober struct {
	config *pgx.ConnConfig

	mu     sync.Mutex
	conns  map[string]*pgx.Conn // by address; none while it is in use
	closed bool
}

// maxProbed bounds the connections that are kept.
const maxProbed = 32

// NewProber makes a Prober for a control DSN. It connects to nothing yet.
func NewProber(dsn string) (*Prober, error) {
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		// What ParseConfig says may hold a part of the password.
		return nil, fmt.Errorf("control connection: %w", ErrDSN)
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "fenceproxy probe"
	}
	c.ValidateConnect = nil // any kind may answer
	c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return &Prober{config: c, conns: make(map[string]*pgx.Conn)}, nil
}

// Probe asks the server at addr (ip:port, or the path of a Unix socket). host is the name
// that TLS certificates are checked for; where it is empty, addr is a Unix socket.
func (p *Prober) Probe(ctx context.Context, host, addr string) (Kind, error) {
	conn, kept, err := p.take(ctx, host, addr)
	if err != nil {
		return Kind{}, fmt.Errorf("asking what the server is: %w", err)
	}
	kind, err := ask(ctx, conn)
	if err != nil && kept && ctx.Err() == nil {
		// The server may have been started again since.
		end(conn)
		if conn, err = p.connect(ctx, host, addr); err == nil {
			kind, err = ask(ctx, conn)
		}
	}
	if err != nil {
		end(conn)
		return Kind{}, fmt.Errorf("asking what the server is: %w", err)
	}
	p.give(addr, conn)
	return kind, nil
}

func ask(ctx context.Context, conn *pgx.Conn) (k Kind, err error) {
	err = conn.QueryRow(ctx, `SELECT pg_catalog.pg_is_in_recovery(),
		pg_catalog.current_setting('default_transaction_read_only') = 'on', `+started).Scan(&k.Standby, &k.ReadOnly, &k.Started)
	return k, err
}

func (p *Prober) take(ctx context.Context, host, addr string) (conn *pgx.Conn, kept bool, err error) {
	p.mu.Lock()
	conn = p.conns[addr]
	delete(p.conns, addr)
	p.mu.Unlock()
	if conn != nil {
		return conn, true, nil
	}
	conn, err = p.connect(ctx, host, addr)
	return conn, false, err
}

func (p *Prober) give(addr string, conn *pgx.Conn) {
	p.mu.Lock()
	keep := !p.closed && p.conns[addr] == nil && len(p.conns) < maxProbed
	if keep {
		p.conns[addr] = conn
	}
	p.mu.Unlock()
	if !keep {
		end(conn)
	}
}

func (p *Prober) connect(ctx context.Context, host, addr string) (*pgx.Conn, error) {
	c := p.config.Copy()
	if strings.HasPrefix(addr, "/") {
		c.Host, c.Port, c.TLSConfig, c.Fallbacks = "/", 5432, nil, nil
		c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", addr)
		}
		return pgx.ConnectConfig(ctx, c)
	}
	_, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, err
	}
	var same []*pgconn.FallbackConfig // sslmode=prefer is two settings of one host
	for _, f := range c.Fallbacks {
		if f.Host == p.config.Host && f.Port == p.config.Port {
			same = append(same, &pgconn.FallbackConfig{Host: host, Port: uint16(port), TLSConfig: named(f.TLSConfig, host)})
		}
	}
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = host, uint16(port), named(c.TLSConfig, host), same
	// The address that the session will go to, not another one of the name's.
	c.LookupFunc = func(context.Context, string) ([]string, error) { return []string{addr}, nil }
	return pgx.ConnectConfig(ctx, c)
}

// named is c for another host's name, where it looks at names.
func named(c *tls.Config, host string) *tls.Config {
	if c != nil && c.ServerName != "" {
		c.ServerName = host
	}
	return c
}

// Close ends the connections that are kept.
func (p *Prober) Close() {
	p.mu.Lock()
	p.closed = true
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		end(c)
	}
}

func end(c *pgx.Conn) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx)
}
