// Package rig sets the stage of a benchmark: servers, proxies and peers of its own, on free
// ports of the loopback address, in temporary directories, ended with it.
//
// It promises that nothing of the user's is touched, and that a program that is missing is
// an error that says what to install. The tokens that it makes are of elections on a
// server of its own; they are worth nothing to anybody.
package rig

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/bench/load"
	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// Election is the one that sessions are bound to.
const Election = "bench"

// The user, and the database of Postgres.
const (
	appUser  = "app"
	database = "bench"
)

// Options say what a rig has.
type Options struct {
	// Self is the path of fenceproxy.
	Self string
	// Wire is load.Postgres or load.Redis.
	Wire string
	// Peers adds the peers of the wire.
	Peers bool
	// Connections is how many the server and its poolers take; zero means 250.
	Connections int
	// Scale is that of pgbench's tables; zero means 10, negative none.
	Scale int
	// Elections is the URL of the election backend; empty means a Redis of the rig's own.
	Elections string
	// NobodyLeads leaves the election vacant, and the target of bound sessions without a token;
	// there is no other of fenceproxy then.
	NobodyLeads bool
	// Templates is that of servers.PostgresOptions.
	Templates string
}

// A Rig is a server, and the ways to it.
type Rig struct {
	// Targets are direct, the peers, the proxy bound and the proxy unbound.
	Targets []*load.Target
	// Versions are of all programs.
	Versions map[string]string
	// Elections is the URL of the election backend, Backend the backend.
	Elections string
	Backend   election.Backend
	// Server is the server's process, Proxy that of fenceproxy for bound sessions.
	Server, Proxy *servers.Process

	o     Options
	admin string // the socket of Proxy's admin listener
	all   []interface{ Stop() }
}

