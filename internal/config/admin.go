package config

import (
	"io/fs"
	"net"
	"net/netip"

	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// Admin is the listener for health answers and the API.
type Admin struct {
	// Listen is host:port or a Unix socket; empty means that there is none.
	Listen string
	// Token is the bearer token of the API; it may be zero.
	Token Secret
	// TLS is what callers are offered; nil offers none.
	TLS *tlsconf.ServerOptions
	// SocketMode is who may connect to a Unix socket.
	SocketMode fs.FileMode
	// Pos is where the file says so.
	Pos Pos
}

// admin reads the admin listener.
func (r *reader) admin(f *field, a *Admin) {
	if f == nil {
		return
	}
	a.Pos, a.SocketMode = f.pos, 0o600
	o := f.object()
	if f := o.need("listen", "host:port, for instance 127.0.0.1:9180, or a Unix socket"); f != nil {
		a.Pos = f.pos
		a.Listen = f.addressOrSocket(true, Redis)
	}
	a.Token = o.token()
	if f := o.take("socket_mode"); f != nil {
		a.SocketMode = f.socketMode(a.Listen)
	}
	if f := o.take("tls"); f != nil {
		if isSocket(a.Listen) {
			f.mistake("there is no TLS on Unix sockets")
		}
		in := f.object()
		a.TLS = &tlsconf.ServerOptions{Required: true, ClientCerts: tlsconf.NoClientCerts}
		a.TLS.Cert, a.TLS.Key, a.TLS.ClientCA = in.fileName("cert"), in.fileName("key"), in.fileName("client_ca")
		if a.TLS.ClientCA != "" {
			a.TLS.ClientCerts = tlsconf.RequestClientCerts // health answers need none
		}
		in.fits(a.TLS.Check)
		in.close()
	}
	o.close()
}

// Authenticates reports whether callers of the API have to authenticate.
func (a *Admin) Authenticates() bool {
	return !a.Token.IsZero() || a.TLS != nil && a.TLS.ClientCA != ""
}

// Local reports whether only this machine reaches the listener.
func (a *Admin) Local() bool {
	if _, ok := protocols.SocketPath(a.Listen); ok {
		return true
	}
	host, _, _ := net.SplitHostPort(a.Listen)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
