package main

import (
	"context"
	"strings"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/election/postgres"
	"github.com/fenceproxy/fenceproxy/election/redis"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

// openElections opens the election backend that a URL names. It asks the backend
// nothing yet.
func openElections(ctx context.Context, backend config.Secret) (election.Backend, error) {
	url := backend.Reveal()
	scheme, _, _ := strings.Cut(url, ":")
	var b election.Backend
	var err error
	switch strings.ToLower(scheme) {
	case "memory":
		return memory.New(), nil
	case "redis", "rediss", "valkey", "valkeys", "unix":
		b, err = redis.OpenURL(url, redis.Options{})
	case "postgres", "postgresql":
		b, err = postgres.Open(ctx, url, postgres.Options{})
	default:
		return nil, usage("the election backend must be a URL that begins with redis://, valkey:// or postgres://")
	}
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return b, nil
}
