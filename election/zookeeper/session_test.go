package zookeeper

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// E10: the session ends, and the client connects again. The leadership is over, and the
// next is through a node of the new session, with a new number. Nobody else is let in
// before the lease has run out.
func TestSessionExpires(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	const chroot = "/expires"
	for name, end := range map[string]func(t *testing.T, p *tap){
		// An operator, or anything that has its password, closes the session.
		"ClosedByAnother": func(t *testing.T, p *tap) { p.endSession(t, z.Nodes[0].Addr) },
		// The client is cut off for longer than the session's timeout.
		"CutOff": func(t *testing.T, p *tap) {
			p.cut()
			c := plain(t, z)
			testenv.Eventually(t, "the expiry", func() bool {
				there, _, err := c.Exists(chroot + "/fenceproxy/CutOff/lease")
				return err == nil && !there
			})
			p.down.Store(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p tap
			b := opened(t, z.Addrs(), chroot, Options{Dial: p.dial, SessionTimeout: time.Second})
			other := opened(t, z.Addrs(), chroot, Options{})
			const ttl = 4 * time.Second
			asked := time.Now()
			g := acquire(t, b, name, election.AcquireOptions{TTL: ttl}, election.Acquired)
			validate(t, other, name, g.Token, election.StandingCurrent)
			before := b.current
			end(t, &p)

			testenv.Eventually(t, "the end of the session", func() bool {
				r, err := other.Validate(within(t), name, g.Token)
				return err == nil && r.Standing == election.StandingVacant
			})
			if r := status(t, other, name); r.Status != election.Vacant || r.Number != g.Number || r.HoldOff <= 0 {
				t.Errorf("%+v", r)
			}
			r := acquire(t, other, name, election.AcquireOptions{}, election.Busy)
			if r.Reason != election.BusyHoldOff || r.Remaining <= 0 || r.Remaining > ttl {
				t.Errorf("%+v", r)
			}
			if d := time.Since(asked); d >= ttl {
				t.Fatalf("the machine is too slow for this test: %v", d)
			}
			// The holder itself connects again and is told; with its token it may begin anew.
			var lost election.RenewResult
			testenv.Eventually(t, "connecting again", func() (ok bool) {
				var err error
				lost, err = b.Renew(within(t), name, g.Token)
				return err == nil
			})
			// No request made for the old session can have been sent in the new one.
			if lost.Status != election.Lost || b.current == before || b.current.name() == before.name() {
				t.Errorf("%+v in session %s, before it was %s", lost, b.current.name(), before.name())
			}
			resign(t, b, name, g.Token, election.NotOwner)
			if name == "CutOff" {
				again := acquire(t, b, name, election.AcquireOptions{Token: g.Token}, election.Acquired)
				if again.Number <= g.Number {
					t.Errorf("number %d after %d", again.Number, g.Number)
				}
				validate(t, other, name, g.Token, election.StandingCurrent)
				return
			}
			// Anybody else waits for the lease.
			var next election.AcquireResult
			testenv.Eventually(t, "the end of the lease", func() bool {
				next = electionAcquire(t, other, name)
				return next.Status == election.Acquired
			})
			if d := time.Since(asked); d < ttl || next.Number <= g.Number {
				t.Errorf("acquired after %v of %v: %+v after %+v", d, ttl, next, g)
			}
		})
	}
}

func electionAcquire(t testing.TB, b *Backend, id string) election.AcquireResult {
	t.Helper()
	r, err := b.Acquire(within(t), id, election.AcquireOptions{TTL: long})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// E2: the lease's node is deleted under a live holder. Its next Renew says lost and
// writes nothing.
func TestLeaseDeleted(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	c := plain(t, z)
	b := opened(t, z.Addrs(), "/deleted", Options{})
	g := acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	if err := c.Delete(b.path("e")+"/lease", -1); err != nil {
		t.Fatal(err)
	}
	before := dump(t, c, b.path("e"))
	validate(t, b, "e", g.Token, election.StandingVacant)
	renew(t, b, "e", g.Token, election.Lost)
	resign(t, b, "e", g.Token, election.NotOwner)
	if _, err := c.Sync("/"); err != nil {
		t.Fatal(err)
	}
	if after := dump(t, c, b.path("e")); after != before {
		t.Errorf("%s\nwas %s", after, before)
	}
}

// A server ends the connection: no connection carries a leadership, only the session.
func TestConnectionEnded(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	var p tap
	b := opened(t, z.Addrs(), "/ended", Options{Dial: p.dial})
	g := acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	for range 5 {
		p.cut()
		p.down.Store(false)
		if r := renew(t, b, "e", g.Token, election.Renewed); r.Number != g.Number {
			t.Errorf("%+v, granted was %+v", r, g)
		}
	}
}

// A closed backend leaves its session, and the leadership in it, to the session's
// timeout.
func TestCloseLeavesTheSession(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	other := opened(t, z.Addrs(), "/close", Options{})
	b := openAt(t, z.Addrs(), "/close", Options{SessionTimeout: time.Second})
	asked := time.Now()
	g := acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	validate(t, other, "e", g.Token, election.StandingCurrent)
	testenv.Eventually(t, "the expiry", func() bool {
		r, err := other.Validate(within(t), "e", g.Token)
		return err == nil && r.Standing == election.StandingVacant
	})
	if d := time.Since(asked); d < time.Second {
		t.Errorf("the session ended after %v", d)
	}
	// Somebody who renews through another session takes the lease there.
	b = openAt(t, z.Addrs(), "/close", Options{SessionTimeout: time.Second})
	g = acquire(t, b, "moved", election.AcquireOptions{}, election.Acquired)
	renew(t, other, "moved", g.Token, election.Renewed)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c := plain(t, z)
	session := b.current
	_, stat, err := c.Get(b.path("moved") + "/lease")
	if err != nil || stat.EphemeralOwner == session.id || stat.EphemeralOwner != other.current.id {
		t.Errorf("%+v, %v", stat, err)
	}
}
