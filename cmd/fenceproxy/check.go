package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/guard/redissentinel"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

type checkCmd struct {
	Config  string        `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
	Timeout time.Duration `default:"5s" help:"How long to wait for each server."`

	Explain    *string `placeholder:"TEXT" help:"Say which rules and elections decide on this statement or command, and nothing else."`
	Listener   string  `placeholder:"NAME" help:"With --explain: the listener whose rules are meant, where several have some."`
	SearchPath *string `placeholder:"SCHEMAS" help:"With --explain, of Postgres: where names without a schema are looked for (default: public)."`
}

// Help has examples.
func (checkCmd) Help() string {
	return `Reads the configuration, asks every server that it names, and says what would fail and what to do about it. Changes nothing. Exit code 0 says that nothing would fail, 1 that something would, 2 that the command line or the configuration is wrong. With --explain, 0 says that somebody may send it, 3 that nobody may, 4 that the server, which has to be asked about commands of Redis and Valkey, did not answer.

Examples:

  fenceproxy check -c fenceproxy.yaml
  fenceproxy check -c fenceproxy.yaml --explain "UPDATE billing.invoices SET paid = true"
  fenceproxy check -c fenceproxy.yaml --listener cache --explain "RENAME orders:7:a orders:8:a"`
}

// Run checks.
func (c *checkCmd) Run(ctx context.Context, s *streams) error {
	if c.Explain == nil && (c.Listener != "" || c.SearchPath != nil) {
		return usage("--listener and --search-path go with --explain")
	}
	cfg, err := loadConfig(c.Config)
	if err != nil {
		return err
	}
	if c.Explain != nil {
		return c.explain(ctx, cfg, s.out)
	}
	r := &checkReport{out: s.out}
	r.ok("%s: no mistakes (listeners: %d)", cfg.File, len(cfg.Listeners))
	c.elections(ctx, cfg, r)
	for i := range cfg.Listeners {
		c.listener(ctx, &cfg.Listeners[i], r)
	}
	if r.failed > 0 {
		return &exitError{exitFailure, fmt.Errorf("%d of these would fail", r.failed)}
	}
	return nil
}

// A checkReport prints what was found, a line each.
type checkReport struct {
	out    io.Writer
	failed int
}

func (r *checkReport) ok(format string, args ...any) { r.line("ok  ", "", format, args...) }

func (r *checkReport) warn(fix, format string, args ...any) { r.line("warn", fix, format, args...) }

func (r *checkReport) fail(fix, format string, args ...any) {
	r.failed++
	r.line("fail", fix, format, args...)
}

func (r *checkReport) line(mark, fix, format string, args ...any) {
	fmt.Fprintf(r.out, "%s  %s\n", mark, oneLine(fmt.Sprintf(format, args...)))
	if fix != "" {
		fmt.Fprintf(r.out, "      %s\n", fix)
	}
}

// elections asks the election backend for a status, which changes nothing.
func (c *checkCmd) elections(ctx context.Context, cfg *config.Config, r *checkReport) {
	at := fmt.Sprintf("elections at %v", cfg.Elections.Backend)
	b, err := openElections(ctx, cfg.Elections.Backend)
	if err != nil {
		r.fail(fmt.Sprintf("Correct elections.backend, %v.", cfg.Elections.Pos), "%s: %v", at, err)
		return
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if fix, err := askElections(ctx, cfg, b); err != nil {
		r.fail(fix, "%s: %v", at, err)
		return
	}
	r.ok("%s: answers", at)
}

// askElections asks the backend for a status, and says what to do about an error.
func askElections(ctx context.Context, cfg *config.Config, b election.Backend) (fix string, err error) {
	id := "fenceproxy-check"
	for _, l := range cfg.Listeners {
		if l.Election != "" {
			id = l.Election
		}
	}
	if _, err = b.Status(ctx, id); err == nil {
		return "", nil
	}
	fix = electionFix(cfg.Elections.Backend, err)
	if fix == "" && (errors.Is(err, election.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)) {
		fix = fmt.Sprintf("Start it, or correct elections.backend, %v. Until it answers, writes are refused.", cfg.Elections.Pos)
	}
	return fix, err
}

func (c *checkCmd) listener(ctx context.Context, l *config.Listener, r *checkReport) {
	ctx, cancel := context.WithTimeout(ctx, 4*c.Timeout)
	defer cancel()
	switch ln, err := listen(ctx, l); {
	case err == nil:
		_ = ln.Close()
		r.ok("%s: can listen on %s", l.Name, l.Listen)
	case !inUse(err):
		r.fail(fmt.Sprintf("Choose another address to listen on for the listener at %v.", l.Pos), "%s: cannot listen on %s: %v", l.Name, l.Listen, errors.Unwrap(err))
	default:
		r.warn("Fine if a fenceproxy runs there already; else end what does, or choose another address.", "%s: cannot listen on %s: %v", l.Name, l.Listen, errors.Unwrap(err))
	}
	checkTLS(l, r)
	c.rules(l, r)
	same := false
	u, err := url.Parse(l.Control.Reveal())
	for _, addr := range l.Upstreams {
		one := l.SplitUpstream(addr)
		same = same || err != nil || strings.Contains(u.Host, ",") || sameServer(u, one)
		if how, err := askUpstream(ctx, one, c.Timeout); err != nil {
			r.fail(upstreamFix(one, err), "%s: upstream %s: %v", l.Name, addr, err)
		} else {
			r.ok("%s: upstream %s answers as %s%s", l.Name, addr, l.Protocol, how)
		}
	}
	if l.Several() {
		c.kinds(ctx, l, r)
	}
	if one, known := sameRun(ctx, l, c.Timeout); known {
		same = true
		if !one {
			r.fail(differentFix, "%s: %v", l.Name, errDifferent)
		}
	}
	if !same && l.Group == config.NoGroup {
		r.warn(differentFix, "%s: control leads to %s, upstream to %s", l.Name, cmp.Or(u.Host, u.Query().Get("host"), u.Path), l.Upstream)
	}
	c.fence(ctx, l, r)
}

// kinds asks each of several servers what it is, as the proxy does for each session.
func (c *checkCmd) kinds(ctx context.Context, l *config.Listener, r *checkReport) {
	prober, err := pgfence.NewProber(l.Control.Reveal())
	if err != nil {
		return // reported with the fence
	}
	defer prober.Close()
	suitable := false
	for _, addr := range l.Upstreams {
		kind, err := pg.Kind(ctx, prober, addr, c.Timeout)
		if err != nil {
			r.fail("The control role, with the password of control, must be let in to each server: that is how the proxy finds out which of them is the primary.",
				"%s: upstream %s: %v", l.Name, addr, err)
			continue
		}
		what := map[bool]string{true: "a standby", false: "a primary"}[kind.Standby]
		if kind.ReadOnly {
			what += ", read-only by default"
		}
		why := l.TargetSessionAttrs.Unsuited(kind)
		suitable = suitable || why == ""
		if why != "" {
			what += "; not chosen now"
		}
		r.ok("%s: upstream %s is %s", l.Name, addr, what)
	}
	if !suitable && l.TargetSessionAttrs != pg.PreferStandbySession {
		r.fail(fmt.Sprintf("Correct target_session_attrs or upstream of the listener at %v.", l.Pos), "%s: no upstream is %s", l.Name, l.TargetSessionAttrs)
	}
}

// fence asks the fence what is wrong with it.
func (c *checkCmd) fence(ctx context.Context, l *config.Listener, r *checkReport) {
	var f fence
	if l.Protocol == config.Postgres {
		pf, err := openPostgresFence(ctx, l)
		if err != nil {
			r.fail("", "%v", err)
			return
		}
		defer pf.Close()
		f = pf
	} else {
		up, err := tlsconf.OpenClient(*l.UpstreamTLS)
		if err != nil {
			return // reported with the certificates
		}
		if l.Group == config.Cluster {
			cf, err := openClusterFence(ctx, l, up, slog.New(slog.DiscardHandler))
			if err != nil {
				r.fail("", "%v", err)
				return
			}
			defer cf.Close()
			c.clusterNodes(ctx, l, cf, r)
			c.problems(ctx, l, cf, r)
			return
		}
		rf, err := openRedisFence(ctx, l, up, slog.New(slog.DiscardHandler))
		if err != nil {
			r.fail("", "%v", err)
			return
		}
		defer rf.Close()
		f = rf
		if !c.primary(ctx, l, rf, r) {
			return
		}
	}
	c.problems(ctx, l, f, r)
}

// problems reports what would keep a fence from working.
func (c *checkCmd) problems(ctx context.Context, l *config.Listener, f fence, r *checkReport) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.Timeout)
	defer cancel()
	if err := askControl(ctx, l, f); err != nil {
		r.fail(controlFix(l, err), "%s: control connection %v: %v", l.Name, l.Control, err)
		return
	}
	fatal, rules := false, false
	for _, p := range append(f.Check(ctx), scramProblems(ctx, l, f, c.Timeout)...) {
		fix, isRules := controlAdvice(l, p)
		rules = rules || isRules
		if p.Fatal {
			fatal = true
			r.fail(fix, "%s: %s", l.Name, p.What)
		} else {
			r.warn(fix, "%s: %s", l.Name, p.What)
		}
	}
	if rules {
		// Once, on a line of its own, to be pasted.
		fmt.Fprintf(r.out, "\n%s\n\n", aclCommand(l))
	}
	if !fatal {
		r.ok("%s: control connection %v: the fence is there and may do its work", l.Name, l.Control)
	}
}

// primary says which server the sentinels name, where there are any. It reports whether there
// is a server to ask more.
func (c *checkCmd) primary(ctx context.Context, l *config.Listener, f *redisfence.Fence, r *checkReport) bool {
	p := f.Primary()
	if p == nil {
		return true
	}
	asking, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	addr, err := p.Addr(asking)
	if err != nil {
		troubles := p.Troubles(ctx)
		if len(troubles) == 0 || !errors.Is(err, redissentinel.ErrUnknown) {
			return true // the control connection, which goes to the primary, has the reason
		}
		for i, t := range troubles {
			fix := ""
			if i == len(troubles)-1 {
				fix = sentinelFix(l)
			}
			r.fail(fix, "%s: %v", l.Name, t)
		}
		return false
	}
	one := l.SplitUpstream(addr)
	if _, err := askUpstream(asking, one, c.Timeout); err != nil {
		r.fail(upstreamFix(one, err), "%s: the primary %s: %v", l.Name, addr, err)
		return true
	}
	r.ok("%s: the sentinels name %s, which answers as %s", l.Name, addr, l.Protocol)
	return true
}

func sentinelFix(l *config.Listener) string {
	return fmt.Sprintf("Correct the sentinels or master_name in upstream and control of the listener at %v.", l.Pos)
}

// sameServer reports whether control and upstream seem to be one server.
func sameServer(control *url.URL, l *config.Listener) bool {
	if path, ok := l.Protocol.SocketPath(l.Upstream); ok {
		return sameSocket(control, path)
	}
	if control.Hostname() == "" { // a Unix socket's
		host, _, err := net.SplitHostPort(l.Upstream)
		return err == nil && isLoopback(host)
	}
	port := control.Port()
	if port == "" {
		port = map[bool]string{true: "5432", false: "6379"}[l.Protocol == config.Postgres]
	}
	host, upstreamPort, err := net.SplitHostPort(l.Upstream)
	if err != nil || port != upstreamPort {
		return false
	}
	return control.Hostname() == host || isLoopback(control.Hostname()) && isLoopback(host)
}

func isLoopback(h string) bool { return h == "localhost" || net.ParseIP(h).IsLoopback() }

// sameSocket reports whether control may lead to the server of the socket at path.
func sameSocket(control *url.URL, path string) bool {
	if control.Scheme == "unix" {
		return filepath.Clean(control.Path) == path
	}
	q := control.Query()
	dir, port := q.Get("host"), q.Get("port")
	if dir == "" {
		return isLoopback(control.Hostname())
	}
	if port == "" {
		port = "5432"
	}
	theirs, ok := pg.SocketPath(dir + ":" + port)
	return ok && theirs == path
}

// askUpstream says hello in the listener's protocol, as somebody who may not log in. how
// is what there is to say about the connection.
func askUpstream(ctx context.Context, l *config.Listener, timeout time.Duration) (how string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if l.Protocol == config.Postgres {
		return askPostgres(ctx, l, timeout)
	}
	return askRedis(ctx, l)
}
