package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/postgres"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

type checkCmd struct {
	Config  string        `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
	Timeout time.Duration `default:"5s" help:"How long to wait for each server."`
}

// Help has examples.
func (checkCmd) Help() string {
	return `Reads the configuration, asks every server that it names, and says what would fail and what to do about it. Changes nothing. Exit code 0 says that nothing would fail, 1 that something would, 2 that the configuration is wrong.

Examples:

  fenceproxy check -c fenceproxy.yaml`
}

// Run checks.
func (c *checkCmd) Run(ctx context.Context, s *streams) error {
	cfg, err := loadConfig(c.Config)
	if err != nil {
		return err
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
	// A driver's error may have several lines.
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	fmt.Fprintf(r.out, "%s  %s\n", mark, text)
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
	id := "fenceproxy-check"
	for _, l := range cfg.Listeners {
		if l.Election != "" {
			id = l.Election
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	switch _, err := b.Status(ctx, id); {
	case err == nil:
		r.ok("%s: answers", at)
	case errors.Is(err, postgres.ErrNotInstalled):
		r.fail("Run fenceproxy install --elections in that database.", "%s: %v", at, err)
	case errors.Is(err, election.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		r.fail(fmt.Sprintf("Start it, or correct elections.backend, %v. Until it answers, writes are refused.", cfg.Elections.Pos), "%s: %v", at, err)
	default:
		r.fail("", "%s: %v", at, err)
	}
}

func (c *checkCmd) listener(ctx context.Context, l *config.Listener, r *checkReport) {
	ctx, cancel := context.WithTimeout(ctx, 3*c.Timeout)
	defer cancel()
	if ln, err := listen(ctx, l); err == nil {
		_ = ln.Close()
		r.ok("%s: can listen on %s", l.Name, l.Listen)
	} else {
		r.warn("Fine if a fenceproxy runs there already; else end what does, or choose another address.", "%s: cannot listen on %s: %v", l.Name, l.Listen, errors.Unwrap(err))
	}
	if err := c.upstream(ctx, l); err != nil {
		r.fail(fmt.Sprintf("Start the server, or correct upstream of the listener at %v.", l.Pos), "%s: upstream %s: %v", l.Name, l.Upstream, err)
	} else {
		r.ok("%s: upstream %s answers as %s", l.Name, l.Upstream, l.Protocol)
	}
	if u, err := url.Parse(l.Control.Reveal()); err == nil && !sameServer(u, l) {
		r.warn("They must lead to the same server, or every bind is refused.", "%s: control leads to %s, upstream to %s", l.Name, u.Host, l.Upstream)
	}
	c.fence(ctx, l, r)
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
		rf, err := openRedisFence(ctx, l)
		if err != nil {
			r.fail("", "%v", err)
			return
		}
		defer rf.Close()
		f = rf
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.Timeout)
	defer cancel()
	fatal := false
	for _, p := range f.Check(ctx) {
		if p.Fatal {
			fatal = true
			r.fail(p.Fix, "%s: %s", l.Name, p.What)
		} else {
			r.warn(p.Fix, "%s: %s", l.Name, p.What)
		}
	}
	if !fatal {
		r.ok("%s: control connection %v: the fence is there and may do its work", l.Name, l.Control)
	}
}

// sameServer reports whether control and upstream seem to be one server.
func sameServer(control *url.URL, l *config.Listener) bool {
	port := control.Port()
	if port == "" {
		port = map[bool]string{true: "5432", false: "6379"}[l.Protocol == config.Postgres]
	}
	host, upstreamPort, err := net.SplitHostPort(l.Upstream)
	if err != nil || port != upstreamPort {
		return false
	}
	loopback := func(h string) bool { return h == "localhost" || net.ParseIP(h).IsLoopback() }
	return control.Hostname() == host || loopback(control.Hostname()) && loopback(host)
}

// upstream says hello in the listener's protocol, as somebody who may not log in.
func (c *checkCmd) upstream(ctx context.Context, l *config.Listener) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", l.Upstream)
	if err != nil {
		return err
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return err
		}
	}
	if l.Protocol == config.Postgres {
		// SSLRequest: any Postgres answers with one letter.
		return hello(conn, "\x00\x00\x00\x08\x04\xd2\x16\x2f", "SN", l.Protocol)
	}
	return hello(conn, "*1\r\n$4\r\nPING\r\n", "+-", l.Protocol)
}

// hello sends bytes and wants the answer to begin with one of the letters.
func hello(conn net.Conn, say, first string, p config.Protocol) error {
	if _, err := io.WriteString(conn, say); err != nil {
		return err
	}
	b, err := bufio.NewReader(conn).ReadByte()
	if err != nil {
		return fmt.Errorf("accepts connections but does not answer: %w", err)
	}
	if strings.IndexByte(first, b) < 0 {
		return fmt.Errorf("answers, but not as %s", p)
	}
	return nil
}
