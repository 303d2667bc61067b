package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/fenceproxy/fenceproxy/internal/admin"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// An adminListener is the admin listener with its address. Nil is none.
type adminListener struct {
	*admin.Server
	listener net.Listener
	cert     *tlsconf.Server // nil without TLS
	log      *slog.Logger
}

// openAdmin opens the admin listener; nil where the configuration has none.
func openAdmin(ctx context.Context, c *config.Admin, log *slog.Logger) (*adminListener, error) {
	if c.Listen == "" {
		return nil, nil //nolint:nilnil // none is asked for
	}
	a := &adminListener{log: log.With("listener", "admin")}
	failed := func(err error) (*adminListener, error) {
		return nil, fmt.Errorf("%v: admin: %w", c.Pos, err)
	}
	var err error
	if c.TLS != nil {
		if a.cert, err = tlsconf.OpenServer(*c.TLS); err != nil {
			return failed(err)
		}
	}
	a.Server = admin.New(admin.Config{Token: c.Token.Reveal(), TLS: a.cert, Log: a.log})
	a.API(admin.ProfilePattern, admin.Profile())
	if a.listener, err = listenAt(ctx, c.Listen, c.SocketMode, protocols.SocketPath); err != nil {
		return failed(err)
	}
	if !c.Authenticates() && !c.Local() {
		a.log.Warn("check: the admin listener is reached from other machines, and its API from this one alone", "addr", c.Listen,
			"fix", "Set admin.token or admin.tls.client_ca, or listen on 127.0.0.1.")
	}
	return a, nil
}

// close closes an admin listener that was not served.
func (a *adminListener) close() {
	if a != nil {
		_ = a.listener.Close()
	}
}

// serve answers until ctx is done.
func (a *adminListener) serve(ctx context.Context) error {
	a.log.Info("listening", "addr", a.listener.Addr().String())
	return a.Serve(ctx, a.listener)
}
