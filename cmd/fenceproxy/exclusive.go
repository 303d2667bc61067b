package main

import (
	"fmt"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
)

// exclusive keeps the sessions of an exclusive listener apart; nil for others.
func (p *proxy) exclusive(cfg *config.Config, b election.Backend) (*guard.Exclusive, error) {
	if p.Exclusive == "" {
		return nil, nil //nolint:nilnil // none is asked for
	}
	kind := "redis" // Valkey too
	if p.Protocol == config.Postgres {
		kind = "postgres"
	}
	x, err := guard.NewExclusive(b, p.Exclusive == config.ExclusiveClient, guard.GateConfig{
		Name:      kind,
		PermitFor: cfg.Guard.Permit, ValidateEvery: cfg.Guard.ValidateEvery, Timeout: cfg.Guard.Timeout,
		Max: p.MaxConns, Log: p.log,
	})
	if err != nil {
		return nil, fmt.Errorf("%v: listener %s: exclusive: %w", p.Pos, p.Name, err)
	}
	p.ends = append(p.ends, x.Close)
	return x, nil
}

// pgHolder is an Exclusive for Postgres; nil for none.
func pgHolder(x *guard.Exclusive) pg.Holder {
	if x == nil {
		return nil
	}
	return pg.Hold(x)
}
