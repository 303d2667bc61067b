package main

import (
	"context"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

// openElections opens the election backend that a URL names. It asks the backend
// nothing yet.
func openElections(ctx context.Context, backend config.Secret) (election.Backend, error) {
	b, err := open.Backend(ctx, backend.Reveal(), open.Options{})
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return b, nil
}
