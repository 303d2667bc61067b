package main

import (
	"fmt"

	"github.com/fenceproxy/fenceproxy/internal/config"
)

// rulesAreBuilt refuses rules for a protocol of which the wire does not know them yet.
//
// INVARIANT: rules that nobody keeps are not taken.
func rulesAreBuilt(l *config.Listener) error {
	if l.Rules == nil || l.Protocol == config.Postgres {
		return nil
	}
	return &exitError{exitUsage, fmt.Errorf("%v: listener %s: rules are not there yet for %s", l.Pos, l.Name, l.Protocol)}
}
