package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/internal/sidecar"
	"github.com/fenceproxy/fenceproxy/protocols"
)

// campaigns are those of a process's listeners, one for each election.
type campaigns struct {
	backend election.Backend
	log     *slog.Logger
	all     []*sidecar.Campaign
}

// lead returns what a listener has of the campaign for its election; nil where it does not
// campaign.
func (c *campaigns) lead(l *config.Listener) (*sidecar.Lead, error) {
	if l.Elect == nil {
		return nil, nil //nolint:nilnil // none is asked for
	}
	for _, one := range c.all {
		if one.Election() == l.Elect.Election {
			return one.Lead(), nil
		}
	}
	one, err := sidecar.New(c.backend, sidecar.Config{
		Election: l.Elect.Election, Owner: l.Elect.Owner, TTL: l.Elect.TTL, Heartbeat: l.Elect.RenewEvery, HoldOff: l.Elect.HoldOff,
		Log: c.log,
	})
	if err != nil {
		return nil, fmt.Errorf("%v: listener %s: elect: %w", l.Elect.Pos, l.Name, err)
	}
	c.all = append(c.all, one)
	return one.Lead(), nil
}

// leadership is the listener's lead as the wires take it.
func (p *proxy) leadership() protocols.Leadership {
	if p.lead == nil {
		return nil
	}
	return p.lead
}

// around campaigns while serve serves. It releases what it leads when serve says that it has
// drained, and with it the sessions that are bound: until then the leases are renewed.
func (c *campaigns) around(ctx context.Context, adm *adminListener, cfg *config.Config, serve func(ctx context.Context, drained func()) error) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if adm != nil {
		sidecar.Health(adm, c.all, sidecar.Answers(func(ctx context.Context) error {
			_, err := askElections(ctx, cfg, c.backend)
			return err
		}), func() bool { return ctx.Err() != nil })
	}
	campaigning, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	var wg sync.WaitGroup
	errs := make([]error, len(c.all))
	for i, one := range c.all {
		wg.Go(func() {
			errs[i] = one.Run(campaigning)
			end() // one that gave up ends the process: its listeners would never lead again
		})
	}
	served := serve(ctx, resign)
	resign()
	wg.Wait()
	return errors.Join(append(errs, served)...)
}
