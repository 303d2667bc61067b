package electiontest

import (
	"errors"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// short is a lease or hold-off that a test waits for.
const short = 300 * time.Millisecond

// grain is how much earlier than promised a server may count the end of a lease:
// it rounds to milliseconds and may take the time before it reads a request.
const grain = 5 * time.Millisecond

// When a lease ends.
func (s suite) time(t *testing.T) {
	t.Run("Expiry", func(t *testing.T) {
		t.Parallel()
		h1, h2 := s.pair(t)
		a := user{t, within(t), h1, fresh()}
		b := a.with(h2)
		asked := time.Now()
		g := a.win(election.AcquireOptions{Owner: "a", TTL: short})
		// E1: the holder is gone; another makes attempts that do not wait.
		var next election.AcquireResult
		until(t, a.ctx, "acquiring after the lease", func() bool {
			next = b.acquire(election.AcquireOptions{Owner: "b"})
			return next.Status == election.Acquired
		})
		if d := time.Since(asked); d < short-grain {
			t.Errorf("taken over after %v of a lease of %v", d, short)
		}
		if next.Number <= g.Number {
			t.Errorf("number %d after %d", next.Number, g.Number)
		}
		a.standing(g.Token, election.StandingStale, next.Number)
		a.renew(g.Token, election.Lost)
		a.resign(g.Token, election.ResignOptions{}, election.NotOwner)
		b.standing(next.Token, election.StandingCurrent, next.Number)
	})

	t.Run("ExpiredIsVacant", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		g := u.win(election.AcquireOptions{Owner: "a", TTL: short})
		until(t, u.ctx, "the end of the lease", func() bool {
			return u.validate(g.Token).Standing == election.StandingVacant
		})
		// Nothing revives it but an acquisition, which is a new one.
		u.renew(g.Token, election.Lost)
		u.resign(g.Token, election.ResignOptions{}, election.NotOwner)
		if r := u.status(); r.Status != election.Vacant || r.Number != g.Number {
			t.Errorf("Status %+v, want the last number %d", r, g.Number)
		}
		if r := u.win(election.AcquireOptions{Owner: "a", Token: g.Token}); r.Number <= g.Number {
			t.Errorf("number %d after %d", r.Number, g.Number)
		}
	})

	t.Run("RenewExtends", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		g := u.win(election.AcquireOptions{})
		var left time.Duration
		until(t, u.ctx, "time passing", func() bool {
			left = u.status().Remaining
			return left < long-50*time.Millisecond
		})
		if r := u.renew(g.Token, election.Renewed); r.Remaining <= left {
			t.Errorf("%v left before, %v after Renew", left, r.Remaining)
		}
		if r := u.validate(g.Token); r.Remaining <= left {
			t.Errorf("%v left before, %v after Renew", left, r.Remaining)
		}
		// Asking again extends it too.
		until(t, u.ctx, "time passing", func() bool {
			left = u.status().Remaining
			return left < long-50*time.Millisecond
		})
		if r := u.win(election.AcquireOptions{Token: g.Token}); r.Remaining <= left {
			t.Errorf("%v left before, %v after Acquire", left, r.Remaining)
		}
	})

	t.Run("RemainingIsExact", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		const ttl = 12345 * time.Millisecond
		asked := time.Now()
		g := u.win(election.AcquireOptions{TTL: ttl})
		for name, get := range map[string]func() time.Duration{
			"Status":   func() time.Duration { return u.status().Remaining },
			"Validate": func() time.Duration { return u.validate(g.Token).Remaining },
			"stale":    func() time.Duration { return u.validate(election.NewToken()).Remaining },
			"busy":     func() time.Duration { return u.acquire(election.AcquireOptions{}).Remaining },
		} {
			left := get()
			if least := ttl - time.Since(asked) - grain; left > ttl || left < least {
				t.Errorf("%s: %v left, want %v to %v", name, left, least, ttl)
			}
		}
		asked = time.Now()
		r := u.renew(g.Token, election.Renewed)
		if least := ttl - time.Since(asked) - grain; r.Remaining > ttl || r.Remaining < least {
			t.Errorf("Renew: %v left, want %v to %v", r.Remaining, least, ttl)
		}
	})
}

