// Command fenceproxy refuses a stale leader's writes to Postgres and to Redis or
// Valkey: it stands in front of them, speaks their wire protocols, and lets a
// session write only while it holds the live token of an election.
//
// docs/cli.md describes each command and the exit codes.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end; giving up the handler then lets a
	// second one end the process at once.
	context.AfterFunc(ctx, stop)
	// go-redis prints what it also returns.
	redis.SetLogger(quiet{})
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// quiet is a logger that says nothing.
type quiet struct{}

// Printf implements go-redis's logger.
func (quiet) Printf(context.Context, string, ...any) {}
