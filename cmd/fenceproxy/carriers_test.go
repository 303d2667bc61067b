package main

import (
	"log/slog"
	"runtime"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/config"
)

func TestAutomatic(t *testing.T) {
	for processors, want := range map[int][2]int{0: {1, 1}, 1: {1, 1}, 2: {1, 2}, 3: {2, 3}, 4: {2, 4}, 8: {4, 8}, 64: {4, 8}} {
		if pg, redis := automatic(processors); pg != want[0] || redis != want[1] {
			t.Errorf("%d processors: %d and %d, want %v", processors, pg, redis, want)
		}
	}
}

// Each wire has what the configuration says, and nothing is left when they have ended.
func TestCarriers(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	pg, redis := automatic(before)
	both := []config.Listener{{Protocol: config.Postgres}, {Protocol: config.Valkey}, {Protocol: config.Redis}, {Protocol: config.Postgres}}
	for name, c := range map[string]struct {
		cfg             config.Config
		more            int
		postgres, redis bool
	}{
		"off":         {config.Config{Loops: -1, Listeners: both}, 0, false, false},
		"three":       {config.Config{Loops: 3, Listeners: both}, 3, true, true},
		"auto":        {config.Config{Listeners: both}, pg + redis, true, true},
		"auto, Redis": {config.Config{Listeners: both[1:3]}, redis, false, true},
		"auto, pg":    {config.Config{Listeners: both[:1]}, pg, true, false},
	} {
		got := startCarriers(&c.cfg, slog.New(slog.DiscardHandler))
		if runtime.GOOS != "linux" {
			c.more, c.postgres, c.redis = 0, false, false
		}
		if more := runtime.GOMAXPROCS(0) - before; more != c.more {
			t.Errorf("%s: %d loops, want %d", name, more, c.more)
		}
		if (got.of(config.Postgres) != nil) != c.postgres || (got.of(config.Valkey) != nil) != c.redis {
			t.Errorf("%s: %+v", name, got)
		}
		got.stop()
		if after := runtime.GOMAXPROCS(0); after != before {
			t.Errorf("%s: %d processors are left of %d", name, after, before)
		}
	}
}
