package main

import (
	"context"
	"net/url"
	"strings"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/election/redis"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

// openElections opens the election backend that a URL names.
func openElections(_ context.Context, backend config.Secret) (election.Backend, error) {
	scheme, _, _ := strings.Cut(backend.Reveal(), ":")
	switch strings.ToLower(scheme) {
	case "memory":
		return memory.New(), nil
	case "redis", "rediss", "valkey", "valkeys", "unix":
		return redis.OpenURL(backend.Reveal(), redis.Options{})
	}
	if _, err := url.Parse(backend.Reveal()); err != nil {
		return nil, usage("the election backend is not a URL: it must begin with redis://, valkey:// or postgres://")
	}
	return nil, usage("the election backend %v: must begin with redis://, valkey:// or postgres://", backend)
}
