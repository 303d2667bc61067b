package electiontest

import (
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
)

// Safety: of any number of candidates at once, one wins, and each winner's number
// is higher than the one before.
func (s suite) concurrent(t *testing.T) {
	t.Run("OneWinner", func(t *testing.T) {
		t.Parallel()
		h1, h2 := s.pair(t)
		u := user{t, within(t), h1, fresh()}
		last := int64(0)
		for round := range 15 { // the first is of an election that never was
			if round > 12 { // and the last ones of a lease that ran out
				g := u.win(election.AcquireOptions{TTL: election.MinTTL})
				until(t, u.ctx, "the end of the lease, as both handles see it", func() bool {
					return u.status().Status == election.Vacant && u.with(h2).status().Status == election.Vacant
				})
				last = g.Number
			}
			tokens := make([]election.Token, 8)
			for i := range tokens {
				tokens[i] = election.NewToken()
			}
			answers := u.together(tokens, h1, h2)
			var winner election.AcquireResult
			for i, r := range answers {
				if r.Status != election.Acquired {
					continue
				}
				if winner.Status != 0 {
					t.Fatalf("two winners: %+v and %+v", winner, r)
				}
				if winner = r; r.Token != tokens[i] {
					t.Fatal("the winner has another's token")
				}
			}
			for _, r := range answers {
				if r.Status == election.Busy && (r.Number != winner.Number || r.Owner != winner.Owner || r.Reason != election.BusyHeld) {
					t.Fatalf("busy says %+v, the winner is %+v", r, winner)
				}
			}
			if winner.Number <= last {
				t.Fatalf("number %d after %d", winner.Number, last)
			}
			last = winner.Number
			u.standing(winner.Token, election.StandingCurrent, winner.Number)
			u.resign(winner.Token, election.ResignOptions{}, election.Released)
		}
	})

	t.Run("OwnGrantOnce", func(t *testing.T) {
		t.Parallel()
		h1, h2 := s.pair(t)
		u := user{t, within(t), h1, fresh()}
		for range 10 {
			token := election.NewToken()
			tokens := []election.Token{token, token, token, token, token, token}
			answers := u.together(tokens, h1, h2)
			for _, r := range answers {
				if r.Status != election.Acquired || r.Number != answers[0].Number {
					t.Fatalf("one token, several grants: %+v and %+v", answers[0], r)
				}
			}
			u.resign(token, election.ResignOptions{}, election.Released)
		}
	})

	// One is released while others ask: whoever is granted has a number of its own.
	t.Run("HandOver", func(t *testing.T) {
		t.Parallel()
		h1, h2 := s.pair(t)
		u := user{t, within(t), h1, fresh()}
		const candidates, rounds = 4, 10
		numbers := make([][]int64, candidates)
		failed := make([]error, candidates)
		var wg sync.WaitGroup
		for i := range candidates {
			b := []election.Backend{h1, h2}[i%2]
			wg.Go(func() { numbers[i], failed[i] = u.with(b).campaign(rounds) })
		}
		wg.Wait()
		seen := map[int64]bool{}
		for i := range candidates {
			if failed[i] != nil {
				t.Fatal(failed[i])
			}
			for j, n := range numbers[i] {
				if seen[n] || j > 0 && n <= numbers[i][j-1] {
					t.Fatalf("numbers %v", numbers)
				}
				seen[n] = true
			}
		}
	})
}

// together lets one candidate for each token acquire at the same time.
func (u user) together(tokens []election.Token, handles ...election.Backend) []election.AcquireResult {
	u.t.Helper()
	answers, errs := make([]election.AcquireResult, len(tokens)), make([]error, len(tokens))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, token := range tokens {
		b := handles[i%len(handles)]
		wg.Go(func() {
			<-start
			answers[i], errs[i] = b.Acquire(u.ctx, u.id, election.AcquireOptions{Token: token, TTL: long})
		})
	}
	close(start)
	wg.Wait()
	for i := range tokens {
		if errs[i] != nil {
			u.t.Fatalf("Acquire: %v", errs[i])
		}
		u.checkAcquire(election.AcquireOptions{Token: tokens[i], TTL: long}, answers[i])
	}
	return answers
}

// campaign wins and resigns as often as told, and returns the numbers.
func (u user) campaign(rounds int) (numbers []int64, err error) {
	for len(numbers) < rounds {
		if err := u.ctx.Err(); err != nil {
			return numbers, err
		}
		g, err := u.b.Acquire(u.ctx, u.id, election.AcquireOptions{TTL: long})
		if err != nil {
			return numbers, err
		}
		if g.Status != election.Acquired {
			continue
		}
		numbers = append(numbers, g.Number)
		if _, err := u.b.Resign(u.ctx, u.id, g.Token, election.ResignOptions{}); err != nil {
			return numbers, err
		}
	}
	return numbers, nil
}
