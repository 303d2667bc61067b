package rediscluster

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	electionredis "github.com/fenceproxy/fenceproxy/election/redis"
)

// ErrURL is the error of a URL that cannot be understood. The error never holds its text.
var ErrURL = errors.New("not a URL of the form redis+cluster://user:password@host1:port,host2:port (percent-encode special characters)")

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
	user, seeds, tail, err := electionredis.SplitHosts(rest, "6379")
	switch {
	case err != nil:
		return Options{}, fmt.Errorf("%w: %w", ErrURL, err)
	case strings.Contains(tail, "@"):
		return Options{}, ErrURL // the password holds a character that was not encoded
	}
	r, err := redis.ParseURL(kind + "://" + user + seeds[0] + tail)
	if err != nil {
		return Options{}, ErrURL // what ParseURL says may hold a part of the password
	}
	if r.DB != 0 {
		return Options{}, fmt.Errorf("%w: a cluster has no database but 0", ErrURL)
	}
	return Options{Seeds: seeds, Redis: *r}, nil
}
