package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/internal/trim"
	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

type serveCmd struct {
	Config string `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
}

// Help has examples.
func (serveCmd) Help() string {
	return `Runs until SIGTERM or SIGINT, then lets sessions end; a second signal ends it at once. SIGHUP reads certificates and their keys again, which happens by itself within ten seconds too. docs/configuration.md describes the file.

Examples:

  fenceproxy check -c fenceproxy.yaml && fenceproxy serve -c fenceproxy.yaml`
}

// Run serves.
func (c *serveCmd) Run(ctx context.Context, s *streams) error {
	cfg, err := loadConfig(c.Config)
	if err != nil {
		return err
	}
	log := newLogger(s.err, cfg.Log)
	backend, err := openElections(ctx, cfg.Elections.Backend)
	if err != nil {
		return fmt.Errorf("%v: elections.backend: %w", cfg.Elections.Pos, err)
	}
	defer backend.Close()

	adm, err := openAdmin(ctx, &cfg.Admin, log)
	if err != nil {
		return err
	}
	defer adm.close()
	adm.elections(backend)
	gates, err := openGates(cfg, backend, adm, log)
	if err != nil {
		return err
	}
	defer gates.close()
	defer context.AfterFunc(ctx, gates.close)() // consumers are told while requests drain

	own := &campaigns{backend: backend, log: log}
	all := startCarriers(cfg, log)
	defer all.stop() // once the proxies' sessions have ended
	var proxies []*proxy
	defer func() {
		for _, p := range proxies {
			p.close()
		}
	}()
	for i := range cfg.Listeners {
		p, err := newProxy(ctx, cfg, &cfg.Listeners[i], backend, own, gates, all.of(cfg.Listeners[i].Protocol), log)
		if err != nil {
			return err
		}
		proxies = append(proxies, p)
	}
	log.Info("fenceproxy is serving", "version", versionText(), "elections", cfg.Elections.Backend, "listeners", len(proxies))
	err = own.around(ctx, adm, cfg, func(ctx context.Context, drained func()) error {
		return serveAll(ctx, cfg, backend, proxies, adm, drained, log)
	})
	log.Info("fenceproxy has ended")
	return err
}

// startTimeout bounds each question that serve asks at its start.
const startTimeout = 5 * time.Second

// warnOfElections logs what is wrong with the election backend, as proxy.warn does of
// the fence.
func warnOfElections(ctx context.Context, cfg *config.Config, b election.Backend, log *slog.Logger) {
	asking, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if fix, err := askElections(asking, cfg, b); err != nil && ctx.Err() == nil {
		log.Error("check: the election backend does not answer as it should", "elections", cfg.Elections.Backend, "err", err, "fix", fix)
	}
}

// serveAll runs the proxies until ctx is done or one of them fails. It calls drained when their
// sessions have ended; until then the admin listener answers.
func serveAll(ctx context.Context, cfg *config.Config, b election.Backend, proxies []*proxy, adm *adminListener, drained func(), log *slog.Logger) error {
	administered, closeAdmin := context.WithCancel(context.WithoutCancel(ctx))
	defer closeAdmin()
	ctx, end := context.WithCancel(ctx)
	defer end()
	var wg, admin sync.WaitGroup
	errs := make([]error, len(proxies))
	wg.Go(func() { warnOfElections(ctx, cfg, b, log) })
	wg.Go(func() { trim.Run(ctx) })
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	var certs []tlsconf.Reloader
	for _, p := range proxies {
		certs = append(certs, p.certs...)
	}
	var admErr error
	if adm != nil {
		if adm.cert != nil {
			certs = append(certs, adm.cert)
		}
		admin.Go(func() {
			admErr = adm.serve(administered)
			end() // as with any listener
		})
	}
	wg.Go(func() { tlsconf.Watch(ctx, 0, hangup, log, certs...) })
	for i, p := range proxies {
		wg.Go(func() { p.warn(ctx) })
		wg.Go(func() {
			p.log.Info("listening", "addr", p.listener.Addr().String(), "upstream", p.Upstream)
			errs[i] = p.wire.Serve(ctx, p.listener)
			end() // one listener that fails ends them all: half a proxy is a riddle
		})
	}
	<-ctx.Done()
	log.Info("fenceproxy is ending: no new connections, sessions drain")
	wg.Wait()
	drained()
	closeAdmin()
	admin.Wait()
	return errors.Join(append(errs, admErr)...)
}

// loadConfig reads a configuration file with the process's environment.
func loadConfig(file string) (*config.Config, error) {
	cfg, err := config.Load(file, os.LookupEnv)
	var mistakes config.Mistakes
	if err != nil && !errors.As(err, &mistakes) {
		return nil, &exitError{exitUsage, err}
	}
	return cfg, err
}

func newLogger(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // the configuration allows no other words
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: flatten}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// flatten makes one line of a value: a driver's error may have several.
func flatten(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		if strings.ContainsAny(v, "\r\n") {
			a.Value = slog.StringValue(oneLine(v))
		}
	case error:
		a.Value = slog.StringValue(oneLine(v.Error()))
	}
	return a
}

// listen opens a listener's address.
func listen(ctx context.Context, l *config.Listener) (net.Listener, error) {
	ln, err := listenAt(ctx, l.Listen, l.SocketMode, l.Protocol.SocketPath)
	if err != nil {
		return nil, fmt.Errorf("%v: listener %s: %w", l.Pos, l.Name, err)
	}
	return ln, nil
}

// listenAt opens host:port, or a Unix socket where socketPath finds one in the address.
func listenAt(ctx context.Context, addr string, mode fs.FileMode, socketPath func(addr string) (string, bool)) (net.Listener, error) {
	if path, ok := socketPath(addr); ok {
		return protocols.ListenUnix(ctx, path, mode)
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", addr)
}
