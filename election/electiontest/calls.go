package electiontest

import (
	"math"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// The five calls, each outcome once.
func (s suite) calls(t *testing.T) {
	t.Run("TwoCandidates", func(t *testing.T) {
		t.Parallel()
		h1, h2 := s.pair(t)
		a := user{t, within(t), h1, fresh()}
		b := a.with(h2)
		third := election.NewToken()

		if r := a.status(); r != (election.StatusResult{Status: election.Vacant}) {
			t.Fatalf("Status of an election that never was: %+v", r)
		}
		a.standing(third, election.StandingVacant, 0)
		a.renew(third, election.Lost)
		a.resign(third, election.ResignOptions{}, election.NotOwner)
		if r := a.status(); r != (election.StatusResult{Status: election.Vacant}) {
			t.Fatalf("Status after calls that change nothing: %+v", r)
		}

		first := a.win(election.AcquireOptions{Owner: "a"})
		if first.Owner != "a" {
			t.Errorf("owner %q", first.Owner)
		}
		b.busy(election.AcquireOptions{Owner: "b"}, first)
		if r := b.status(); r.Status != election.Held || r.Owner != "a" || r.Number != first.Number || r.Remaining > long {
			t.Errorf("Status %+v", r)
		}
		b.standing(first.Token, election.StandingCurrent, first.Number)
		b.standing(third, election.StandingStale, first.Number)
		b.renew(third, election.Lost)
		b.resign(third, election.ResignOptions{}, election.NotOwner)
		if r := a.renew(first.Token, election.Renewed); r.Number != first.Number || r.Remaining > long {
			t.Errorf("Renew %+v, want number %d", r, first.Number)
		}
		b.standing(first.Token, election.StandingCurrent, first.Number)

		a.resign(first.Token, election.ResignOptions{}, election.Released)
		a.resign(first.Token, election.ResignOptions{}, election.NotOwner)
		a.renew(first.Token, election.Lost)
		b.standing(first.Token, election.StandingVacant, 0)
		if r := b.status(); r.Status != election.Vacant || r.Number != first.Number {
			t.Errorf("Status after the release %+v, want the last number %d", r, first.Number)
		}

		second := b.win(election.AcquireOptions{Owner: "b"})
		a.standing(first.Token, election.StandingStale, second.Number)
		a.standing(second.Token, election.StandingCurrent, second.Number)
		a.renew(first.Token, election.Lost)
		a.resign(first.Token, election.ResignOptions{}, election.NotOwner)
		a.standing(second.Token, election.StandingCurrent, second.Number)
	})

	t.Run("Defaults", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		r, err := u.b.Acquire(u.ctx, u.id, election.AcquireOptions{})
		if err != nil || r.Status != election.Acquired || r.Remaining > election.DefaultTTL ||
			r.Remaining < election.DefaultTTL/2 || election.CheckOwner(r.Owner) != nil || r.Token.IsZero() {
			t.Fatalf("%+v, %v", r, err)
		}
		other := u.of(fresh()).win(election.AcquireOptions{})
		if other.Token == r.Token || other.Owner == r.Owner {
			t.Errorf("two grants alike: %+v, %+v", r, other)
		}
	})

	t.Run("ElectionsAreApart", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		base := fresh()
		grants := map[string]election.AcquireResult{}
		for _, id := range []string{base, base + "/x", base + ":x", base + ".x", base + "-X", base + "-x", base + "_x"} {
			grants[id] = u.of(id).win(election.AcquireOptions{})
		}
		for id, g := range grants {
			for of, other := range grants {
				want := election.StandingStale
				if of == id {
					want = election.StandingCurrent
				}
				u.of(id).standing(other.Token, want, g.Number)
			}
		}
		u.of(base).resign(grants[base+":x"].Token, election.ResignOptions{}, election.NotOwner)
		u.of(base).resign(grants[base].Token, election.ResignOptions{}, election.Released)
		u.of(base+":x").standing(grants[base+":x"].Token, election.StandingCurrent, grants[base+":x"].Number)
	})
}

