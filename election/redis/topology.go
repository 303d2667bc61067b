package redis

import (
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
	return &Backend{server: &shared{client: client, own: true}, scripts: newScripts(o)}
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

// openGroup is OpenURL for what is more than one server: redis+cluster and
// redis+sentinel, with rediss, valkey and valkeys likewise, several hosts with commas
// between. The user is that of the servers; sentinels are asked without one. The name
// that sentinels watch the primary by is the parameter master_name. It reports whether
// the URL is such a one.
func openGroup(rawURL string, o Options) (*Backend, bool, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	kind, group, plus := strings.Cut(strings.ToLower(scheme), "+")
	if !ok || !plus || group != "cluster" && group != "sentinel" {
		return nil, false, nil
	}
	kind = strings.Replace(kind, "valkey", "redis", 1)
	if kind != "redis" && kind != "rediss" {
		return nil, false, nil
	}
	port := "6379"
	if group == "sentinel" {
		port = "26379"
	}
	b, err := openHosts(rawURL, kind+"://"+rest, group, port, o)
	if err != nil {
		return nil, true, fmt.Errorf("redis election backend: %w", err)
	}
	return b, true, nil
}

// openHosts opens a group by a URL of several hosts, whose scheme is redis or rediss.
func openHosts(rawURL, hosts, group, port string, o Options) (*Backend, error) {
	if err := connurl.Check(rawURL); err != nil {
		return nil, err
	}
	single, err := singleHost(hosts, port)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", connurl.ErrInvalid, err)
	}
	if group == "cluster" {
		s, err := goredis.ParseClusterURL(single)
		if err != nil {
			return nil, connurl.Explain(single, err)
		}
		return OpenCluster(s, o), nil
	}
	s, err := goredis.ParseFailoverURL(single)
	switch {
	case err != nil:
		return nil, connurl.Explain(single, err)
	case s.MasterName == "":
		return nil, fmt.Errorf("%w: the parameter master_name is missing", connurl.ErrInvalid)
	case s.Username != "" || s.Password != "":
		return nil, fmt.Errorf("%w: the user and the password belong before the host", connurl.ErrInvalid)
	}
	s.Username, s.Password = s.SentinelUsername, s.SentinelPassword
	s.SentinelUsername, s.SentinelPassword = "", ""
	return OpenSentinel(s, o), nil
}

// singleHost turns a URL with several hosts into go-redis's form, with one host and
// the others as parameters. Its errors quote nothing.
func singleHost(rawURL, defaultPort string) (string, error) {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	if strings.Contains(rest, "#") {
		return "", errors.New("it has a fragment")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	user, hosts := "", rest[:end]
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	var addrs []string
	for i, h := range strings.Split(hosts, ",") {
		u, err := url.Parse("redis://" + h)
		if err != nil || u.Hostname() == "" || u.Host != h {
			return "", fmt.Errorf("server %d is no host:port", i+1)
		}
		port := u.Port()
		if port == "" {
			port = defaultPort
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", fmt.Errorf("server %d is no host:port", i+1)
		}
		addrs = append(addrs, net.JoinHostPort(u.Hostname(), port))
	}
	single := scheme + "://" + user + addrs[0] + rest[end:]
	sep := "?"
	if strings.Contains(rest[end:], "?") {
		sep = "&"
	}
	for _, a := range addrs[1:] {
		single += sep + "addr=" + url.QueryEscape(a)
		sep = "&"
	}
	return single, nil
}
