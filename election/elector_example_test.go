package election_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
)

func ExampleElector() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	e, err := election.NewElector(ctx, memory.New(), election.ElectorConfig{Election: "orders", Owner: "worker-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	e.OnBecomeLeader(func(ctx context.Context) {
		term, _ := election.TermFrom(ctx)
		fmt.Println(term.Owner, "leads", term.Election)
		stop() // a real leader works until its context ends
		<-ctx.Done()
		fmt.Println("ends:", context.Cause(ctx))
	})
	fmt.Println(e.Wait())
	// Output:
	// worker-7 leads orders
	// ends: context canceled
	// <nil>
}
