package main

import (
	"log/slog"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/internal/electionapi"
	"github.com/fenceproxy/fenceproxy/internal/openapi"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// electionCommands are the ELECTION commands of a listener for Redis; nil for none.
func electionCommands(l *config.Listener, b election.Backend, log *slog.Logger) map[string]resp.Commands {
	c := l.ElectionCommands
	if !c.On {
		return nil
	}
	api := electionapi.New(b, electionapi.Config{Log: log})
	return map[string]resp.Commands{resp.OwnElection: api.RESP(electionapi.Clients{
		Loopback: c.Loopback,
		Networks: c.Networks,
		Token:    c.Token.Reveal(),
		Serves:   l.Serves,
	})}
}

// elections puts the elections on the admin listener, and the description of all its API.
func (a *adminListener) elections(b election.Backend) {
	if a == nil {
		return
	}
	for _, r := range electionapi.New(b, electionapi.Config{Log: a.log}).Routes() {
		a.API(r.Pattern, r.Handler)
	}
	a.Open("GET "+openapi.Path, openapi.Handler())
}
