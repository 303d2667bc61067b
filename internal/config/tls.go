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

// addressOrSocket reads f as host:port or, for Postgres, as a Unix socket.
func (f *field) addressOrSocket(listen bool, p Protocol) string {
	s, ok := f.text()
	if !ok {
		return ""
	}
	path, ok := pg.SocketPath(s)
	switch {
	case !ok && strings.HasPrefix(s, "unix:"):
		f.mistake("%q is no socket: a Unix socket is named by its whole path, as unix:/run/fenceproxy:6432", s)
	case !ok:
		return f.address(listen)
	case p != Postgres && p != "":
		f.mistake("Unix sockets are for postgres only")
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
		if l.Listen != "" && !isSocket(l.Listen) {
			f.mistake("is for Unix sockets, and the listener is none")
		}
		if s, ok := f.text(); ok {
			n, err := strconv.ParseUint(s, 8, 32)
			if err != nil || n == 0 || n > 0o777 {
				f.mistake("%q is not a mode in octal digits, such as 0770", s)
			}
			l.SocketMode = fs.FileMode(n)
		}
	}
	if f := o.take("tls"); f != nil {
		switch {
		case l.Protocol != Postgres:
			f.mistake("is for postgres only")
		case isSocket(l.Listen):
			f.mistake("there is no TLS on Unix sockets")
		}
		l.TLS = f.serverTLS()
	}
	up := o.take("upstream_tls")
	if l.Protocol == Postgres {
		l.UpstreamTLS = &tlsconf.ClientOptions{Mode: tlsconf.Prefer, Protocols: pg.ALPN()}
	}
	if up != nil {
		switch {
		case l.Protocol != Postgres:
			up.mistake("is for postgres only")
		case len(l.Upstreams) > 0 && !slices.ContainsFunc(l.Upstreams, func(u string) bool { return !isSocket(u) }):
			up.mistake("there is no TLS on Unix sockets")
		}
		l.UpstreamTLS = up.clientTLS()
	}
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

func (f *field) serverTLS() *tlsconf.ServerOptions {
	o := f.object()
	t := &tlsconf.ServerOptions{Required: true, ClientCerts: tlsconf.NoClientCerts, Protocols: pg.ALPN()}
	t.Cert, t.Key, t.ClientCA = o.fileName("cert"), o.fileName("key"), o.fileName("client_ca")
	if f := o.take("required"); f != nil {
		t.Required = f.oneOf("true", "false") == "true"
	}
	if t.ClientCA != "" {
		t.ClientCerts = tlsconf.RequireClientCerts
	}
	if f := o.take("client_certs"); f != nil {
		t.ClientCerts = tlsconf.ClientCerts(f.oneOf(string(tlsconf.NoClientCerts), string(tlsconf.RequestClientCerts), string(tlsconf.RequireClientCerts)))
	}
	if f := o.take("client_user"); f != nil {
		t.ClientUser = f.oneOf("any", "cn") == "cn"
	}
	o.fits(t.Check)
	o.close()
	return t
}

func (f *field) clientTLS() *tlsconf.ClientOptions {
	o := f.object()
	t := &tlsconf.ClientOptions{Protocols: pg.ALPN()}
	if f := o.need("mode", "disable, allow, prefer, require, verify-ca or verify-full"); f != nil {
		words := make([]string, len(tlsconf.Modes))
		for i, m := range tlsconf.Modes {
			words[i] = string(m)
		}
		t.Mode = tlsconf.Mode(f.oneOf(words...))
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
