package rediscluster

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrURL is the error of a URL that cannot be understood. The error never holds its text.
var ErrURL = errors.New("not a URL of the form redis+cluster://user:password@host1:port,host2:port (percent-encode special characters)")

// IsURL reports whether a URL's scheme is that of a cluster.
func IsURL(rawURL string) bool {
	_, ok := scheme(rawURL)
	return ok
}

// scheme is the scheme that each server of a cluster's URL has: redis or rediss.
func scheme(rawURL string) (string, bool) {
	s, _, ok := strings.Cut(rawURL, "://")
	kind, group, _ := strings.Cut(strings.ToLower(s), "+")
	kind = strings.Replace(kind, "valkey", "redis", 1)
	return kind, ok && group == "cluster" && (kind == "redis" || kind == "rediss")
}

// ParseURL reads a URL with the scheme redis+cluster, rediss+cluster (TLS), valkey+cluster
// or valkeys+cluster and one or more hosts with commas between, of which the default port
// is 6379. User and password are the same on every node.
func ParseURL(rawURL string) (Options, error) {
	kind, ok := scheme(rawURL)
	if !ok {
		return Options{}, ErrURL
	}
	_, rest, _ := strings.Cut(rawURL, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if strings.ContainsAny(rest[end:], "@#") {
		return Options{}, ErrURL // the password holds a character that was not encoded
	}
	user, hosts := "", rest[:end]
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	var seeds []string
	for h := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse("redis://" + h)
		if err != nil || u.Hostname() == "" || u.Host != h {
			return Options{}, fmt.Errorf("%w: server %d is no host:port", ErrURL, len(seeds)+1)
		}
		port := u.Port()
		if port == "" {
			port = "6379"
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return Options{}, fmt.Errorf("%w: server %d is no host:port", ErrURL, len(seeds)+1)
		}
		seeds = append(seeds, net.JoinHostPort(u.Hostname(), port))
	}
	r, err := redis.ParseURL(kind + "://" + user + seeds[0] + rest[end:])
	if err != nil {
		return Options{}, ErrURL // what ParseURL says may hold a part of the password
	}
	if r.DB != 0 {
		return Options{}, fmt.Errorf("%w: a cluster has no database but 0", ErrURL)
	}
	return Options{Seeds: seeds, Redis: *r}, nil
}
