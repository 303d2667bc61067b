package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// openTLS reads the certificates of a listener's two legs; down is nil where clients are
// offered no TLS.
func openTLS(l *config.Listener) (down *tlsconf.Server, up *tlsconf.Client, err error) {
	if l.TLS != nil {
		if down, err = tlsconf.OpenServer(*l.TLS); err != nil {
			return nil, nil, &exitError{exitUsage, fmt.Errorf("%v: listener %s: tls: %w", l.Pos, l.Name, err)}
		}
	}
	if up, err = tlsconf.OpenClient(*l.UpstreamTLS); err != nil {
		return nil, nil, &exitError{exitUsage, fmt.Errorf("%v: listener %s: upstream_tls: %w", l.Pos, l.Name, err)}
	}
	return down, up, nil
}

// aboutToExpire is what is no harm yet.
const aboutToExpire = "about to expire"

// soon is how long before its end a certificate should be replaced.
const soon = 14 * 24 * time.Hour

// validity says what is wrong with a certificate's time; empty for nothing.
func validity(c *x509.Certificate, now time.Time) string {
	switch {
	case now.Before(c.NotBefore):
		return "not valid yet"
	case now.After(c.NotAfter):
		return "expired"
	case now.Add(soon).After(c.NotAfter):
		return aboutToExpire
	}
	return ""
}

const day = "2006-01-02"

// checkTLS looks at the certificates and keys of a listener.
func checkTLS(l *config.Listener, r *checkReport) {
	if l.TLS != nil {
		s, err := tlsconf.OpenServer(*l.TLS)
		if err != nil {
			r.fail(filesFix("tls", l), "%s: tls: %v", l.Name, err)
		} else {
			r.certificate(l, "tls: "+l.TLS.Cert, s.Leaf(), true)
			for _, ca := range s.Now().ClientCAs {
				r.certificate(l, "tls: "+l.TLS.ClientCA, ca, false)
			}
			r.key(l, l.TLS.Key)
		}
	}
	if l.UpstreamTLS == nil {
		return
	}
	c, err := tlsconf.OpenClient(*l.UpstreamTLS)
	if err != nil {
		r.fail(filesFix("upstream_tls", l), "%s: upstream_tls: %v", l.Name, err)
		return
	}
	for _, ca := range c.CAs() {
		r.certificate(l, "upstream_tls: "+l.UpstreamTLS.CA, ca, false)
	}
	if leaf := c.Leaf(); leaf != nil {
		r.certificate(l, "upstream_tls: "+l.UpstreamTLS.Cert, leaf, true)
		r.key(l, l.UpstreamTLS.Key)
	}
}

func filesFix(key string, l *config.Listener) string {
	return fmt.Sprintf("Correct the files, or %s of the listener at %v.", key, l.Pos)
}

// certificate reports on one; own are those that others look at.
func (r *checkReport) certificate(l *config.Listener, what string, c *x509.Certificate, own bool) {
	switch wrong := validity(c, time.Now()); {
	case wrong == "" && own:
		r.ok("%s: %s: %s, until %s", l.Name, what, c.Subject, c.NotAfter.Format(day))
	case wrong == "":
	case own && wrong != aboutToExpire:
		r.fail("Replace it: a running fenceproxy takes the new one up by itself.", "%s: %s: %s is %s (from %s until %s)", l.Name, what, c.Subject, wrong,
			c.NotBefore.Format(day), c.NotAfter.Format(day))
	default:
		r.warn("Replace it: a running fenceproxy takes the new one up by itself.", "%s: %s: %s is %s (until %s)", l.Name, what, c.Subject, wrong, c.NotAfter.Format(day))
	}
}

// key reports a key that others may read.
func (r *checkReport) key(l *config.Listener, path string) {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o007 != 0 {
		r.warn("chmod o= "+path, "%s: everybody may read the private key %s", l.Name, path)
	}
}

// askPostgres asks a Postgres for its first answer, over TLS as sessions would.
func askPostgres(ctx context.Context, l *config.Listener, timeout time.Duration) (how string, err error) {
	t, err := tlsconf.OpenClient(*l.UpstreamTLS)
	if err != nil {
		return "", err
	}
	state, err := pg.Reach(ctx, l.Upstream, t, timeout)
	switch {
	case err != nil:
		return "", err
	case state == nil:
		return ", without TLS", nil
	}
	return said(state, l.UpstreamTLS), nil
}

// said is what there is to say about a connection by TLS.
func said(state *tls.ConnectionState, o *tlsconf.ClientOptions) string {
	how := ", " + tls.VersionName(state.Version)
	if len(state.PeerCertificates) > 0 {
		c := state.PeerCertificates[0]
		how += fmt.Sprintf(", certificate %s until %s", c.Subject, c.NotAfter.Format(day))
	}
	if o.Mode == tlsconf.Require && o.CA == "" || o.Mode == tlsconf.Prefer {
		how += ", not verified"
	}
	return how
}

// certificateFix says what to do about a server's certificate that is refused; empty for any
// other error. key is the one that leads to the server.
func certificateFix(l *config.Listener, key string, err error) string {
	switch {
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Sprintf("Name the authority that signed the server's certificate in upstream_tls.ca of the listener at %v.", l.Pos)
	case errors.As(err, new(x509.HostnameError)):
		return fmt.Sprintf("Give a name that the server's certificate has, in %s or in upstream_tls.server_name of the listener at %v.", key, l.Pos)
	case errors.As(err, new(x509.CertificateInvalidError)):
		return "Replace the server's certificate."
	}
	return ""
}

// cut reports whether a server ended the connection at once.
func cut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// upstreamFix says what to do about an upstream that cannot be asked.
func upstreamFix(l *config.Listener, err error) string {
	if fix := certificateFix(l, "upstream", err); fix != "" {
		return fix
	}
	switch {
	case errors.Is(err, pg.ErrTLSRefused):
		return fmt.Sprintf("Turn TLS on in the server (ssl=on), or correct upstream_tls.mode of the listener at %v.", l.Pos)
	case errors.Is(err, resp.ErrTLS):
		return fmt.Sprintf("Name the server's TLS port (tls-port) in upstream, or correct upstream_tls.mode of the listener at %v.", l.Pos)
	case errors.Is(err, resp.ErrPooler), errors.Is(err, resp.ErrUnproven):
		return fmt.Sprintf("Set upstream of the listener at %v to the server's TCP address.", l.Pos)
	case l.Protocol != config.Postgres && l.UpstreamTLS.Mode == tlsconf.Disable && cut(err):
		return fmt.Sprintf("If this is the server's tls-port, set upstream_tls of the listener at %v.", l.Pos)
	}
	return fmt.Sprintf("Start the server, or correct upstream of the listener at %v.", l.Pos)
}
