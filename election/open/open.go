// Package open makes the election backend that a URL names.
//
// It promises that the URL decides alone: nothing registers itself, and importing a
// package adds no scheme. It does not promise that the server is there: no backend
// asks its server anything before the first call.
package open

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/kubernetes"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/election/postgres"
	"github.com/fenceproxy/fenceproxy/election/redis"
	"github.com/fenceproxy/fenceproxy/election/zookeeper"
)

// ErrUnknownScheme: the URL names no backend.
var ErrUnknownScheme = errors.New("unknown election backend")

// Schemes are the forms of URL that Backend takes, for help texts.
const Schemes = "redis:// rediss:// valkey:// valkeys:// unix:// redis+cluster:// redis+sentinel:// " +
	"postgres:// postgresql:// zookeeper:// kubernetes:/// memory:"

// Options are the options of the backends; the zero value is a working default.
type Options struct {
	Redis     redis.Options
	Postgres  postgres.Options
	ZooKeeper zookeeper.Options
}

// Backend returns the backend that the URL names; its errors never hold a password.
// Every call with "memory:" makes another store, empty and private to this process.
func Backend(ctx context.Context, rawURL string, o Options) (election.Backend, error) {
	scheme, rest, ok := strings.Cut(rawURL, ":")
	if !ok {
		scheme = ""
	}
	switch strings.ToLower(scheme) {
	case "redis", "rediss", "valkey", "valkeys", "unix",
		"redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster",
		"redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel":
		return some(redis.OpenURL(rawURL, o.Redis))
	case "postgres", "postgresql":
		return some(postgres.Open(ctx, rawURL, o.Postgres))
	case "zookeeper":
		return some(zookeeper.OpenURL(rawURL, o.ZooKeeper))
	case "kubernetes":
		return some(kubernetes.OpenURL(rawURL))
	case "memory":
		if rest != "" {
			return nil, fmt.Errorf("%w: memory: takes nothing after the colon", ErrUnknownScheme)
		}
		return memory.New(), nil
	}
	// The URL is not quoted: what was meant as a scheme may be a user or a password.
	return nil, fmt.Errorf("%w: the URL must begin with one of %s", ErrUnknownScheme, Schemes)
}

// some keeps a nil pointer from becoming a Backend that is not nil.
func some[B election.Backend](b B, err error) (election.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}
