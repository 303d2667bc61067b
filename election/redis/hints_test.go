package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// subscribers is how many listen for releases of an election.
func subscribers(t testing.TB, c *goredis.Client, id string) int64 {
	t.Helper()
	n, err := c.PubSubNumSub(t.Context(), releasedChannel(id)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n[releasedChannel(id)]
}

// A candidate has one subscription, a leader has none, and none is left of one that ended;
// with a backend's own connections and on a client of the caller's.
func TestSubscriptionsEnd(t *testing.T) {
	p := testenv.SharedRedis(t)
	c := plain(t, p.Addr)
	for name, open := range map[string]func() *Backend{
		"Own":     func() *Backend { return openAt(t, p.Addr) },
		"Callers": func() *Backend { return New(plain(t, p.Addr), Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			b, id := open(), "subscriptions/"+name
			defer b.Close()
			g := win(t, b, id, election.AcquireOptions{TTL: time.Hour})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			e, err := election.NewElector(ctx, b, election.ElectorConfig{Election: id, TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			w := electiontest.NewWitness(t)
			e.OnBecomeLeader(w.Lead)
			testenv.Eventually(t, "a subscription", func() bool { return subscribers(t, c, id) == 1 })
			if _, err := b.Resign(t.Context(), id, g.Token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
			w.Begun(testenv.Context(t), 1)
			testenv.Eventually(t, "its end", func() bool { return subscribers(t, c, id) == 0 })
			stop()
			if err := e.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Safety: a release is one also where the user may not publish it.
func TestReleaseWithoutTheRightToPublish(t *testing.T) {
	p := testenv.Redis(t)
	c := plain(t, p.Addr)
	// As in the documentation of versions that published nothing.
	rules := "on >password ~fenceproxy:* resetchannels -@all +hello +eval +evalsha +pttl +get +set +pexpire +incr +del +time"
	for user, more := range map[string]string{"silent": "", "commands": " +publish +subscribe +ping", "channels": " &fenceproxy:*"} {
		if err := c.ACLSetUser(t.Context(), user, strings.Fields(rules+more)...).Err(); err != nil {
			t.Fatal(err)
		}
		b, err := OpenURL("redis://"+user+":password@"+p.Addr, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for _, o := range []election.ResignOptions{{}, {HoldOff: time.Minute}} {
			g := win(t, b, user, election.AcquireOptions{})
			if r, err := b.Resign(t.Context(), user, g.Token, o); err != nil || r.Status != election.Released {
				t.Fatalf("%s: %+v, %v", user, r, err)
			}
			standing(t, b, user, g.Token, election.StandingVacant, 0)
		}
		if st, err := b.Status(t.Context(), user); err != nil || st.HoldOff <= 0 {
			t.Errorf("%s: %+v, %v", user, st, err)
		}
		err = b.Hints(testenv.Context(t), user, func() { t.Errorf("%s: a hint", user) })
		if !errors.Is(err, election.ErrUnavailable) || election.Permanent(err) || !goredis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%s: %v", user, err)
		}
	}
}

// Anybody may publish anything: it is a hint, and the holder leads on.
func TestForgedHints(t *testing.T) {
	p := testenv.SharedRedis(t)
	c, b, id := plain(t, p.Addr), opened(t, p.Addr), "forged"
	g := win(t, b, id, election.AcquireOptions{TTL: time.Hour})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f := electiontest.NewFaults(b)
	e, err := election.NewElector(ctx, f, election.ElectorConfig{Election: id, TTL: 10 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	e.OnBecomeLeader(electiontest.NewWitness(t).Lead)
	testenv.Eventually(t, "questions for forged hints", func() bool {
		for range 100 {
			if err := c.Publish(t.Context(), releasedChannel(id), strings.Repeat("x", 100)).Err(); err != nil {
				t.Fatal(err)
			}
		}
		return f.Calls(election.OpAcquire) > 5
	})
	standing(t, b, id, g.Token, election.StandingCurrent, g.Number)
	if _, ok := e.Term(); ok {
		t.Error("it leads")
	}
	stop()
	if err := e.Wait(); err != nil {
		t.Error(err)
	}
}
