package electiontest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// Candidates whose wall clocks are an hour off, either way, take nothing from a holder
// that renews; one whose clock is off leads as any other; and no number falls for it.
func (s *electors) clocksAnHourOff() {
	if s.Server == "" {
		return // the store's clock is the candidates' own
	}
	e := s.start("a")
	r := s.Begun(s.user.ctx, 1)
	numbers := []int64{r.Term.Number}
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		n := e.Calls(election.OpRenew)
		for e.Calls(election.OpRenew) <= n+int(leaseTTL/leaseHeartbeat) { // for longer than a lease
			s.withClock(off, func(ctx context.Context, b election.Backend) error {
				g, err := b.Acquire(ctx, s.user.id, election.AcquireOptions{Owner: "off", TTL: leaseTTL})
				if err == nil && (g.Status != election.Busy || g.Number != r.Term.Number) {
					err = fmt.Errorf("with a clock %v off: %+v", off, g)
				}
				return err
			})
		}
	}
	s.end(e)
	// They lead in turns, with clocks that go an hour and two hours to and fro.
	for _, off := range []time.Duration{time.Hour, -time.Hour, 0, -time.Hour, time.Hour, 0} {
		s.withClock(off, func(ctx context.Context, b election.Backend) error {
			token := election.NewToken()
			g, err := b.Acquire(ctx, s.user.id, election.AcquireOptions{Owner: "off", TTL: leaseTTL, Token: token})
			if err != nil {
				return err
			}
			numbers = append(numbers, g.Number)
			if v, err := b.Validate(ctx, s.user.id, token); err != nil || v.Standing != election.StandingCurrent {
				return fmt.Errorf("Validate: %+v, %w", v, err)
			}
			_, err = b.Resign(ctx, s.user.id, token, election.ResignOptions{})
			return err
		})
	}
	for i := range numbers[1:] {
		if numbers[i+1] <= numbers[i] {
			s.t.Errorf("numbers %v", numbers)
		}
	}
}

// withClock has f call a backend in a world whose wall clock is off. While f waits for the
// network, time stands still there.
func (s *electors) withClock(off time.Duration, f func(context.Context, election.Backend) error) {
	s.t.Helper()
	now := time.Now()
	synctest.Test(s.t, func(t *testing.T) {
		time.Sleep(time.Until(now.Add(off))) // from the year 2000
		b := s.OpenAt(t, s.Server)
		defer b.Close()
		if err := f(t.Context(), b); err != nil {
			t.Error(err)
		}
	})
}
