// Package guardtest is the suite that every fence must pass, and an election backend
// that says what a test tells it to say.
package guardtest

import (
	"context"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// A Backend answers Validate for one election as it was last told. Its other methods
// are not there.
type Backend struct {
	election.Backend

	mu     sync.Mutex
	token  election.Token
	number int64
	err    error
}

// Grant makes the token the live holder's, with the number; no token makes the election vacant.
func (b *Backend) Grant(t election.Token, number int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.token, b.number = t, number
}

// Fail makes every answer that error; nil ends it.
func (b *Backend) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// Validate implements election.Backend.
func (b *Backend) Validate(ctx context.Context, _ string, t election.Token) (election.ValidateResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return election.ValidateResult{}, ctx.Err()
	case b.err != nil:
		return election.ValidateResult{}, b.err
	case b.token.IsZero():
		return election.ValidateResult{Standing: election.StandingVacant}, nil
	case b.token != t:
		return election.ValidateResult{Standing: election.StandingStale, Number: b.number, Owner: "leader", Remaining: time.Hour}, nil
	}
	return election.ValidateResult{Standing: election.StandingCurrent, Number: b.number, Owner: "leader", Remaining: time.Hour}, nil
}