// Start sets it all up.
func Start(ctx context.Context, o Options) (*Rig, error) {
	if o.Connections == 0 {
		o.Connections = 250
	}
	if o.Scale == 0 {
		o.Scale = 10
	}
	r := &Rig{o: o, Versions: map[string]string{}}
	if err := r.start(ctx); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

// Stop ends it all, in the reverse order.
func (r *Rig) Stop() {
	if r.Backend != nil {
		_ = r.Backend.Close()
	}
	for i := len(r.all) - 1; i >= 0; i-- {
		r.all[i].Stop()
	}
	r.all = nil
}

// add keeps a process that was started.
func (r *Rig) add(name string, p *servers.Process, err error) error {
	if err != nil {
		return err
	}
	r.all = append(r.all, p)
	if p.Version != "" {
		r.Versions[name] = p.Version
	}
	return nil
}

func (r *Rig) start(ctx context.Context) error {
	// Elections have a server of their own, so that they take nothing from the one that is
	// measured.
	if r.Elections = r.o.Elections; r.Elections == "" {
		p, err := servers.StartRedis(ctx, servers.RedisOptions{})
		if err := r.add("elections", p, err); err != nil {
			return err
		}
		r.Elections = "redis://" + p.Addr
	}
	var err error
	if r.Backend, err = open.Backend(ctx, r.Elections, open.Options{}); err != nil {
		return err
	}
	switch r.o.Wire {
	case load.Postgres:
		err = r.postgres(ctx)
	case load.Redis:
		err = r.redis(ctx)
	default:
		err = fmt.Errorf("no wire %q", r.o.Wire)
	}
	if err != nil {
		return err
	}
	return r.proxies(ctx)
}

// target is a way to the server that is one of Targets.
func (r *Rig) target(name string, through *servers.Process) *load.Target {
	t := r.way(name, through)
	r.Targets = append(r.Targets, t)
	return t
}

// way is one to the server through a process; nil means direct.
func (r *Rig) way(name string, through *servers.Process) *load.Target {
	t := &load.Target{Name: name, Processes: map[string]int{bench.Server: r.Server.PID()}, Cannot: map[load.Need]string{}}
	addr := r.Server.Addr
	if through != nil {
		addr = through.Addr
		t.Processes[bench.Proxy] = through.PID()
	}
	t.URL = "redis://" + addr
	if r.o.Wire == load.Postgres {
		t.URL = fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", appUser, addr, database)
	}
	return t
}

func (r *Rig) postgres(ctx context.Context) error {
	n := r.o.Connections
	p, err := servers.StartPostgres(ctx, servers.PostgresOptions{Templates: r.o.Templates, Settings: []string{
		fmt.Sprintf("max_connections=%d", n+20), "shared_buffers=256MB", "max_wal_size=4GB", "checkpoint_timeout=1h", "autovacuum=off",
	}})
	if err := r.add("server", p, err); err != nil {
		return err
	}
	r.Server = p
	if err := installPostgres(ctx, p); err != nil {
		return fmt.Errorf("preparing Postgres: %w", err)
	}
	direct := r.target(bench.Direct, nil)
	if err := load.PreparePostgres(ctx, direct); err != nil {
		return err
	}
	if r.o.Scale > 0 {
		if err := load.PreparePgbench(ctx, direct, r.o.Scale); err != nil {
			return err
		}
	}
	if !r.o.Peers {
		return nil
	}
	for _, mode := range []string{"session", "transaction"} {
		b, err := servers.StartPgBouncer(ctx, p, appUser, mode, n)
		if err := r.add("pgbouncer", b, err); err != nil {
			return err
		}
		t := r.target("pgbouncer-"+mode, b)
		if mode == "transaction" {
			t.Cannot[load.Prepared] = "this PgBouncer has no prepared statements in transaction mode"
			t.Cannot[load.Blocking] = "a pool of transactions has no session to notify"
		}
	}
	h, err := servers.StartHAProxy(ctx, p)
	if err := r.add("haproxy", h, err); err != nil {
		return err
	}
	r.target(bench.HAProxy, h)
	return nil
}

// installPostgres does what an administrator does once.
func installPostgres(ctx context.Context, p *servers.Process) error {
	conn, err := pgx.Connect(ctx, p.DSN(servers.Superuser, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	fence, err := pgfence.InstallSQL(pgfence.InstallOptions{Login: true})
	if err != nil {
		return err
	}
	for _, sql := range []string{fence, "CREATE ROLE " + appUser + " LOGIN", "CREATE DATABASE " + database + " OWNER " + appUser} {
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rig) redis(ctx context.Context) error {
	p, err := servers.StartRedis(ctx, servers.RedisOptions{Args: []string{"--maxclients", "20000"}})
	if err := r.add("server", p, err); err != nil {
		return err
	}
	r.Server = p
	if err := load.PrepareRedis(ctx, r.target(bench.Direct, nil)); err != nil {
		return err
	}
	if !r.o.Peers {
		return nil
	}
	h, err := servers.StartHAProxy(ctx, p)
	if err := r.add("haproxy", h, err); err != nil {
		return err
	}
	r.target(bench.HAProxy, h)
	w, err := servers.StartTwemproxy(ctx, p)
	if err := r.add("twemproxy", w, err); err != nil {
		return err
	}
	r.target(bench.Twemproxy, w).Cannot[load.Blocking] = "twemproxy has no blocking commands"
	return nil
}

// proxies starts fenceproxy, takes the leadership, and adds the bound and the unbound way.
// Each has a process of its own, so that the memory of one is not the other's.
func (r *Rig) proxies(ctx context.Context) error {
	var err error
	if r.admin, err = r.adminSocket(); err != nil {
		return err
	}
	p, err := r.startProxy(ctx, "admin:\n  listen: unix:"+r.admin+"\n")
	if err != nil {
		return err
	}
	r.Proxy = p
	bound := r.target(bench.Fenced, p)
	if r.o.NobodyLeads {
		return nil
	}
	token, err := r.Lead(ctx)
	if err != nil {
		return err
	}
	bound.Election, bound.Token = Election, token
	if p, err = r.StartProxy(ctx); err != nil {
		return err
	}
	r.target(bench.Reader, p).Cannot[load.Writes] = "a session without a token reads"
	return nil
}

// Another starts one more fenceproxy for bound sessions, and returns the way through it,
// which is none of Targets. Stop the process where the rig does not stop soon enough.
func (r *Rig) Another(ctx context.Context) (*servers.Process, *load.Target, error) {
	p, err := r.StartProxy(ctx)
	if err != nil {
		return nil, nil, err
	}
	bound := r.Target(bench.Fenced)
	t := r.way(bench.Fenced, p)
	t.Election, t.Token = bound.Election, bound.Token
	return p, t, nil
}

// StartProxy runs a fenceproxy serve of its own in front of the server.
func (r *Rig) StartProxy(ctx context.Context) (*servers.Process, error) { return r.startProxy(ctx, "") }

// startProxy has more in the configuration.
func (r *Rig) startProxy(ctx context.Context, more string) (*servers.Process, error) {
	control := "redis://" + r.Server.Addr
	if r.o.Wire == load.Postgres {
		control = r.Server.DSN(pgfence.DefaultRole, "postgres")
	}
	p, err := servers.StartProgram(ctx, r.o.Self, "fenceproxy.yaml", func(addr string) string {
		return fmt.Sprintf("elections:\n  backend: %s\nlisteners:\n  - name: bench\n    protocol: %s\n    listen: %s\n    upstream: %s\n    control: %s\n    election: %s\n    max_conns: 20000\nlog:\n  level: warn\ndrain: 1s\n%s",
			r.Elections, r.o.Wire, addr, r.Server.Addr, control, Election, more)
	}, "serve", "-c")
	return p, r.add("fenceproxy", p, err)
}

// Hand gives the leadership to a new term: what the one before has bound is severed when
// the first session of the new one is admitted.
func (r *Rig) Hand(ctx context.Context, from election.Token) (election.Token, error) {
	got, err := r.Backend.Resign(ctx, Election, from, election.ResignOptions{})
	if err != nil {
		return election.Token{}, err
	}
	if got.Status != election.Released {
		return election.Token{}, errors.New("the leadership of the benchmark was lost")
	}
	return r.Lead(ctx)
}

// ErrBusy means that somebody else leads.
var ErrBusy = errors.New("the election of the benchmark is held")

// Lead takes the leadership, for as long as a run may last.
func (r *Rig) Lead(ctx context.Context) (election.Token, error) {
	got, err := r.Backend.Acquire(ctx, Election, election.AcquireOptions{Owner: "bench", TTL: election.MaxTTL})
	if err != nil {
		return election.Token{}, err
	}
	if got.Status != election.Acquired {
		return election.Token{}, ErrBusy
	}
	return got.Token, nil
}

// Target finds one by its name; nil where there is none.
func (r *Rig) Target(name string) *load.Target {
	for _, t := range r.Targets {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Notes are what a report's reader has to know of the rig.
func (r *Rig) Notes() []string {
	var notes []string
	if r.o.Wire == load.Postgres {
		notes = append(notes, "Postgres runs with fsync off and without autovacuum, so that the disk hides nothing of what lies before the server; everybody is trusted, without TLS.")
	} else {
		notes = append(notes, "Redis runs without persistence, password and TLS.")
	}
	if r.o.Peers {
		notes = append(notes, strings.Join([]string{
			"Peers are Debian's packages as they are set by default:",
			map[string]string{
				load.Postgres: "PgBouncer (a pool as large as the server), HAProxy (tcp).",
				load.Redis:    "HAProxy (tcp), twemproxy (one connection to the server, shared by all clients).",
			}[r.o.Wire]}, " "))
	}
	return notes
}
