package zookeeper

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

const long = 10 * time.Minute

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

	// A server that was away while things changed answers only once it has caught up. First,
	// since it needs an ensemble that all its servers are well in.
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
		testenv.Eventually(t, "renewing", func() bool {
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
		testenv.Eventually(t, "renewing", func() bool { // where it led, the others elect first
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
		testenv.Eventually(t, "renewing", func() bool {
			var err error
			r, err = b.Renew(within(t), "all", g.Token)
			return err == nil
		})
		if r.Status != election.Renewed || r.Number != g.Number {
			t.Errorf("%+v, granted was %+v", r, g)
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
		testenv.Eventually(t, "being told of the loss", func() bool {
			r, err := b.Renew(within(t), "e9", g.Token)
			if err == nil && r.Status != election.Lost {
				t.Fatalf("%+v", r)
			}
			return err == nil
		})
		testenv.Eventually(t, "being served", func() bool {
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
	testenv.Eventually(t, "renewing", func() bool {
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
