package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/internal/gateapi"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// gates are the gates of a configuration.
type gates struct {
	byName map[string]*guard.Gate
	api    *gateapi.API
}

// openGates makes the gates, and serves them on the admin listener where there is one.
func openGates(cfg *config.Config, b election.Backend, adm *adminListener, log *slog.Logger) (*gates, error) {
	gs := &gates{byName: make(map[string]*guard.Gate)}
	var all []*guard.Gate
	grace := make(map[string]time.Duration)
	for _, c := range cfg.Gates {
		g, err := guard.NewGate(b, guard.GateConfig{
			Name: c.Name, Election: c.Election, PermitFor: c.Permit, ValidateEvery: c.ValidateEvery,
			Timeout: cfg.Guard.Timeout, Max: c.Max, Log: log,
		})
		if err != nil {
			gs.close()
			return nil, fmt.Errorf("%v: gate %s: %w", c.Pos, c.Name, err)
		}
		gs.byName[c.Name], grace[c.Name] = g, c.Grace
		all = append(all, g)
	}
	gs.api = gateapi.New(all, gateapi.Config{Grace: grace})
	if adm != nil && len(all) > 0 {
		gs.api.Register(adm.Server)
	}
	return gs, nil
}

// close ends all bindings, whose consumers are told. It may be called again.
func (gs *gates) close() {
	for _, g := range gs.byName {
		g.Close()
	}
	if gs.api != nil {
		gs.api.Close()
	}
}

// ownCommands are those that the proxy answers itself on a listener for Redis.
func ownCommands(l *config.Listener, b election.Backend, gs *gates, log *slog.Logger) map[string]resp.Commands {
	own := electionCommands(l, b, log)
	if len(l.GateCommands) == 0 {
		return own
	}
	if own == nil {
		own = make(map[string]resp.Commands)
	}
	own[resp.OwnFenceGate] = gs.api.RESP(l.GateCommands)
	return own
}
