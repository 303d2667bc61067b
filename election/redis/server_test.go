package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func win(t testing.TB, b election.Backend, id string, o election.AcquireOptions) election.AcquireResult {
	t.Helper()
	g, err := b.Acquire(t.Context(), id, o)
	if err != nil || g.Status != election.Acquired {
		t.Fatalf("Acquire: %+v, %v", g, err)
	}
	return g
}

func standing(t testing.TB, b election.Backend, id string, token election.Token, want election.Standing, number int64) {
	t.Helper()
	v, err := b.Validate(t.Context(), id, token)
	if err != nil || v.Standing != want || v.Number != number {
		t.Fatalf("Validate: %+v, %v, want %v with %d", v, err, want, number)
	}
}

// E9: everything flushed, then the server restarted empty, under one handle.
func TestServerLosesItsData(t *testing.T) {
	p := testenv.Redis(t)
	b := opened(t, p.Addr)
	g := win(t, b, "e", election.AcquireOptions{})
	if err := plain(t, p.Addr).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if r, err := b.Renew(t.Context(), "e", g.Token); err != nil || r.Status != election.Lost {
		t.Fatalf("Renew after FLUSHALL: %+v, %v", r, err)
	}
	nextMilli(t, g.Number)
	h := win(t, b, "e", election.AcquireOptions{})
	if h.Number <= g.Number {
		t.Fatalf("number %d after %d", h.Number, g.Number)
	}

	p.Kill()
	if _, err := b.Validate(t.Context(), "e", h.Token); !errors.Is(err, election.ErrUnavailable) {
		t.Fatalf("Validate with the server killed: %v", err)
	}
	q, err := servers.StartRedis(testenv.Context(t), servers.RedisOptions{Port: p.Port()})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Stop()
	standing(t, b, "e", h.Token, election.StandingVacant, 0)
	if r := win(t, b, "e", election.AcquireOptions{}); r.Number <= h.Number {
		t.Fatalf("number %d after %d", r.Number, h.Number)
	}
}

// E12: no state of a connection carries leadership.
func TestConnectionsKilled(t *testing.T) {
	p := testenv.Redis(t)
	b := opened(t, p.Addr)
	c := plain(t, p.Addr)
	g := win(t, b, "e", election.AcquireOptions{})
	for range 5 {
		if err := c.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if r, err := b.Renew(t.Context(), "e", g.Token); err != nil || r.Status != election.Renewed || r.Number != g.Number {
			t.Fatalf("Renew: %+v, %v", r, err)
		}
		standing(t, b, "e", g.Token, election.StandingCurrent, g.Number)
	}
}

// Safety: a replica, which may not have heard of a takeover, answers nothing. Without
// the scripts' flags it would.
func TestReplicaNeverAnswers(t *testing.T) {
	primary, replica := testenv.Redis(t, "--repl-diskless-sync-delay", "0"), testenv.Redis(t)
	b := opened(t, replica.Addr)
	bare := New(plain(t, replica.Addr), Options{PlainScripts: true})
	g := win(t, opened(t, primary.Addr), "e", election.AcquireOptions{})
	if err := plain(t, replica.Addr).ReplicaOf(t.Context(), primary.Host(), fmt.Sprint(primary.Port())).Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "replication", func() bool {
		v, err := bare.Validate(t.Context(), "e", g.Token)
		return err == nil && v.Standing == election.StandingCurrent
	})
	_, err1 := b.Validate(t.Context(), "e", g.Token)
	_, err2 := b.Status(t.Context(), "e")
	_, err3 := b.Renew(t.Context(), "e", g.Token)
	_, err4 := b.Acquire(t.Context(), "e", election.AcquireOptions{Token: g.Token})
	_, err5 := b.Resign(t.Context(), "e", g.Token, election.ResignOptions{})
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if !errors.Is(err, election.ErrUnavailable) || !goredis.HasErrorPrefix(err, "READONLY") {
			t.Errorf("a replica answers: %v", err)
		}
	}
}

// A server that is full still keeps elections.
func TestFullServer(t *testing.T) {
	p := testenv.Redis(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	b := opened(t, p.Addr)
	if err := plain(t, p.Addr).Set(t.Context(), "x", "y", 0).Err(); !goredis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("the server is not full: %v", err)
	}
	g := win(t, b, "e", election.AcquireOptions{})
	if r, err := b.Renew(t.Context(), "e", g.Token); err != nil || r.Status != election.Renewed {
		t.Fatalf("Renew: %+v, %v", r, err)
	}
}

