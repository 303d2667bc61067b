package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// With fake time the lease and the hold-off end to the nanosecond.
func TestLeaseAndHoldOffEndExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, b := t.Context(), New()
		a, err := b.Acquire(ctx, "e", election.AcquireOptions{Owner: "a", TTL: 10 * time.Second})
		if err != nil || a.Status != election.Acquired || a.Number != time.Now().UnixMilli() {
			t.Fatalf("%+v, %v", a, err)
		}
		time.Sleep(6 * time.Second)
		if r, err := b.Renew(ctx, "e", a.Token); err != nil || r.Status != election.Renewed || r.Number != a.Number {
			t.Fatalf("%+v, %v", r, err)
		}
		time.Sleep(10*time.Second - 1)
		if v, _ := b.Validate(ctx, "e", a.Token); v.Standing != election.StandingCurrent || v.Remaining != 1 {
			t.Errorf("just before its end: %+v", v)
		}
		time.Sleep(1 * time.Nanosecond)
		if v, _ := b.Validate(ctx, "e", a.Token); v.Standing != election.StandingVacant {
			t.Errorf("at its end: %+v", v)
		}
		if r, _ := b.Renew(ctx, "e", a.Token); r.Status != election.Lost {
			t.Errorf("renewed at its end: %+v", r)
		}

		c, _ := b.Acquire(ctx, "e", election.AcquireOptions{Owner: "c"})
		if c.Number <= a.Number {
			t.Errorf("number %d after %d", c.Number, a.Number)
		}
		if r, _ := b.Resign(ctx, "e", c.Token, election.ResignOptions{HoldOff: time.Minute}); r.Status != election.Released {
			t.Fatalf("%+v", r)
		}
		time.Sleep(time.Minute - 1)
		if d, _ := b.Acquire(ctx, "e", election.AcquireOptions{}); d.Reason != election.BusyHoldOff || d.Remaining != 1 {
			t.Errorf("just before the end of the hold-off: %+v", d)
		}
		time.Sleep(1 * time.Nanosecond)
		if d, _ := b.Acquire(ctx, "e", election.AcquireOptions{}); d.Status != election.Acquired || d.Number <= c.Number {
			t.Errorf("after the hold-off: %+v", d)
		}
	})
}
