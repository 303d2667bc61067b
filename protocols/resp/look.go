package resp

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
)

// look judges the connection by CLIENT INFO.
func (c *core) look(reply []byte) {
	f := &c.flow
	if r := c.unfit(reply); r != nil {
		if r.Reason == guard.NoCredential && !f.own && !f.cred.lead {
			c.again = f.cred
		}
		c.fail(r)
		return
	}
	c.name()
}

// unfit says why the connection that CLIENT INFO describes cannot be bound, or nil.
func (c *core) unfit(reply []byte) *guard.Refusal {
	f := &c.flow
	refuse := func(why guard.Reason, detail string) *guard.Refusal {
		return &guard.Refusal{Reason: why, Election: f.cred.election, Held: f.binding.term.Number, Detail: detail}
	}
	switch {
	case bytes.HasPrefix(reply, []byte("-NOAUTH")):
		return refuse(guard.NoCredential, "authenticate first")
	case bytes.HasPrefix(reply, []byte("-NOPERM")), bytes.HasPrefix(reply, []byte("-ERR unknown command")):
		return refuse(guard.Unbindable, c.lacks("client|info", reply))
	case len(reply) == 0 || reply[0] != '$' && reply[0] != '=':
		return refuse(guard.NotAllowed, "a session cannot be bound while it is inside MULTI or, in RESP2, subscribed")
	}
	info := infoFields(reply)
	db, err := strconv.Atoi(info["db"])
	if err != nil {
		return refuse(guard.Unseverable, "the server does not say which database the session is in")
	}
	f.db = db
	switch {
	case !f.binding.direct && !sameAddr(info["addr"], c.cfg.localAddr):
		// INVARIANT: what is named is this very connection. Behind a pooler it would be
		// one that other sessions use, or will. By a Unix socket the shell has proven that.
		return refuse(guard.Unseverable, "the server sees another client address than ours: something stands between the proxy and the server")
	case inMulti(info):
		return refuse(guard.NotAllowed, "a session cannot be bound inside MULTI")
	}
	if name := info["name"]; !strings.HasPrefix(name, redisfence.Prefix) {
		c.conn.name = ownName{set: name != "", name: strings.Clone(name)} // and not the whole answer
	}
	return nil
}

// inMulti reports whether CLIENT INFO speaks of a connection inside MULTI, which its flag x
// says. Valkey 8.1 goes on counting the queued commands, none, after EXEC, DISCARD or RESET.
func inMulti(info map[string]string) bool {
	flags := info["flags"]
	return info["multi"] != "-1" && (info["multi"] != "0" || flags == "" || strings.Contains(flags, "x"))
}

// sameAddr reports whether two texts name one address and port. An IPv4 address may be
// written as an IPv6 one.
func sameAddr(a, b string) bool {
	x, err := netip.ParseAddrPort(a)
	if err != nil {
		return false
	}
	y, err := netip.ParseAddrPort(b)
	return err == nil && x.Port() == y.Port() && x.Addr().Unmap() == y.Addr().Unmap()
}

// lacks says why the server refused a command that a bind needs, named as in an ACL.
func (c *core) lacks(command string, reply []byte) string {
	first, _, _ := bytes.Cut(bytes.TrimRight(reply, "\r\n"), []byte{' '})
	switch {
	case bytes.Equal(first, []byte("-NOPERM")):
		rights := "+client|info +client|setname +get +select %R~" + fencePrefix + "*}:fence"
		if c.cfg.cluster != nil {
			rights = "+client|info +client|setname +cluster|myid"
		}
		return "the user lacks a right that a bind needs (" + command + "); ACL SETUSER <user> " + rights + " gives it all of them"
	case bytes.HasPrefix(reply, []byte("-ERR unknown command")):
		return "the server does not know " + strings.ToUpper(strings.ReplaceAll(command, "|", " ")) + ", which a bind needs (it may be renamed)"
	}
	return "the server refused " + strings.ToUpper(strings.ReplaceAll(command, "|", " ")) + ", which a bind needs, with " + strings.ToValidUTF8(strings.TrimPrefix(string(first), "-"), "?")
}

// infoFields reads the answer to CLIENT INFO.
func infoFields(reply []byte) map[string]string {
	m := make(map[string]string)
	for field := range strings.FieldsSeq(string(reply)) {
		// A verbatim string begins with "txt:id=...".
		if key, value, ok := strings.Cut(strings.TrimPrefix(field, "txt:"), "="); ok {
			m[key] = value
		}
	}
	return m
}
