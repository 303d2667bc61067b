package zookeeper

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

const long = 10 * time.Minute

// until asks again and again until f says yes.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for !f() {
		select {
		case <-end:
			t.Fatalf("%s: did not happen", what)
		case <-tick.C:
		}
	}
}

// within bounds one test's calls.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func acquire(t testing.TB, b *Backend, id string, o election.AcquireOptions, want election.AcquireStatus) election.AcquireResult {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = long
	}
	r, err := b.Acquire(within(t), id, o)
	if err != nil || r.Status != want {
		t.Fatalf("Acquire: %+v, %v, want %v", r, err, want)
	}
	return r
}

func renew(t testing.TB, b *Backend, id string, token election.Token, want election.RenewStatus) election.RenewResult {
	t.Helper()
	r, err := b.Renew(within(t), id, token)
	if err != nil || r.Status != want {
		t.Fatalf("Renew: %+v, %v, want %v", r, err, want)
	}
	return r
}

func resign(t testing.TB, b *Backend, id string, token election.Token, want election.ResignStatus) {
	t.Helper()
	r, err := b.Resign(within(t), id, token, election.ResignOptions{})
	if err != nil || r.Status != want {
		t.Fatalf("Resign: %+v, %v, want %v", r, err, want)
	}
}

func status(t testing.TB, b *Backend, id string) election.StatusResult {
	t.Helper()
	r, err := b.Status(within(t), id)
	if err != nil {
		t.Fatalf("Status: %v", err)
	}
	return r
}

func validate(t testing.TB, b *Backend, id string, token election.Token, want election.Standing) election.ValidateResult {
	t.Helper()
	r, err := b.Validate(within(t), id, token)
	if err != nil || r.Standing != want {
		t.Fatalf("Validate: %+v, %v, want %v", r, err, want)
	}
	return r
}

