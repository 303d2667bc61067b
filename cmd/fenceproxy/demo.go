package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/internal/demo"
)

type demoCmd struct {
	Postgres bool `help:"Show the Postgres half only."`
	Redis    bool `help:"Show the Redis half only."`
	Embedded bool `help:"Show the Redis half on an embedded server, even where redis-server is installed."`
	Fast     bool `help:"Short leases: half the time, and easily upset on a busy machine."`
	NoColor  bool `help:"No colours (so does the environment variable NO_COLOR)."`
}

// Help says what there is to see.
func (demoCmd) Help() string {
	return `Starts Postgres and Redis servers of its own on free ports, a proxy, and two workers that campaign for one leadership and write. The leader is stopped, the other takes over, the first is continued: its write is refused. Then the same without the proxy. Exit code 0 says that all of this was really observed.

Examples:

  fenceproxy demo
  fenceproxy demo --redis --fast`
}

// Run shows it.
func (c *demoCmd) Run(ctx context.Context, s *streams) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	terminal := false
	if f, ok := s.out.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			terminal = info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
		}
	}
	return demo.Run(ctx, demo.Options{
		Self:     self,
		Postgres: c.Postgres,
		Redis:    c.Redis || c.Embedded,
		Embedded: c.Embedded,
		Fast:     c.Fast,
		Out:      s.out,
		Color:    terminal && !c.NoColor && os.Getenv("NO_COLOR") == "",
		Live:     terminal,
		Plain:    !utf8Locale(),
	})
}

// utf8Locale reports whether the locale says that texts are UTF-8.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

type demoWorkerCmd struct {
	Name, Wire, Addr, Target string
	Elections, Election      string
	TTL                      time.Duration `name:"ttl"`
	Every                    time.Duration
	Fenced                   bool
}

// Run is a worker of the demo.
func (c *demoWorkerCmd) Run(ctx context.Context, s *streams) error {
	b, err := openElections(ctx, config.NewSecret(c.Elections))
	if err != nil {
		return err
	}
	defer b.Close()
	return demo.RunWorker(ctx, demo.WorkerOptions{
		Name: c.Name, Elections: b, Election: c.Election, TTL: c.TTL,
		Wire: c.Wire, Addr: c.Addr, Target: c.Target, Fenced: c.Fenced, Every: c.Every, Out: s.out,
	})
}
