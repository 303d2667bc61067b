package election_test

import (
	"context"
	"fmt"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
)

func Example() {
	ctx := context.Background()
	b := memory.New()
	a, _ := b.Acquire(ctx, "billing", election.AcquireOptions{Owner: "a", MinFencing: 1 << 50})
	fmt.Println(a.Status, a.Owner, a.Number, a.Token)

	other, _ := b.Acquire(ctx, "billing", election.AcquireOptions{Owner: "b"})
	fmt.Println(other.Status, other.Reason, other.Owner, other.Number)

	v, _ := b.Validate(ctx, "billing", a.Token)
	fmt.Println(v.Standing, v.Number)

	r, _ := b.Resign(ctx, "billing", a.Token, election.ResignOptions{})
	fmt.Println(r.Status)

	next, _ := b.Acquire(ctx, "billing", election.AcquireOptions{Owner: "b"})
	fmt.Println(next.Status, next.Owner, next.Number > a.Number)
	// Output:
	// acquired a 1125899906842624 [token]
	// busy held a 1125899906842624
	// current 1125899906842624
	// released
	// acquired b true
}
