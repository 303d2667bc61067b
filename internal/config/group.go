package config

import (
	"strings"

	electionredis "github.com/fenceproxy/fenceproxy/election/redis"
)

// A Group is how the servers behind a listener for Redis or Valkey belong together.
type Group string

// The groups.
const (
	// NoGroup is one server, with or without replicas.
	NoGroup Group = ""
	// Sentinel is a primary and its replicas, watched by sentinels: Upstream and Control
	// are then URLs that name the sentinels, as election/redis.ParseGroup reads them.
	Sentinel Group = "sentinel"
	// Cluster is a Redis or Valkey Cluster: Upstream and Control are URLs that name some
	// of its nodes.
	Cluster Group = "cluster"
)

// groupOf reads which group a URL names.
func groupOf(url string) (Group, error) {
	g, _, err := electionredis.ParseGroup(url)
	switch {
	case err != nil:
		return NoGroup, err
	case g.Cluster != nil:
		return Cluster, nil
	case g.Sentinel != nil:
		return Sentinel, nil
	}
	return NoGroup, nil
}

// group reads an upstream that is a URL: a group's. It reports whether it is no single
// server, or nothing.
func (f *field) group(l *Listener) bool {
	s, ok := f.text()
	if !ok {
		return true // said already
	}
	if !strings.Contains(s, "://") {
		return false
	}
	scheme, rest, _ := strings.Cut(s, "://")
	g, err := groupOf(s)
	switch authority, _, _ := strings.Cut(rest, "/"); {
	case l.Protocol == Postgres:
		f.mistake("%q is not host:port", s)
	// The URL is shown in messages, and each client has a user of its own.
	case strings.Contains(authority, "@"):
		f.mistake("holds a user: that belongs into control; here, clients bring their own")
	case err != nil:
		f.mistake("%v", err)
	case g == NoGroup:
		f.mistake("must be host:port of one server, or a URL that begins with redis+sentinel:// or redis+cluster://")
	case strings.HasPrefix(strings.ToLower(scheme), "rediss") || strings.HasPrefix(strings.ToLower(scheme), "valkeys"):
		f.mistake("TLS with the servers is said by upstream_tls, and here by redis+%s://", g)
	default:
		l.Group, l.Upstream = g, s
	}
	return true
}

// redisControl checks the URL of the control connection to a Redis or Valkey, which must lead
// to what upstream leads to.
func (f *field) redisControl(control string, l *Listener) {
	if !strings.Contains(control, "+") {
		if l.Group != NoGroup {
			f.mistake("must begin with redis+%s://, as upstream does: it must lead to the same servers", l.Group)
			return
		}
		f.url(control, "redis", "rediss", "valkey", "valkeys", "unix")
		return
	}
	g, err := groupOf(control)
	switch {
	case err != nil:
		f.mistake("%v", err)
	case g == NoGroup:
		f.url(control, "redis", "rediss", "valkey", "valkeys", "redis+sentinel", "redis+cluster")
	case g != l.Group && l.Upstream != "":
		f.mistake("leads to what begins with redis+%s://, and upstream does not: they must lead to the same servers", g)
	}
}
