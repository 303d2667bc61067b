package demo

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election/postgres"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/embedded"
	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// A stage is a server with what the acts need on it.
type stage struct {
	// wire, product, name and holds are for the story: postgres, Postgres, Postgres
	// 15.18, table.
	wire, product, name, holds string
	// direct is the server's URL for a worker, control the proxy's for its fence, and
	// elections that of the election backend.
	direct, control, elections string
	// refusal is the code of the fence's refusals on this wire.
	refusal string
	// read returns what was written.
	read func(ctx context.Context, target string) ([]entry, error)
	// close ends the server.
	close func()
}

// the targets of the two acts.
var targets = [2]string{"with_fence", "without_fence"}

func (d *demo) postgresStage(ctx context.Context) (*stage, error) {
	d.title("Postgres")
	var p *servers.Process
	err := d.busy(ctx, "starting a Postgres server in a temporary directory", func(ctx context.Context) (err error) {
		p, err = servers.StartPostgres(ctx, servers.PostgresOptions{})
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &stage{
		wire: postgresWire, product: "Postgres", name: shortVersion("Postgres", p.Version), holds: "table", refusal: "FP001",
		direct:    p.DSN("app", "postgres"),
		control:   p.DSN(pgfence.DefaultRole, "postgres"),
		elections: p.DSN("app", "postgres"),
		close:     p.Stop,
	}
	s.read = func(ctx context.Context, target string) ([]entry, error) { return readPostgres(ctx, s.direct, target) }
	if err := setUpPostgres(ctx, p.DSN(servers.Superuser, "postgres")); err != nil {
		p.Stop()
		return nil, fmt.Errorf("preparing Postgres: %w", err)
	}
	d.begins(s, p)
	return s, nil
}

// setUpPostgres does what an administrator does once: fenceproxy install, and the
// application's own role and tables.
func setUpPostgres(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	fence, err := pgfence.InstallSQL(pgfence.InstallOptions{Login: true})
	if err != nil {
		return err
	}
	elections, err := postgres.SchemaSQL("")
	if err != nil {
		return err
	}
	statements := []string{fence, elections, "CREATE ROLE app LOGIN"}
	for _, role := range []string{pgfence.DefaultRole, "app"} {
		grant, err := postgres.GrantSQL("", role)
		if err != nil {
			return err
		}
		statements = append(statements, grant)
	}
	for _, target := range targets {
		table := pgx.Identifier{target}.Sanitize()
		statements = append(statements,
			"CREATE TABLE "+table+" (id bigint GENERATED ALWAYS AS IDENTITY, worker text, number bigint, write text)",
			"GRANT SELECT, INSERT ON "+table+" TO app")
	}
	for _, sql := range statements {
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) redisStage(ctx context.Context) (*stage, error) {
	d.title("Redis")
	p, err := servers.StartRedis(ctx, servers.RedisOptions{})
	if err != nil {
		return nil, err
	}
	s := redisAt(p.Addr)
	s.name, s.close = shortVersion("Redis", p.Version), p.Stop
	d.begins(s, p)
	return s, nil
}

func (d *demo) embeddedStage(ctx context.Context) (*stage, error) {
	d.title("Redis, embedded")
	e, err := embedded.Start(ctx)
	if err != nil {
		return nil, err
	}
	s := redisAt(e.Addr())
	s.name, s.close = "embedded Redis", e.Close
	d.narrate("This is not a real Redis: an embedded server (miniredis) inside the demo's own process stands in for it. With redis-server installed (apt-get install redis-server, or make deps) the demo uses that.")
	return s, nil
}

func redisAt(addr string) *stage {
	s := &stage{wire: redisWire, product: "Redis", holds: "list", refusal: "FENCED"}
	s.direct = "redis://" + addr
	s.control, s.elections = s.direct, s.direct
	s.read = func(ctx context.Context, target string) ([]entry, error) { return readRedis(ctx, s.direct, target) }
	return s
}

func (d *demo) begins(s *stage, p *servers.Process) {
	d.line("   " + d.paint(dim, fmt.Sprintf("%s, started for this demo at %s, in %s", s.name, p.Addr, p.Dir)))
}

// shortVersion is a product's name and the version in a program's own words.
func shortVersion(product, text string) string {
	for _, w := range strings.Fields(text) {
		w = strings.TrimPrefix(w, "v=")
		if w != "" && w[0] >= '0' && w[0] <= '9' {
			return product + " " + w
		}
	}
	return product
}

// startProxy starts fenceproxy serve in front of the server and returns it with the
// URL that workers use.
func (s *stage) startProxy(ctx context.Context, d *demo) (*child, string, error) {
	dir, err := os.MkdirTemp("", "fenceproxy-demo-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir) // the proxy reads it at its start only
	port, err := servers.FreePort()
	if err != nil {
		return nil, "", err
	}
	listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	file := filepath.Join(dir, "fenceproxy.yaml")
	text := fmt.Sprintf("elections:\n  backend: %s\nlisteners:\n  - name: demo\n    protocol: %s\n    listen: %s\n    upstream: %s\n    control: %s\n    election: orders\nlog:\n  level: warn\ndrain: 1s\n",
		s.elections, s.wire, listen, hostPort(s.direct), s.control)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, "", err
	}
	proxy, err := startChild("fenceproxy serve", d.self, []string{"serve", "-c", file}, func(lines *bufio.Scanner) {
		for lines.Scan() {
		}
	})
	if err != nil {
		return nil, "", err
	}
	if err := answers(ctx, proxy, listen); err != nil {
		proxy.kill()
		return nil, "", err
	}
	return proxy, strings.Replace(s.direct, hostPort(s.direct), listen, 1), nil
}

// answers waits until the proxy accepts connections.
func answers(ctx context.Context, proxy *child, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-proxy.done:
			return proxy.ended()
		case <-ctx.Done():
			return fmt.Errorf("fenceproxy serve does not answer at %s: %w: %s", addr, err, proxy.said)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// busy does something that takes a while, and shows that time passes.
func (d *demo) busy(ctx context.Context, what string, do func(context.Context) error) error {
	since := time.Now()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			d.end()
			return err
		case <-tick.C:
			d.waiting(what, since)
		}
	}
}