// Faults of the ensemble, one after the other.
func TestServerFaults(t *testing.T) {
	z := testenv.ZooKeeper(t, servers.ZooKeeperOptions{})
	const chroot = "/faults"
	o := Options{AnswerTimeout: time.Second}
	heal := func(t *testing.T) {
		t.Helper()
		for _, p := range z.Nodes {
			_ = p.Signal(syscall.SIGCONT)
		}
		if err := z.Restart(testenv.Context(t)); err != nil {
			t.Fatal(err)
		}
	}

	// kill -9 of the server that leads: the leadership goes on, its number stands.
	t.Run("LeaderKilled", func(t *testing.T) {
		b, other := opened(t, z.Addrs(), chroot, o), opened(t, z.Addrs(), chroot, o)
		g := acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
		leader, err := z.Leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		z.Nodes[leader].Kill()
		var r election.RenewResult
		until(t, "renewing", func() bool {
			r, err = b.Renew(within(t), "e", g.Token)
			return err == nil
		})
		if r.Status != election.Renewed || r.Number != g.Number {
			t.Errorf("%+v, granted was %+v", r, g)
		}
		acquire(t, other, "e", election.AcquireOptions{}, election.Busy)
		validate(t, other, "e", g.Token, election.StandingCurrent)
		heal(t)
		validate(t, other, "e", g.Token, election.StandingCurrent)
	})

	// SIGSTOP of the server that a client is connected to: it is silent, and another
	// server is asked within the answer timeout, in the same session.
	t.Run("ServerStopped", func(t *testing.T) {
		b := opened(t, z.Addrs(), chroot, o)
		g := acquire(t, b, "stopped", election.AcquireOptions{}, election.Acquired)
		before := b.current.name()
		stopped := 0
		for i, p := range z.Nodes {
			if p.Addr == b.current.conn.Server() {
				stopped = i
			}
		}
		if err := z.Nodes[stopped].Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		var r election.RenewResult
		until(t, "renewing", func() bool { // where it led, the others elect first
			var err error
			r, err = b.Renew(within(t), "stopped", g.Token)
			return err == nil
		})
		if r.Status != election.Renewed || r.Number != g.Number || b.current.name() != before {
			t.Errorf("%+v in session %s, was %+v in %s", r, b.current.name(), g, before)
		}
		heal(t)
		validate(t, b, "stopped", g.Token, election.StandingCurrent)
	})

	// The whole ensemble stops and goes on.
	t.Run("EnsembleStopped", func(t *testing.T) {
		b := opened(t, z.Addrs(), chroot, o)
		g := acquire(t, b, "all", election.AcquireOptions{}, election.Acquired)
		for _, p := range z.Nodes {
			if err := p.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		asked := time.Now()
		if r, err := b.Renew(ctx, "all", g.Token); !errors.Is(err, election.ErrUnavailable) || r.Status != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if d := time.Since(asked); d > 10*time.Second {
			t.Errorf("returned after %v", d)
		}
		heal(t)
		var r election.RenewResult
		until(t, "renewing", func() bool {
			var err error
			r, err = b.Renew(within(t), "all", g.Token)
			return err == nil
		})
		if r.Status != election.Renewed || r.Number != g.Number {
			t.Errorf("%+v, granted was %+v", r, g)
		}
	})

	// A server that was away while things changed answers only once it has caught up.
	t.Run("LaggingServer", func(t *testing.T) {
		leader, err := z.Leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lag := z.Nodes[(leader+1)%3]
		a, b := opened(t, z.Nodes[leader].Addr, chroot, o), opened(t, lag.Addr, chroot, Options{})
		old := acquire(t, a, "lag", election.AcquireOptions{}, election.Acquired)
		validate(t, b, "lag", old.Token, election.StandingCurrent)
		for range 20 {
			if err := lag.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			resign(t, a, "lag", old.Token, election.Released)
			next := acquire(t, a, "lag", election.AcquireOptions{}, election.Acquired)
			answer := make(chan election.ValidateResult, 1)
			go func() {
				r, err := b.Validate(within(t), "lag", old.Token)
				if err != nil {
					t.Error(err)
				}
				answer <- r
			}()
			if err := lag.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if r := <-answer; r.Standing != election.StandingStale || r.Number != next.Number {
				t.Fatalf("%+v, the holder is %+v", r, next)
			}
			old = next
		}
	})

	// E9: every server loses its data.
	t.Run("DataWiped", func(t *testing.T) {
		o := Options{SessionTimeout: 2 * time.Second}
		b, other := opened(t, z.Addrs(), chroot, o), opened(t, z.Addrs(), chroot, o)
		g := acquire(t, b, "e9", election.AcquireOptions{}, election.Acquired)
		if err := z.Wipe(testenv.Context(t)); err != nil {
			t.Fatal(err)
		}
		until(t, "being told of the loss", func() bool {
			r, err := b.Renew(within(t), "e9", g.Token)
			if err == nil && r.Status != election.Lost {
				t.Fatalf("%+v", r)
			}
			return err == nil
		})
		until(t, "being served", func() bool {
			_, err := other.Status(within(t), "e9")
			return err == nil
		})
		if r := status(t, other, "e9"); r != (election.StatusResult{Status: election.Vacant}) {
			t.Errorf("%+v", r)
		}
		validate(t, other, "e9", g.Token, election.StandingVacant)
		if r := acquire(t, other, "e9", election.AcquireOptions{}, election.Acquired); r.Number <= g.Number {
			t.Errorf("number %d after %d", r.Number, g.Number)
		}
		validate(t, b, "e9", g.Token, election.StandingStale)
	})
}

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
			until(t, "the expiry", func() bool {
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

			until(t, "the end of the session", func() bool {
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
			until(t, "connecting again", func() (ok bool) {
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
			until(t, "the end of the lease", func() bool {
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

// E3: packets vanish with no reset. Calls end with their contexts, and when the network
// is back within the session's time, the leadership was never gone.
func TestNetworkSilent(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	var forwarders []*testenv.Forwarder
	var addrs []string
	for _, p := range z.Nodes {
		f := testenv.Forward(t, p.Addr)
		forwarders, addrs = append(forwarders, f), append(addrs, f.Addr)
	}
	const chroot = "/silent"
	b := opened(t, strings.Join(addrs, ","), chroot, Options{AnswerTimeout: 500 * time.Millisecond})
	other := opened(t, z.Addrs(), chroot, Options{})
	g := acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	for _, f := range forwarders {
		f.Silence()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	asked := time.Now()
	r, err := b.Renew(ctx, "e", g.Token)
	if d := time.Since(asked); !errors.Is(err, election.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || d > 5*time.Second {
		t.Errorf("%+v, %v after %v", r, err, d)
	}
	// Without a deadline it is the answer timeouts that end it.
	if r, err := b.Renew(t.Context(), "e", g.Token); !errors.Is(err, election.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", r, err)
	}
	validate(t, other, "e", g.Token, election.StandingCurrent)
	for _, f := range forwarders {
		f.Speak()
	}
	until(t, "renewing", func() bool {
		r, err = b.Renew(within(t), "e", g.Token)
		return err == nil
	})
	if r.Status != election.Renewed || r.Number != g.Number {
		t.Errorf("%+v, granted was %+v", r, g)
	}
	// One server alone is silent: another is asked within the same call.
	for i, f := range forwarders {
		if f.Addr == b.current.conn.Server() {
			forwarders[i].Silence()
		}
	}
	asked = time.Now()
	renew(t, b, "e", g.Token, election.Renewed)
	if d := time.Since(asked); d > 10*time.Second { // the library itself waits for two thirds of 30 seconds
		t.Errorf("turned to another server after %v", d)
	}
}

// E11: the transaction was carried out and its reply lost with the connection. The same
// call finds out.
func TestReplyLostInCall(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	var p tap
	b := opened(t, z.Addrs(), "/lost", Options{Dial: p.dial})
	loseOne := func() {
		lost := false
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lose = func() bool { was := lost; lost = true; return !was }
	}
	loseOne()
	g := acquire(t, b, "e", election.AcquireOptions{Owner: "a"}, election.Acquired)
	if r := status(t, b, "e"); r.Number != g.Number {
		t.Errorf("%+v, granted was %+v", r, g)
	}
	loseOne()
	if r := renew(t, b, "e", g.Token, election.Renewed); r.Number != g.Number {
		t.Errorf("%+v, granted was %+v", r, g)
	}
	loseOne()
	resign(t, b, "e", g.Token, election.Released)
	resign(t, b, "e", g.Token, election.NotOwner)
	// A reply that is lost every time is an error, with the outcome unknown.
	p.mu.Lock()
	p.lose = func() bool { return true }
	p.mu.Unlock()
	token := election.NewToken()
	if r, err := b.Acquire(within(t), "e", election.AcquireOptions{Token: token}); !errors.Is(err, election.ErrUnavailable) {
		t.Errorf("%+v, %v", r, err)
	}
	p.mu.Lock()
	p.lose = nil
	p.mu.Unlock()
	acquire(t, b, "e", election.AcquireOptions{Token: token}, election.Acquired)
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
	until(t, "the expiry", func() bool {
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

// Digest authentication: what one user keeps, another can neither read nor change, and
// one who may read can validate.
func TestRights(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	owner := Options{User: "owner", Password: "the password"}
	b := opened(t, z.Addrs(), "/rights/a/b", owner)
	g := acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	validate(t, opened(t, z.Addrs(), "/rights/a/b", owner), "e", g.Token, election.StandingCurrent)
	for _, o := range []Options{{}, {User: "owner", Password: "another"}, {User: "another", Password: "the password"}} {
		other := opened(t, z.Addrs(), "/rights/a/b", o)
		for name, call := range map[string]func() error{
			"Acquire":  func() error { _, err := other.Acquire(within(t), "e", election.AcquireOptions{}); return err },
			"Create":   func() error { _, err := other.Acquire(within(t), "new", election.AcquireOptions{}); return err },
			"Renew":    func() error { _, err := other.Renew(within(t), "e", g.Token); return err },
			"Validate": func() error { _, err := other.Validate(within(t), "e", g.Token); return err },
			"Status":   func() error { _, err := other.Status(within(t), "e"); return err },
		} {
			err := call()
			if !errors.Is(err, election.ErrUnavailable) || !errors.Is(err, zk.ErrNoAuth) || strings.Contains(err.Error(), "password") {
				t.Errorf("%s by %q: %v", name, o.User, err)
			}
		}
	}
	shown := owner
	shown.ACL = append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)
	b = opened(t, z.Addrs(), "/rights/shown", shown)
	g = acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	reader := opened(t, z.Addrs(), "/rights/shown", Options{})
	validate(t, reader, "e", g.Token, election.StandingCurrent)
	if _, err := reader.Renew(within(t), "e", g.Token); !errors.Is(err, zk.ErrNoAuth) {
		t.Error(err)
	}
	renew(t, b, "e", g.Token, election.Renewed)
}

// What is not ours is neither believed nor overwritten.
func TestForeignNodes(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	c := plain(t, z)
	b := opened(t, z.Addrs(), "/foreign", Options{})
	acquire(t, b, "first", election.AcquireOptions{}, election.Acquired)
	valid := record{
		Number: 5, State: stateReleased, Owner: "a", Digest: election.NewToken().Digest().String(), TTL: 1000, Session: "0x1",
	}
	for i, data := range []string{
		"", "{}", "null", "[]", "x", `{"number":1}`, string(record{}.encode()),
		strings.Replace(string(valid.encode()), "5", "0", 1), strings.Replace(string(valid.encode()), "5", "5.5", 1),
		strings.Replace(string(valid.encode()), "released", "other", 1), strings.Replace(string(valid.encode()), `"a"`, `""`, 1),
		strings.Replace(string(valid.encode()), "1000", "9223372036854775807", 1), strings.Replace(string(valid.encode()), "1000", "-1", 1),
		strings.Replace(string(valid.encode()), `"digest":"`, `"digest":"00`, 1),
	} {
		id := election.NewToken().Reveal()[1:]
		id = "e" + id
		if _, err := c.Create(b.path(id), []byte(data), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		if r, err := b.Acquire(within(t), id, election.AcquireOptions{}); !errors.Is(err, election.ErrCorrupt) {
			t.Errorf("%d: %+v, %v", i, r, err)
		}
		if r, err := b.Validate(within(t), id, election.NewToken()); !errors.Is(err, election.ErrCorrupt) {
			t.Errorf("%d: %+v, %v", i, r, err)
		}
		if now, _, err := c.Get(b.path(id)); err != nil || string(now) != data {
			t.Errorf("%d: %s, %v", i, now, err)
		}
	}
	// A child of somebody else's passes for a lease, and then nothing can be acquired;
	// the call ends and says so.
	if _, err := c.Create(b.path("child"), valid.encode(), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(b.path("child")+"/x", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if r, err := b.Acquire(within(t), "child", election.AcquireOptions{}); !errors.Is(err, election.ErrUnavailable) {
		t.Errorf("%+v, %v", r, err)
	}
}

// Validate is one flight, a sync and a read, and writes nothing.
func TestValidateIsOneRead(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	var p tap
	b := opened(t, z.Addrs(), "/one", Options{Dial: p.dial})
	g := acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	p.wrote()
	validate(t, b, "e", g.Token, election.StandingCurrent)
	w := p.wrote()
	if len(w) != 1 || w[0][11] != opSync || w[0][len(syncRequest)+11] != opGetData ||
		len(w[0]) != len(syncRequest)+4+8+4+len(b.path("e"))+1 {
		t.Errorf("%q", w)
	}
}
