package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// A Dialer connects to servers, by TCP, TLS or a Unix socket. It is what Config.Dial is
// by default, and what a Dial of one's own should connect with.
type Dialer struct {
	// TLS is how the server is connected to; nil means without. There is no TLS on Unix
	// sockets.
	TLS *tlsconf.Client
	// KeepAlive is how a server that is out of reach is found out; what is zero of it is
	// that of protocols.DefaultKeepAlive.
	KeepAlive net.KeepAliveConfig
}

// Dial connects to host:port, or to a Unix socket (/path or unix:/path).
func (d Dialer) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var to net.Dialer
	if path, ok := protocols.SocketPath(addr); ok {
		return to.DialContext(ctx, "unix", path)
	}
	c, err := to.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return d.Begin(ctx, c, addr)
}

// Begin makes of a TCP connection to host:port what Dial would have made. After an error it is
// closed.
func (d Dialer) Begin(ctx context.Context, c net.Conn, addr string) (net.Conn, error) {
	if k, ok := c.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		_ = k.SetKeepAliveConfig(protocols.FillKeepAlive(d.KeepAlive))
	}
	if d.TLS.Mode() == tlsconf.Disable {
		return c, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	t := tlsconf.Stream{Conn: tls.Client(c, d.TLS.Config(host))}
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return t, nil
}

// ErrTLS: the server was reached, and the handshake with it failed. One that speaks no TLS
// waits for the end of a line, until the time is up.
var ErrTLS = errors.New("TLS with the server")

// checkAddr checks the form of an address that Dialer.Dial takes.
func checkAddr(addr string) error {
	if _, ok := protocols.SocketPath(addr); ok {
		return nil
	}
	_, _, err := net.SplitHostPort(addr)
	return err
}

// errNoCertificate: the listener wants its clients' certificates.
var errNoCertificate = errors.New("the client showed no certificate")

// acceptTLS makes a TLS connection of a client's, from its first byte on: Redis has no
// request for TLS, so that nothing can come before the handshake.
func (s *Server) acceptTLS(ctx context.Context, client net.Conn) (net.Conn, error) {
	if s.c.TLS == nil || isUnix(client) {
		return client, nil
	}
	t := tlsconf.Stream{Conn: tls.Server(client, s.c.TLS.Now().Config)}
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with the client: %w", err)
	}
	// INVARIANT: what was shown was verified in the handshake; where it is required, nobody
	// goes on without.
	if s.c.TLS.Options().ClientCerts == tlsconf.RequireClientCerts && len(t.ConnectionState().PeerCertificates) == 0 {
		return t, errNoCertificate
	}
	return t, nil
}

// isUnix reports whether a connection is a Unix socket's.
func isUnix(c net.Conn) bool {
	a := c.LocalAddr()
	return a != nil && a.Network() == "unix"
}

// socketOf is the connection below TLS, whose end nobody holds up.
func socketOf(c net.Conn) net.Conn {
	if t, ok := c.(tlsconf.Stream); ok {
		return t.NetConn()
	}
	return c
}

// endWriting ends the sending side alone, where that can be done.
func endWriting(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