// The hold-off, or its refusal.
func (s suite) holdOff(t *testing.T) {
	if !s.HoldOff {
		t.Run("Refused", func(t *testing.T) {
			t.Parallel()
			u := s.user(t)
			g := u.win(election.AcquireOptions{Owner: "a"})
			for _, o := range []election.ResignOptions{{HoldOff: time.Nanosecond}, {HoldOff: time.Minute}} {
				for _, token := range []election.Token{g.Token, election.NewToken()} {
					if r, err := u.b.Resign(u.ctx, u.id, token, o); !errors.Is(err, election.ErrUnsupportedOption) || r.Status != 0 {
						t.Fatalf("Resign with %+v: %+v, %v", o, r, err)
					}
					u.standing(g.Token, election.StandingCurrent, g.Number)
				}
			}
			u.resign(g.Token, election.ResignOptions{}, election.Released)
			u.win(election.AcquireOptions{})
		})
		return
	}

	t.Run("Holds", func(t *testing.T) {
		t.Parallel()
		h1, h2 := s.pair(t)
		u := user{t, within(t), h1, fresh()}
		g := u.win(election.AcquireOptions{Owner: "a"})
		// Somebody else's resignation arms nothing.
		u.resign(election.NewToken(), election.ResignOptions{HoldOff: time.Minute}, election.NotOwner)
		u.standing(g.Token, election.StandingCurrent, g.Number)
		u.resign(g.Token, election.ResignOptions{HoldOff: time.Minute}, election.Released)
		u.resign(g.Token, election.ResignOptions{HoldOff: time.Hour}, election.NotOwner)
		for _, o := range []election.AcquireOptions{{}, {Owner: "a"}, {Token: g.Token}, {MinFencing: 1 << 60}} {
			r := u.with(h2).acquire(o)
			if r.Status != election.Busy || r.Reason != election.BusyHoldOff || r.Remaining > time.Minute {
				t.Fatalf("Acquire(%+v) answers %+v, want busy, hold-off", o, r)
			}
		}
		u.standing(g.Token, election.StandingVacant, 0)
		u.renew(g.Token, election.Lost)
		if r := u.status(); r.Status != election.Vacant || r.Number != g.Number || r.HoldOff <= 0 || r.HoldOff > time.Minute {
			t.Errorf("Status %+v", r)
		}
	})

	t.Run("Ends", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		g := u.win(election.AcquireOptions{})
		asked := time.Now()
		u.resign(g.Token, election.ResignOptions{HoldOff: short}, election.Released)
		var next election.AcquireResult
		until(t, u.ctx, "the end of the hold-off", func() bool {
			next = u.acquire(election.AcquireOptions{})
			return next.Status == election.Acquired
		})
		if d := time.Since(asked); d < short-grain {
			t.Errorf("claimed after %v of a hold-off of %v", d, short)
		}
		if next.Number <= g.Number {
			t.Errorf("number %d after %d", next.Number, g.Number)
		}
		// The new lease is a lease, and its release is free of the old hold-off.
		u.busy(election.AcquireOptions{}, next)
		u.resign(next.Token, election.ResignOptions{}, election.Released)
		if r := u.status(); r.HoldOff != 0 {
			t.Errorf("Status %+v", r)
		}
		u.win(election.AcquireOptions{})
	})

	t.Run("ShorterThanAMillisecond", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		g := u.win(election.AcquireOptions{})
		u.resign(g.Token, election.ResignOptions{HoldOff: time.Nanosecond}, election.Released)
		until(t, u.ctx, "the end of the hold-off", func() bool {
			return u.acquire(election.AcquireOptions{}).Status == election.Acquired
		})
	})
}
