// Command go is one of several workers. The one that leads writes to Postgres through a
// fenceproxy; the others wait. docs/library.md explains it.
//
//	go run ./examples/go a
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
)

var (
	elections = cmp.Or(os.Getenv("ELECTIONS"), "postgres://app@127.0.0.1:5432/postgres")
	database  = cmp.Or(os.Getenv("DATABASE"), "postgres://app@127.0.0.1:6432/shop") // the proxy
	lease     = cmp.Or(os.Getenv("LEASE"), "15s")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run campaigns until ctx ends.
func run(ctx context.Context, worker string) error {
	ttl, err := time.ParseDuration(lease)
	if err != nil {
		return err
	}
	backend, err := open.Backend(ctx, elections, open.Options{})
	if err != nil {
		return err
	}
	defer backend.Close()
	elector, err := election.NewElector(ctx, backend, election.ElectorConfig{Election: "orders", Owner: worker, TTL: ttl})
	if err != nil {
		return err
	}
	elector.OnBecomeLeader(lead)
	return elector.Wait() // until ctx has ended, lead has returned and the leadership is released
}

// lead works for as long as the leadership lasts: ctx ends with it.
func lead(ctx context.Context) {
	term, _ := election.TermFrom(ctx)
	fmt.Println(term.Owner, "leads with number", term.Number)
	for ctx.Err() == nil {
		if err := work(ctx, term); err != nil {
			fmt.Println(term.Owner, "failed:", err) // a stale leader: SQLSTATE FP001
		}
		pause(ctx, time.Second)
	}
	fmt.Println(term.Owner, "leads no more:", context.Cause(ctx))
}

// work writes through the proxy, on a connection that presents the token.
func work(ctx context.Context, term election.Term) error {
	c, err := pgx.ParseConfig(database)
	if err != nil {
		return err
	}
	c.RuntimeParams["fence.election"] = term.Election
	c.RuntimeParams["fence.token"] = term.Token.Reveal()
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	// What has begun is not broken off when the leadership ends: the fence decides.
	unbroken := context.WithoutCancel(ctx)
	defer func() { _ = conn.Close(unbroken) }()
	for order := 1; ctx.Err() == nil; order++ {
		err := pgx.BeginFunc(unbroken, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(unbroken, "INSERT INTO journal (worker) VALUES ($1)", term.Owner); err != nil {
				return err
			}
			fmt.Println(term.Owner, "begins order", order)
			pause(unbroken, time.Second/2) // an order takes a moment
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Println(term.Owner, "wrote order", order)
	}
	return nil
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
