package config

import (
	"net/netip"
	"strings"
)

// ElectionCommands says which clients of a listener for Redis may send ELECTION commands.
type ElectionCommands struct {
	// On says that there are any.
	On bool
	// Loopback lets clients of this machine, Networks those of networks.
	Loopback bool
	Networks []netip.Prefix
	// Token lets whoever has said ELECTION AUTH with it; it may be zero.
	Token Secret
}

// electionCommands reads who may send ELECTION commands.
func (r *reader) electionCommands(o *object, l *Listener) {
	f := o.take("election_commands")
	if f == nil {
		return
	}
	if l.Protocol == Postgres {
		f.mistake("is for redis and valkey only; every program can use the elections over HTTP on the admin listener")
	}
	c := &l.ElectionCommands
	c.On, c.Loopback = true, true
	in := f.object()
	if f := in.take("allow"); f != nil {
		c.Loopback = false
		switch {
		case f.isList():
			for _, item := range f.list() {
				c.Networks = append(c.Networks, item.network()...)
			}
		default:
			c.Loopback = f.oneOf("loopback", "none") == "loopback"
		}
	}
	c.Token = in.token()
	if !c.Loopback && len(c.Networks) == 0 && c.Token.IsZero() && len(r.mistakes) == 0 {
		f.mistake("nobody may: set token, or allow: loopback or a list of networks")
	}
	in.close()
}

// network reads f as a network, or as an address.
func (f *field) network() []netip.Prefix {
	s, ok := f.text()
	if !ok {
		return nil
	}
	p, err := netip.ParsePrefix(s)
	if a, aerr := netip.ParseAddr(s); err != nil && aerr == nil {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil:
		f.mistake("%q is not a network such as 10.0.0.0/8, nor an address", s)
	case p != p.Masked():
		f.mistake("%s has bits beyond its length: did you mean %s?", s, p.Masked())
	default:
		return []netip.Prefix{p}
	}
	return nil
}

// minToken is the shortest token that is taken, in bytes: it must not be guessed.
const minToken = 16

// token reads the key token, or token_file; zero where neither is given.
func (o *object) token() Secret {
	if o.left["token"] == nil && o.left["token_file"] == nil {
		o.known = append(o.known, "token", "token_file")
		return Secret{}
	}
	s, from := o.secret("token", "")
	switch {
	case from == nil || s == "":
	case len(s) < minToken:
		from.mistake("is shorter than %d characters: make one with: openssl rand -hex 32", minToken)
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }):
		from.mistake("must be printable ASCII without spaces")
	}
	return NewToken(s)
}
