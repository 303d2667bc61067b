package config

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// SocketPath is the path of the Unix socket that an address names in the protocol; it
// reports false for host:port.
func (p Protocol) SocketPath(addr string) (path string, ok bool) {
	if p == Redis || p == Valkey {
		return protocols.SocketPath(addr)
	}
	return pg.SocketPath(addr)
}

// addressOrSocket reads f as host:port or as a Unix socket.
func (f *field) addressOrSocket(listen bool, p Protocol) string {
	s, ok := f.text()
	if !ok {
		return ""
	}
	path, ok := p.SocketPath(s)
	switch {
	case !ok && strings.HasPrefix(s, "unix:"):
		f.mistake("%q is no socket: a Unix socket is named by its whole path, as unix:/run/fenceproxy:6432", s)
	case !ok && strings.Contains(s, "/") && !strings.Contains(s, ":"):
		f.mistake("%q is no socket: a socket's path begins with /", s)
	case !ok:
		return f.address(listen)
	// The system's limit on the length of a socket's name.
	case len(path) > 107:
		f.mistake("%s is longer than the 107 bytes that the name of a socket may have", path)
	default:
		return s
	}
	return ""
}

// isSocket reports whether an address is a Unix socket.
func isSocket(addr string) bool { _, ok := protocols.SocketPath(addr); return ok }

// encryption reads the keys for TLS and for Unix sockets.
func (r *reader) encryption(o *object, l *Listener) {
	l.SocketMode = protocols.DefaultSocketMode
	if f := o.take("socket_mode"); f != nil {
		l.SocketMode = f.socketMode(l.Listen)
	}
	if f := o.take("tls"); f != nil {
		if isSocket(l.Listen) {
			f.mistake("there is no TLS on Unix sockets")
		}
		l.TLS = f.serverTLS(l)
	}
	// Postgres negotiates TLS. In Redis a connection is TLS from its first byte, or not.
	l.UpstreamTLS = &tlsconf.ClientOptions{Mode: tlsconf.Disable}
	if l.Protocol == Postgres {
		l.UpstreamTLS = &tlsconf.ClientOptions{Mode: tlsconf.Prefer, Protocols: pg.ALPN()}
	}
	if up := o.take("upstream_tls"); up != nil {
		if len(l.Upstreams) > 0 && !slices.ContainsFunc(l.Upstreams, func(u string) bool { return !isSocket(u) }) {
			up.mistake("there is no TLS on Unix sockets")
		}
		l.UpstreamTLS = up.clientTLS(l)
	}
}

// socketMode reads f as the mode of the Unix socket that is listened on.
func (f *field) socketMode(listen string) fs.FileMode {
	if listen != "" && !isSocket(listen) {
		f.mistake("is for Unix sockets, and the listener is none")
	}
	s, ok := f.text()
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		f.mistake("%q is not a mode in octal digits, such as 0770", s)
	}
	return fs.FileMode(n)
}

// alpn are the protocols that either leg names by ALPN.
func (p Protocol) alpn() []string {
	if p == Postgres {
		return pg.ALPN()
	}
	return nil
}

// scram reads where the SCRAM verifiers of roles come from.
func (r *reader) scram(o *object, l *Listener) {
	control, list := o.take("scram_verifiers"), o.take("scram_userlist")
	for _, f := range []*field{control, list} {
		if f != nil && l.Protocol != Postgres {
			f.mistake("is for postgres only")
		}
	}
	if control != nil {
		l.ScramVerifiers = control.oneOf("none", "control") == "control"
	}
	if list != nil {
		l.ScramUserlist = list.path()
	}
}

// path reads f as the name of a file; relative names start from the configuration's
// folder.
func (f *field) path() string {
	s, ok := f.text()
	if ok && !filepath.IsAbs(s) {
		s = filepath.Join(filepath.Dir(f.r.file), s)
	}
	return s
}

// fileName takes a key that names a file.
func (o *object) fileName(key string) string {
	if f := o.take(key); f != nil {
		return f.path()
	}
	return ""
}

func (f *field) serverTLS(l *Listener) *tlsconf.ServerOptions {
	o := f.object()
	t := &tlsconf.ServerOptions{Required: true, ClientCerts: tlsconf.NoClientCerts, Protocols: l.Protocol.alpn()}
	t.Cert, t.Key, t.ClientCA = o.fileName("cert"), o.fileName("key"), o.fileName("client_ca")
	if f := o.take("required"); f != nil {
		t.Required = f.oneOf("true", "false") == "true"
		if !t.Required && l.Protocol != Postgres {
			f.mistake("a listener for %s takes clients either with TLS or without: make one more for those without", l.Protocol)
		}
	}
	if t.ClientCA != "" {
		t.ClientCerts = tlsconf.RequireClientCerts
	}
	if f := o.take("client_certs"); f != nil {
		t.ClientCerts = tlsconf.ClientCerts(f.oneOf(string(tlsconf.NoClientCerts), string(tlsconf.RequestClientCerts), string(tlsconf.RequireClientCerts)))
	}
	if f := o.takeFor("client_user", l); f != nil {
		t.ClientUser = f.oneOf("any", "cn") == "cn"
	}
	o.fits(t.Check)
	o.close()
	return t
}

func (f *field) clientTLS(l *Listener) *tlsconf.ClientOptions {
	o := f.object()
	t := &tlsconf.ClientOptions{Protocols: l.Protocol.alpn()}
	if f := o.need("mode", "disable, allow, prefer, require, verify-ca or verify-full"); f != nil {
		words := make([]string, len(tlsconf.Modes))
		for i, m := range tlsconf.Modes {
			words[i] = string(m)
		}
		t.Mode = tlsconf.Mode(f.oneOf(words...))
		if l.Protocol != Postgres && (t.Mode == tlsconf.Allow || t.Mode == tlsconf.Prefer) {
			f.mistake("%s means nothing for %s, which does not negotiate TLS: choose disable, require, verify-ca or verify-full", t.Mode, l.Protocol)
		}
	}
	if f := o.take("ca"); f != nil {
		if s, ok := f.text(); ok && s == tlsconf.SystemCA {
			t.CA = s
		} else if ok {
			t.CA = f.path()
		}
	}
	t.Cert, t.Key = o.fileName("cert"), o.fileName("key")
	if f := o.take("server_name"); f != nil {
		t.ServerName, _ = f.text()
	}
	o.fits(t.Check)
	o.close()
	return t
}

// fits reports what does not fit together, unless there were mistakes already.
func (o *object) fits(check func() error) {
	for _, m := range o.r.mistakes {
		if strings.HasPrefix(m.Key, o.key) {
			return
		}
	}
	if err := check(); err != nil {
		o.mistake("%v", err)
	}
}
