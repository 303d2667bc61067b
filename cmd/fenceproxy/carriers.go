package main

import (
	"errors"
	"log/slog"
	"runtime"

	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/protocols/loops"
)

// carriers are the loops that carry sessions, of each wire; nil where goroutines do.
type carriers struct {
	postgres, redis *loops.Loops
}

// startCarriers starts what the listeners need, where there is such a thing.
func startCarriers(cfg *config.Config, log *slog.Logger) *carriers {
	c := new(carriers)
	var postgres, redis bool
	for i := range cfg.Listeners {
		if cfg.Listeners[i].Protocol == config.Postgres {
			postgres = true
		} else {
			redis = true
		}
	}
	switch {
	case cfg.Loops < 0:
	case cfg.Loops > 0 && (postgres || redis):
		c.postgres = startLoops(cfg.Loops, log)
		c.redis = c.postgres
	case cfg.Loops == 0:
		ofPostgres, ofRedis := automatic(runtime.GOMAXPROCS(0)) // loops add to them: look first
		if postgres {
			c.postgres = startLoops(ofPostgres, log)
		}
		if redis {
			c.redis = startLoops(ofRedis, log)
		}
	}
	return c
}

// automatic is how many loops each wire has by itself, with so many processors. A Postgres
// server has a process for each session, which want the processors too, and fewer loops find
// more to do each time that they are woken; a Redis server is one thread.
func automatic(processors int) (postgres, redis int) {
	redis = max(1, min(processors, 8))
	return (redis + 1) / 2, redis
}

func startLoops(n int, log *slog.Logger) *loops.Loops {
	l, err := loops.Start(n)
	if errors.Is(err, loops.ErrUnsupported) {
		return nil
	}
	if err != nil {
		// Without them everything goes on, only slower.
		log.Warn("sessions are carried by goroutines", "err", err)
		return nil
	}
	return l
}

// of are those of a protocol's listeners.
func (c *carriers) of(p config.Protocol) *loops.Loops {
	if p == config.Postgres {
		return c.postgres
	}
	return c.redis
}

// stop ends them all.
func (c *carriers) stop() {
	c.postgres.Stop()
	if c.redis != c.postgres {
		c.redis.Stop()
	}
}