// A cluster, through a client that would rather ask replicas.
func TestCluster(t *testing.T) {
	p := testenv.Redis(t, "--cluster-enabled", "yes")
	if err := plain(t, p.Addr).ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{p.Addr}, RouteRandomly: true, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	b := New(c, Options{})
	testenv.Eventually(t, "the cluster being up", func() bool {
		_, err := b.Status(t.Context(), "up")
		return err == nil
	})
	for i := range 20 {
		id := fmt.Sprint("election/", i)
		g := win(t, b, id, election.AcquireOptions{})
		standing(t, b, id, g.Token, election.StandingCurrent, g.Number)
		if r, err := b.Resign(t.Context(), id, g.Token, election.ResignOptions{HoldOff: time.Minute}); err != nil || r.Status != election.Released {
			t.Fatalf("%+v, %v", r, err)
		}
		if st, err := b.Status(t.Context(), id); err != nil || st.HoldOff <= 0 || st.Number != g.Number {
			t.Fatalf("%+v, %v", st, err)
		}
	}
}

// Safety: what is sent is the digest. The slow log has every command with its
// arguments.
func TestTokenIsNeverSent(t *testing.T) {
	p := testenv.Redis(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000")
	b := opened(t, p.Addr)
	g := win(t, b, "e", election.AcquireOptions{})
	standing(t, b, "e", g.Token, election.StandingCurrent, g.Number)
	if _, err := b.Renew(t.Context(), "e", g.Token); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Resign(t.Context(), "e", g.Token, election.ResignOptions{HoldOff: time.Second}); err != nil {
		t.Fatal(err)
	}
	log, err := plain(t, p.Addr).SlowLogGet(t.Context(), 1000).Result()
	if err != nil {
		t.Fatal(err)
	}
	sent := fmt.Sprint(log)
	if n := strings.Count(sent, g.Token.Digest().String()); n < 3 {
		t.Fatalf("the digest was sent %d times: %s", n, sent)
	}
	if strings.Contains(sent, g.Token.Reveal()) {
		t.Error("the token was sent")
	}
}

// The rights that the documentation names are enough.
func TestLeastRights(t *testing.T) {
	p := testenv.Redis(t)
	rules := "on >password ~fenceproxy:* resetchannels &fenceproxy:* -@all +hello +eval +evalsha +pttl +get +set +pexpire +incr +del +time +publish +subscribe +ping"
	if err := plain(t, p.Addr).ACLSetUser(t.Context(), "elections", strings.Fields(rules)...).Err(); err != nil {
		t.Fatal(err)
	}
	b, err := OpenURL("redis://elections:password@"+p.Addr, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	g := win(t, b, "e", election.AcquireOptions{})
	win(t, b, "e", election.AcquireOptions{Token: g.Token})
	standing(t, b, "e", g.Token, election.StandingCurrent, g.Number)
	if r, err := b.Renew(t.Context(), "e", g.Token); err != nil || r.Status != election.Renewed {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := b.Resign(t.Context(), "e", g.Token, election.ResignOptions{HoldOff: time.Minute}); err != nil || r.Status != election.Released {
		t.Errorf("%+v, %v", r, err)
	}
	if st, err := b.Status(t.Context(), "e"); err != nil || st.HoldOff <= 0 {
		t.Errorf("%+v, %v", st, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hints := 0
	err = b.Hints(ctx, "h", func() {
		if hints++; hints > 1 {
			cancel()
			return
		}
		go func() { // it began
			h, _ := b.Acquire(ctx, "h", election.AcquireOptions{})
			_, _ = b.Resign(ctx, "h", h.Token, election.ResignOptions{})
		}()
	})
	if hints != 2 {
		t.Errorf("%d hints; %v", hints, err)
	}
	// INCR is needed when the clock is behind.
	f := win(t, b, "f", election.AcquireOptions{MinFencing: 1 << 60})
	if _, err := b.Resign(t.Context(), "f", f.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	win(t, b, "f", election.AcquireOptions{})
}

// A client of the caller's stays open, and a context ends a call even where the
// client is set to look at none.
func TestCallersClient(t *testing.T) {
	p := testenv.Redis(t)
	c := plain(t, p.Addr)
	b := New(c, Options{})
	g := win(t, b, "e", election.AcquireOptions{})
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	asked := time.Now()
	_, err := b.Validate(ctx, "e", g.Token)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, election.ErrUnavailable) {
		t.Errorf("Validate, cancelled: %v", err)
	}
	if d := time.Since(asked); d > 2*time.Second { // the client's time-out is three
		t.Errorf("cancelled, it returned after %v", d)
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the caller's client after Close: %v", err)
	}
}

// The embedded server of a first try, whose time passes by hand. It is no Redis: this
// shows that the scripts run on it.
func TestMiniredis(t *testing.T) {
	m := miniredis.RunT(t)
	b, err := OpenURL("redis://"+m.Addr(), Options{PlainScripts: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	g := win(t, b, "e", election.AcquireOptions{MinFencing: 1<<53 + 1})
	if again := win(t, b, "e", election.AcquireOptions{Token: g.Token}); again.Number != 1<<53+1 {
		t.Errorf("asked again: %+v", again)
	}
	if r, err := b.Acquire(t.Context(), "e", election.AcquireOptions{}); err != nil || r.Reason != election.BusyHeld {
		t.Errorf("%+v, %v", r, err)
	}
	standing(t, b, "e", election.NewToken(), election.StandingStale, g.Number)
	m.FastForward(election.DefaultTTL)
	standing(t, b, "e", g.Token, election.StandingVacant, 0)
	h := win(t, b, "e", election.AcquireOptions{})
	if h.Number != g.Number+1 {
		t.Errorf("number %d after %d", h.Number, g.Number)
	}
	if r, err := b.Renew(t.Context(), "e", h.Token); err != nil || r.Number != h.Number {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := b.Resign(t.Context(), "e", h.Token, election.ResignOptions{HoldOff: time.Minute}); err != nil || r.Status != election.Released {
		t.Errorf("%+v, %v", r, err)
	}
	if st, err := b.Status(t.Context(), "e"); err != nil || st.HoldOff != time.Minute || st.Number != h.Number {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestURLs(t *testing.T) {
	for _, u := range []string{
		"redis://host", "redis://host:1/2", "valkey://u:p@host", "rediss://host", "valkeys://host", "unix:///tmp/x.sock", "VALKEY://host?db=3",
	} {
		b, err := OpenURL(u, Options{})
		if err != nil {
			t.Errorf("%s: %v", u, err)
			continue
		}
		_ = b.Close()
	}
	for _, u := range []string{
		"", "host", "http://host", "redis://", "redis:///1", "redis://u:hunter2@", "redis://u:hunter2@host/x", "redis://u:hun/ter2@host",
		"redis://u:hun%ter2@host", "redis://u:hunter2@host:port", "redis://u:hunter2@host?what=1", "redis://hunter2@host:70000000000", "unix://",
		"redis://u:hunter2\n@host", "valkey://u:1/hunter2@host", "redis://u:hunter2#x@host:y",
	} {
		b, err := OpenURL(u, Options{})
		if err == nil {
			_ = b.Close()
			t.Errorf("%q accepted", u)
			continue
		}
		if !errors.Is(err, connurl.ErrInvalid) || strings.Contains(err.Error(), "hun") || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%q: %v", u, err)
		}
	}
}

// A password that the server refuses shows nowhere.
func TestWrongPassword(t *testing.T) {
	p := testenv.Redis(t, "--requirepass", "right-password")
	for _, u := range []string{"redis://:wrong-password@" + p.Addr, "redis://someone:wrong-password@" + p.Addr, "redis://" + p.Addr} {
		b, err := OpenURL(u, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Status(t.Context(), "e")
		if !errors.Is(err, election.ErrUnavailable) || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "wrong-password") {
			t.Errorf("%v", err)
		}
		_ = b.Close()
	}
	b, err := OpenURL("redis://:right-password@"+p.Addr, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Status(t.Context(), "e"); err != nil {
		t.Error(err)
	}
}

// nextMilli waits until the clock, which numbers follow once they are lost, is past n. A
// loss takes longer than a millisecond elsewhere.
func nextMilli(t testing.TB, n int64) {
	t.Helper()
	testenv.Eventually(t, "the next millisecond", func() bool { return time.Now().UnixMilli() > n })
}
