package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/fenceproxy/fenceproxy/internal/config"
)

type serveCmd struct {
	Config string `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
}

// Help has examples.
func (serveCmd) Help() string {
	return `Runs until SIGTERM or SIGINT, then lets sessions end; a second signal ends it at once. docs/configuration.md describes the file.

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

	var proxies []*proxy
	defer func() {
		for _, p := range proxies {
			p.close()
		}
	}()
	for i := range cfg.Listeners {
		p, err := newProxy(ctx, cfg, &cfg.Listeners[i], backend, log)
		if err != nil {
			return err
		}
		proxies = append(proxies, p)
	}
	log.Info("fenceproxy is serving", "version", versionText(), "elections", cfg.Elections.Backend, "listeners", len(proxies))
	return serveAll(ctx, proxies, log)
}

// serveAll runs the proxies until ctx is done or one of them fails.
func serveAll(ctx context.Context, proxies []*proxy, log *slog.Logger) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var wg sync.WaitGroup
	errs := make([]error, len(proxies))
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
	log.Info("fenceproxy has ended")
	return errors.Join(errs...)
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
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// listen opens a listener's address.
func listen(ctx context.Context, l *config.Listener) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", l.Listen)
	if err != nil {
		return nil, fmt.Errorf("%v: listener %s: %w", l.Pos, l.Name, err)
	}
	return ln, nil
}
