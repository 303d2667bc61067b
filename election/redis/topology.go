package redis

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
)

// OpenCluster returns a backend on a cluster client of its own, which Close closes. Its
// elections spread over the cluster, each in one slot. It asks the servers nothing. The
// options are copied; replicas are never asked. The client follows the slots, and
// therefore asks again by itself: a Resign whose reply was lost may report NotOwner
// although it released.
func OpenCluster(cluster *goredis.ClusterOptions, o Options) *Backend {
	s := *cluster
	s.ReadOnly, s.RouteByLatency, s.RouteRandomly = false, false, false
	s.ContextTimeoutEnabled = true
	if s.DialerRetries == 0 {
		s.DialerRetries = 1
	}
	if s.MaintNotificationsConfig == nil {
		s.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	s.TLSConfig = o.tls(s.TLSConfig)
	return newShared(goredis.NewClusterClient(&s), o)
}

// OpenSentinel returns a backend on a client of its own, which Close closes, for the
// primary that sentinels name. It asks nobody anything. Retries are off. The options are
// copied; replicas are never asked.
func OpenSentinel(sentinel *goredis.FailoverOptions, o Options) *Backend {
	s := *sentinel
	s.ReplicaOnly, s.RouteByLatency, s.RouteRandomly = false, false, false
	s.MaxRetries = -1
	s.ContextTimeoutEnabled = true
	if s.DialerRetries == 0 {
		s.DialerRetries = 1
	}
	s.TLSConfig = o.tls(s.TLSConfig)
	return newShared(goredis.NewFailoverClient(&s), o)
}

// newShared returns a backend on a client that was made here.
func newShared(client goredis.UniversalClient, o Options) *Backend {
	return &Backend{server: newSharedClient(client, true), scripts: newScripts(o)}
}

// tls is the configuration for a URL that asks for TLS, as url does.
func (o Options) tls(url *tls.Config) *tls.Config {
	if o.TLS == nil || url == nil {
		return url
	}
	c := o.TLS.Clone()
	if c.ServerName == "" {
		c.ServerName = url.ServerName
	}
	return c
}

// A Group is what a URL of several servers names: a cluster or, through sentinels, the
// primary that they watch. One of its fields is set.
type Group struct {
	Cluster  *goredis.ClusterOptions
	Sentinel *goredis.FailoverOptions
}

// ParseGroup reads a URL of the scheme redis+cluster or redis+sentinel, with rediss, valkey
// and valkeys likewise, and several hosts with commas between. The user is that of the
// servers; sentinels are asked without one. The name that sentinels watch the primary by is
// the parameter master_name. ok is false where the URL is of another scheme. No error
// quotes what may be a password.
func ParseGroup(rawURL string) (g Group, ok bool, err error) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	kind, group, plus := strings.Cut(strings.ToLower(scheme), "+")
	if !found || !plus || group != "cluster" && group != "sentinel" {
		return g, false, nil
	}
	kind = strings.Replace(kind, "valkey", "redis", 1)
	if kind != "redis" && kind != "rediss" {
		return g, false, nil
	}
	port := "6379"
	if group == "sentinel" {
		port = "26379"
	}
	g, err = parseHosts(rawURL, kind+"://"+rest, group, port)
	return g, true, err
}

// parseHosts reads a URL of several hosts, whose scheme is redis or rediss.
func parseHosts(rawURL, hosts, group, port string) (g Group, err error) {
	if err := connurl.Check(rawURL); err != nil {
		return g, err
	}
	single, err := singleHost(hosts, port)
	if err != nil {
		return g, fmt.Errorf("%w: %w", connurl.ErrInvalid, err)
	}
	if group == "cluster" {
		if g.Cluster, err = goredis.ParseClusterURL(single); err != nil {
			return Group{}, connurl.Explain(single, err)
		}
		return g, nil
	}
	s, err := goredis.ParseFailoverURL(single)
	switch {
	case err != nil:
		return g, connurl.Explain(single, err)
	case s.MasterName == "":
		return g, fmt.Errorf("%w: the parameter master_name is missing", connurl.ErrInvalid)
	case s.Username != "" || s.Password != "":
		return g, fmt.Errorf("%w: the user and the password belong before the host", connurl.ErrInvalid)
	}
	s.Username, s.Password = s.SentinelUsername, s.SentinelPassword
	s.SentinelUsername, s.SentinelPassword = "", ""
	return Group{Sentinel: s}, nil
}

// openGroup is OpenURL for what is more than one server. It reports whether the URL is
// such a one.
func openGroup(rawURL string, o Options) (*Backend, bool, error) {
	g, ok, err := ParseGroup(rawURL)
	switch {
	case err != nil:
		return nil, ok, fmt.Errorf("redis election backend: %w", err)
	case g.Cluster != nil:
		return OpenCluster(g.Cluster, o), true, nil
	case g.Sentinel != nil:
		return OpenSentinel(g.Sentinel, o), true, nil
	}
	return nil, false, nil
}

// singleHost turns a URL with several hosts into go-redis's form, with one host and
// the others as parameters. Its errors quote nothing.
func singleHost(rawURL, defaultPort string) (string, error) {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	user, addrs, tail, err := SplitHosts(rest, defaultPort)
	if err != nil {
		return "", err
	}
	single := scheme + "://" + user + addrs[0] + tail
	sep := "?"
	if strings.Contains(tail, "?") {
		sep = "&"
	}
	for _, a := range addrs[1:] {
		single += sep + "addr=" + url.QueryEscape(a)
		sep = "&"
	}
	return single, nil
}

// SplitHosts splits what stands behind the :// of a URL that names several hosts: the user
// and password up to their @, or nothing; each host:port, of which there is one at least; and
// the path and parameters. Its errors quote nothing.
func SplitHosts(rest, defaultPort string) (user string, addrs []string, tail string, err error) {
	if strings.Contains(rest, "#") {
		return "", nil, "", errors.New("it has a fragment")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	hosts := rest[:end]
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	for i, h := range strings.Split(hosts, ",") {
		u, err := url.Parse("redis://" + h)
		if err != nil || u.Hostname() == "" || u.Host != h {
			return "", nil, "", fmt.Errorf("server %d is no host:port", i+1)
		}
		port := cmp.Or(u.Port(), defaultPort)
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", nil, "", fmt.Errorf("server %d is no host:port", i+1)
		}
		addrs = append(addrs, net.JoinHostPort(u.Hostname(), port))
	}
	return user, addrs, rest[end:], nil
}
