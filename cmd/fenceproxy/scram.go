package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// verifiers is where a listener's SCRAM verifiers come from, the userlist first; nil
// where it has none.
func verifiers(l *config.Listener, f *pgfence.Fence) pg.Verifiers {
	var all pg.FirstVerifiers
	if l.ScramUserlist != "" {
		all = append(all, pg.NewUserlist(l.ScramUserlist))
	}
	if l.ScramVerifiers {
		all = append(all, f.Verifiers())
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// scramProblems says what would keep clients from logging in by SCRAM with channel
// binding, which libpq asks for by itself.
func scramProblems(ctx context.Context, l *config.Listener, f fence, timeout time.Duration) []guard.Problem {
	pf, ok := f.(*pgfence.Fence)
	if !ok {
		return nil
	}
	var ps []guard.Problem
	if l.ScramUserlist != "" {
		if _, err := pg.NewUserlist(l.ScramUserlist).Check(); err != nil {
			ps = append(ps, guard.Problem{Fatal: true, What: "scram_userlist: " + err.Error(), Fix: "Logins that need it are refused until it is mended."})
		}
	}
	if l.ScramVerifiers {
		for _, p := range pf.Verifiers().Check(ctx) {
			if p.Fix == "run: fenceproxy install --scram" {
				p.Fix = "Run: " + installCommand(l.Control, controlFlags(l, "--scram"))
			}
			ps = append(ps, p)
		}
	}
	if l.ScramUserlist != "" || l.ScramVerifiers || !twoCertificates(ctx, l, timeout) {
		return ps
	}
	return append(ps, guard.Problem{
		What: "TLS on both legs shows two certificates: a client that logs in by SCRAM and binds that to the certificate, as libpq does by itself, is refused (28000)",
		Fix: fmt.Sprintf("If the server asks for SCRAM, set scram_verifiers: control in the listener at %v, and run: %s; docs/postgres.md names other ways.",
			l.Pos, installCommand(l.Control, controlFlags(l, "--scram"))),
	})
}

// twoCertificates reports whether both legs have TLS, with different certificates.
func twoCertificates(ctx context.Context, l *config.Listener, timeout time.Duration) bool {
	if l.TLS == nil {
		return false
	}
	own, err := tlsconf.OpenServer(*l.TLS)
	if err != nil {
		return false // reported elsewhere
	}
	t, err := tlsconf.OpenClient(*l.UpstreamTLS)
	if err != nil {
		return false
	}
	state, err := pg.Reach(ctx, l.Upstream, t, timeout)
	return err == nil && state != nil && len(state.PeerCertificates) > 0 && !bytes.Equal(state.PeerCertificates[0].Raw, own.Leaf().Raw)
}
