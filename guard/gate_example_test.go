package guard_test

import (
	"context"
	"fmt"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
)

// A consumer works on a partition for as long as its binding lives, and then says that it
// has stopped.
func ExampleGate() {
	ctx := context.Background()
	backend := memory.New() // in earnest: one that other processes reach
	gate, err := guard.NewGate(backend, guard.GateConfig{Name: "orders", Election: "orders-{partition}"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer gate.Close()
	held, err := backend.Acquire(ctx, "orders-7", election.AcquireOptions{Owner: "worker-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	binding, err := gate.Bind(ctx, "7", held.Token)
	if err != nil {
		fmt.Println(err)
		return
	}
	for item := 1; item <= 2 && binding.Live(); item++ {
		fmt.Println("working on item", item, "of partition", binding.Partition())
	}
	binding.Release()
	// Output:
	// working on item 1 of partition 7
	// working on item 2 of partition 7
}
