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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end; giving up the handler then lets a
	// second one end the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