// What a fencing number is.
func (s suite) numbers(t *testing.T) {
	t.Run("RiseWithEachAcquisitionOnly", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		before := time.Now()
		last := int64(0)
		for range 20 {
			// E8: the same owner again gets another number.
			g := u.win(election.AcquireOptions{Owner: "same"})
			if g.Number <= last {
				t.Fatalf("number %d after %d", g.Number, last)
			}
			last = g.Number
			for range 3 {
				if r := u.renew(g.Token, election.Renewed); r.Number != g.Number {
					t.Fatalf("renewed with number %d, acquired with %d", r.Number, g.Number)
				}
			}
			u.busy(election.AcquireOptions{}, g)
			u.standing(g.Token, election.StandingCurrent, g.Number)
			u.resign(g.Token, election.ResignOptions{}, election.Released)
		}
		// The clock term: a server on this machine, or one with a clock like ours.
		if ms := before.Add(-time.Minute).UnixMilli(); last < ms {
			t.Errorf("number %d is below the clock's %d", last, ms)
		}
	})

	t.Run("OwnGrant", func(t *testing.T) {
		t.Parallel()
		h1, h2 := s.pair(t)
		u := user{t, within(t), h1, fresh()}
		token := election.NewToken()
		o := election.AcquireOptions{Owner: "a", Token: token}
		g := u.win(o)
		// E11: asked again, with another floor and another name, through another
		// connection: the same grant, unchanged but for the fresh lease.
		for _, o := range []election.AcquireOptions{
			o, {Token: token}, {Token: token, Owner: "b"}, {Token: token, MinFencing: g.Number + 1000},
		} {
			again := u.with(h2).win(o)
			if again.Number != g.Number || again.Owner != "a" || again.Token != token {
				t.Fatalf("asked again with %+v: %+v, granted was %+v", o, again, g)
			}
		}
		u.busy(election.AcquireOptions{Owner: "b"}, g)
		// A longer lease asked for at the repetition is the lease.
		if r := u.win(election.AcquireOptions{Token: token, TTL: time.Hour}); r.Remaining <= long {
			t.Errorf("asked again for an hour: %+v", r)
		}
		if r := u.renew(token, election.Renewed); r.Remaining <= long {
			t.Errorf("renewed for %v after asking for an hour", r.Remaining)
		}
		// Safety: a shorter one is not. It may be an earlier request that arrives late, after
		// a later one has told the holder of a longer lease.
		if r := u.win(election.AcquireOptions{Token: token, TTL: election.MinTTL}); r.Remaining <= long {
			t.Errorf("asked again for less: %+v", r)
		}
		if r := u.with(h2).status(); r.Remaining <= long {
			t.Errorf("after asking again for less: %+v", r)
		}
		if r := u.renew(token, election.Renewed); r.Remaining <= long {
			t.Errorf("renewed for %v after asking again for less", r.Remaining)
		}
		// Released and acquired with the token of old: a new grant.
		u.resign(token, election.ResignOptions{}, election.Released)
		if r := u.win(o); r.Number <= g.Number {
			t.Errorf("number %d after %d", r.Number, g.Number)
		}
	})

	t.Run("Floor", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		next := func(floor int64) int64 {
			g := u.win(election.AcquireOptions{MinFencing: floor})
			u.standing(g.Token, election.StandingCurrent, g.Number)
			if r := u.status(); r.Number != g.Number {
				t.Fatalf("Status says %d, granted was %d", r.Number, g.Number)
			}
			if r := u.renew(g.Token, election.Renewed); r.Number != g.Number {
				t.Fatalf("Renew says %d, granted was %d", r.Number, g.Number)
			}
			u.resign(g.Token, election.ResignOptions{}, election.Released)
			return g.Number
		}
		if a, b := next(1), next(2); b <= a {
			t.Fatalf("a low floor: %d after %d", b, a)
		}
		// Numbers stay exact where a float64 no longer is.
		for _, floor := range []int64{1 << 50, 1<<53 - 3, 1<<53 + 101, 1<<60 + 7, 1<<60 + 70, math.MaxInt64 - 3} {
			if n := next(floor); n != floor {
				t.Fatalf("floor %d: number %d", floor, n)
			}
			for _, low := range []int64{0, 1, floor - 1, floor} {
				if floor == math.MaxInt64-3 && low == floor-1 {
					break // two more numbers are left
				}
				last := u.status().Number
				if n := next(low); n != last+1 {
					t.Fatalf("floor %d after %d: number %d", low, last, n)
				}
			}
		}
		g := u.win(election.AcquireOptions{})
		if g.Number != math.MaxInt64 {
			t.Fatalf("number %d, want the last one", g.Number)
		}
		u.renew(g.Token, election.Renewed)
		u.resign(g.Token, election.ResignOptions{}, election.Released)
		fails(t, election.ErrNumbersExhausted, func() (any, error) {
			return u.b.Acquire(u.ctx, u.id, election.AcquireOptions{})
		})
		if r := u.status(); r.Status != election.Vacant || r.Number != math.MaxInt64 {
			t.Errorf("Status %+v", r)
		}
	})
}
