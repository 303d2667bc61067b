package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it logs each dial that fails
	testenv.Main(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestSuite(t *testing.T) { guardtest.Run(t, resource(t, testenv.SharedRedis(t))) }

// The same, where the fence is lost with all else.
func TestSuiteFlushAll(t *testing.T) {
	p := testenv.Redis(t)
	r := resource(t, p)
	r.Lose = func(t testing.TB, _ string) {
		if err := client(t, p.Addr).FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	guardtest.Run(t, r)
}

func open(t testing.TB, p *servers.Process, o redisfence.Options) *redisfence.Fence {
	t.Helper()
	f, err := redisfence.Open(t.Context(), "redis://"+p.Addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// client has one connection and does nothing of its own accord.
func client(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1, DisableIdentity: true, Protocol: 2,
		ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func resource(t testing.TB, p *servers.Process) guardtest.Resource {
	return guardtest.Resource{
		Fence:    open(t, p, redisfence.Options{}),
		Election: func(t testing.TB) string { return testenv.Name(t, "e:") },
		Bind: func(t testing.TB, term guard.Term, r guard.Record) (guardtest.Conn, error) {
			return bind(t, p.Addr, term, r)
		},
		Lose: func(t testing.TB, id string) {
			if err := client(t, p.Addr).Del(t.Context(), redisfence.Key(id)).Err(); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// bind binds one connection of its own as the wire does.
func bind(t testing.TB, addr string, term guard.Term, r guard.Record) (*conn, error) {
	c := client(t, addr).Conn()
	t.Cleanup(func() { _ = c.Close() })
	key := redisfence.Key(term.Election)
	// The name first.
	if err := c.Do(t.Context(), "CLIENT", "SETNAME", nameOf(term)).Err(); err != nil {
		return nil, err
	}
	role, err := c.Do(t.Context(), "ROLE").Slice()
	if err != nil {
		return nil, err
	}
	if role[0] != "master" {
		_ = c.Close()
		return nil, redisfence.ErrReplica
	}
	got, err := c.Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if got != redisfence.Encode(r) {
		_ = c.Close()
		return nil, fmt.Errorf("bind: %w", guard.ErrConflict)
	}
	return &conn{c}, nil
}

// nameOf is the name of a connection that is bound to the term, now and then to others too.
func nameOf(term guard.Term) string {
	other := guard.Term{Election: "another/" + term.Election[1:], Number: 5}
	return [...]string{joined(term), joined(other, term), joined(term, other), joined(other, term, other)}[rand.IntN(4)]
}

type conn struct{ c *redis.Conn }

func (c *conn) Write(ctx context.Context) error { return c.c.Incr(ctx, "writes").Err() }

func term(t testing.TB, n int64) guard.Term {
	x, _ := guardtest.Term(testenv.Name(t, "e"), n)
	return x
}

func put(t testing.TB, f *redisfence.Fence, id string, r guard.Record) {
	t.Helper()
	old, err := f.Read(t.Context(), id)
	if err == nil {
		err = f.Swap(t.Context(), id, old, r)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func bound(t testing.TB, p *servers.Process, f *redisfence.Fence, x guard.Term) *conn {
	t.Helper()
	r := guardtest.Record(x, guard.Severed, 1)
	put(t, f, x.Election, r)
	c, err := bind(t, p.Addr, x, r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func after(x guard.Term) guard.Term {
	y, _ := guardtest.Term(x.Election, x.Number+1)
	return y
}

func TestFenceHasNoTTLAndIsRaisedWhenMemoryIsExhausted(t *testing.T) {
	p := testenv.Redis(t, "--maxmemory-policy", "noeviction")
	f, c := open(t, p, redisfence.Options{}), client(t, p.Addr)
	x := term(t, 7)
	a, b := guardtest.Record(x, guard.Raised, 1), guardtest.Record(x, guard.Severed, 1)
	put(t, f, x.Election, a)
	c.Expire(t.Context(), redisfence.Key(x.Election), time.Hour)
	c.ConfigSet(t.Context(), "maxmemory", "1")
	if err := c.Set(t.Context(), "a", "b", 0).Err(); err == nil {
		t.Fatal("memory is not exhausted")
	}
	if err := f.Swap(t.Context(), x.Election, a, b); err != nil {
		t.Fatal(err)
	}
	if ttl := c.TTL(t.Context(), redisfence.Key(x.Election)).Val(); ttl != -1 {
		t.Errorf("TTL %v", ttl)
	}
}

func TestForeignValueIsRefused(t *testing.T) {
	p := testenv.SharedRedis(t)
	f, c := open(t, p, redisfence.Options{}), client(t, p.Addr)
	for name, put := range map[string]func(key string) error{
		"text":  func(k string) error { return c.Set(t.Context(), k, "7:x", 0).Err() },
		"list":  func(k string) error { return c.LPush(t.Context(), k, "x").Err() },
		"empty": func(k string) error { return c.Set(t.Context(), k, "", 0).Err() },
	} {
		x := term(t, 7)
		if err := put(redisfence.Key(x.Election)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(t.Context(), x.Election); !errors.Is(err, redisfence.ErrCorrupt) {
			t.Errorf("%s: read: %v", name, err)
		}
		if err := f.Swap(t.Context(), x.Election, guard.Record{}, guardtest.Record(x, guard.Raised, 1)); err == nil {
			t.Errorf("%s: overwritten", name)
		}
	}
}

func replica(t testing.TB, of *servers.Process, args ...string) *servers.Process {
	t.Helper()
	host, port, _ := net.SplitHostPort(of.Addr)
	r := testenv.Redis(t, append([]string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"}, args...)...)
	c := client(t, of.Addr)
	eventually(t, func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "state=online")
	})
	return r
}

// eventually waits for an event that has no other sign.
func eventually(t testing.TB, is func() bool) {
	t.Helper()
	testenv.Within(t, 20*time.Second, "what is waited for", is)
}

func TestReplicaIsRefused(t *testing.T) {
	p := testenv.Redis(t)
	x := term(t, 7)
	put(t, open(t, p, redisfence.Options{}), x.Election, guardtest.Record(x, guard.Severed, 1))
	f := open(t, replica(t, p, "--replica-read-only", "no"), redisfence.Options{})
	if _, err := f.Read(t.Context(), x.Election); !errors.Is(err, redisfence.ErrReplica) {
		t.Errorf("read: %v", err)
	}
	if err := f.Swap(t.Context(), x.Election, guard.Record{}, guardtest.Record(x, guard.Raised, 2)); !errors.Is(err, redisfence.ErrReplica) {
		t.Errorf("swap: %v", err)
	}
	if err := f.Sever(t.Context(), x); !errors.Is(err, redisfence.ErrReplica) {
		t.Errorf("sever: %v", err)
	}
	if ps := f.Check(t.Context()); len(ps) == 0 || !ps[0].Fatal {
		t.Errorf("check: %v", ps)
	}
}

// A node that was primary and is now a replica keeps its old connections, which write
// again once it is promoted.
func TestSeverSweepsTheReplicasToo(t *testing.T) {
	p := testenv.Redis(t)
	r := testenv.Redis(t)
	x := term(t, 7)
	old := bound(t, r, open(t, r, redisfence.Options{}), x)
	host, port, _ := net.SplitHostPort(p.Addr)
	rc := client(t, r.Addr)
	if err := rc.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	c := client(t, p.Addr)
	eventually(t, func() bool { return strings.Contains(c.Info(t.Context(), "replication").Val(), "state=online") })
	f := open(t, p, redisfence.Options{})
	put(t, f, x.Election, guardtest.Record(after(x), guard.Raised, 1))
	if err := f.Sever(t.Context(), after(x)); err != nil {
		t.Fatal(err)
	}
	rc.Do(t.Context(), "REPLICAOF", "NO", "ONE")
	if err := old.Write(t.Context()); err == nil {
		t.Error("a stale write landed on the promoted replica")
	}
}

// A replica may have replicas of its own, which the primary does not list.
func TestSeverSweepsReplicasOfReplicas(t *testing.T) {
	p := testenv.Redis(t)
	middle := replica(t, p)
	last := testenv.Redis(t)
	x := term(t, 7)
	old := bound(t, last, open(t, last, redisfence.Options{}), x)
	host, port, _ := net.SplitHostPort(middle.Addr)
	lc := client(t, last.Addr)
	if err := lc.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	mc := client(t, middle.Addr)
	eventually(t, func() bool { return strings.Contains(mc.Info(t.Context(), "replication").Val(), "state=online") })
	f := open(t, p, redisfence.Options{})
	put(t, f, x.Election, guardtest.Record(after(x), guard.Raised, 1))
	if ps := f.Check(t.Context()); len(ps) != 0 {
		t.Errorf("check: %v", ps)
	}
	if err := f.Sever(t.Context(), after(x)); err != nil {
		t.Fatal(err)
	}
	lc.Do(t.Context(), "REPLICAOF", "NO", "ONE")
	if err := old.Write(t.Context()); err == nil {
		t.Error("a stale write landed on the promoted replica")
	}

	// One that cannot be reached fails the takeover, and is named.
	last.Kill()
	gone := testenv.Redis(t, "--replicaof", host+" "+port, "--replica-announce-port", "1", "--repl-diskless-sync-delay", "0")
	defer gone.Kill()
	eventually(t, func() bool { return strings.Contains(mc.Info(t.Context(), "replication").Val(), "port=1,") })
	if err := f.Sever(t.Context(), after(x)); !errors.Is(err, redisfence.ErrNode) || !strings.Contains(err.Error(), ":1 ") {
		t.Errorf("got %v", err)
	}
}

// ROLE does not show a replica that still gets its first copy.
func TestSeverSweepsReplicasThatAreSyncing(t *testing.T) {
	p := testenv.Redis(t, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "1000")
	r := testenv.Redis(t)
	x := term(t, 7)
	old := bound(t, r, open(t, r, redisfence.Options{}), x)
	host, port, _ := net.SplitHostPort(p.Addr)
	rc := client(t, r.Addr)
	if err := rc.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	c := client(t, p.Addr)
	eventually(t, func() bool { return strings.Contains(c.Info(t.Context(), "replication").Val(), "state=wait_bgsave") })
	f := open(t, p, redisfence.Options{})
	put(t, f, x.Election, guardtest.Record(after(x), guard.Raised, 1))
	if err := f.Sever(t.Context(), after(x)); err != nil {
		t.Fatal(err)
	}
	if err := rc.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if err := old.Write(t.Context()); err == nil {
		t.Error("a stale write landed on the promoted replica")
	}
}

func TestUnreachableNodeFailsTheTakeover(t *testing.T) {
	p := testenv.SharedRedis(t)
	f := open(t, p, redisfence.Options{Nodes: []string{"127.0.0.1:1"}})
	err := f.Sever(t.Context(), term(t, 7))
	if !errors.Is(err, redisfence.ErrNode) || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "option nodes") {
		t.Errorf("got %v", err)
	}
	ps := f.Check(t.Context())
	if len(ps) != 1 || !ps[0].Fatal || !strings.Contains(ps[0].What, "127.0.0.1:1") {
		t.Errorf("check: %v", ps)
	}
}

func TestSeverWaitsForABusyScript(t *testing.T) {
	p := testenv.Redis(t, "--busy-reply-threshold", "10")
	f := open(t, p, redisfence.Options{})
	x := term(t, 7)
	old := bound(t, p, f, x)
	busy, ctl := client(t, p.Addr), client(t, p.Addr)
	go busy.Eval(t.Context(), "while true do end", nil)
	eventually(t, func() bool { return redis.HasErrorPrefix(ctl.Ping(t.Context()).Err(), "BUSY") })

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := f.Sever(ctx, after(x)); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("during the script: %v", err)
	}
	severed := make(chan error, 1)
	go func() { severed <- f.Sever(t.Context(), after(x)) }()
	select {
	case err := <-severed:
		t.Errorf("did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := ctl.ScriptKill(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-severed; err != nil {
		t.Error(err)
	}
	if old.Write(t.Context()) == nil {
		t.Error("not severed")
	}
}

func TestSever500(t *testing.T) {
	p := testenv.SharedRedis(t)
	f := open(t, p, redisfence.Options{})
	x := term(t, 7)
	r := guardtest.Record(x, guard.Severed, 1)
	put(t, f, x.Election, r)
	var all []*conn
	for range 500 {
		c, err := bind(t, p.Addr, x, r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	start := time.Now()
	if err := f.Sever(t.Context(), after(x)); err != nil {
		t.Fatal(err)
	}
	t.Logf("500 connections severed in %v", time.Since(start))
	for _, c := range all {
		if c.Write(t.Context()) == nil {
			t.Fatal("a connection is alive")
		}
	}
}

func TestRights(t *testing.T) {
	p := testenv.Redis(t)
	admin := client(t, p.Addr)
	f, err := redisfence.Open(t.Context(), "redis://ctl:s3cr3t@"+p.Addr, redisfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x := term(t, 7)
	bound(t, p, open(t, p, redisfence.Options{}), x)
	setUser := func(more ...string) {
		args := []any{"ACL", "SETUSER", "ctl", "reset", "on", ">s3cr3t"}
		for _, r := range strings.Fields(redisfence.Rules) {
			args = append(args, r)
		}
		for _, r := range more {
			args = append(args, r)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, without := range []string{"-role", "-get", "-eval", "-client|list", "-client|kill", "-set", "resetkeys"} {
		setUser(without)
		ps := f.Check(t.Context())
		fatal := false
		for _, p := range ps {
			fatal = fatal || p.Fatal
			if strings.Contains(p.String(), "s3cr3t") {
				t.Errorf("password in %v", p)
			}
		}
		if !fatal {
			t.Errorf("%s: check says %v", without, ps)
		}
		if strings.Contains(without, "client") || without == "-role" {
			if err := f.Sever(t.Context(), after(x)); !errors.Is(err, redisfence.ErrRights) {
				t.Errorf("%s: sever: %v", without, err)
			}
		}
	}
	setUser()
	if ps := f.Check(t.Context()); len(ps) != 0 {
		t.Errorf("with the rules that we name: %v", ps)
	}
	if err := f.Sever(t.Context(), after(x)); err != nil {
		t.Error(err)
	}
	put(t, f, x.Election, guardtest.Record(after(x), guard.Severed, 1))
}

func TestCheck(t *testing.T) {
	p := testenv.Redis(t, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
	ps := open(t, p, redisfence.Options{}).Check(t.Context())
	if len(ps) != 1 || ps[0].Fatal || !strings.Contains(ps[0].What, "evict") {
		t.Errorf("%v", ps)
	}
	renamed := testenv.Redis(t, "--rename-command", "CLIENT", "")
	if ps := open(t, renamed, redisfence.Options{}).Check(t.Context()); len(ps) != 2 || !ps[0].Fatal {
		t.Errorf("CLIENT renamed: %v", ps)
	}
	f, _ := redisfence.Open(t.Context(), "redis://:hunter2hunter2@127.0.0.1:1", redisfence.Options{})
	defer f.Close()
	if ps := f.Check(t.Context()); len(ps) != 1 || !ps[0].Fatal || strings.Contains(ps[0].String(), "hunter2") {
		t.Errorf("nobody there: %v", ps)
	}
}

func TestClusterIsRefused(t *testing.T) {
	p := testenv.Redis(t, "--cluster-enabled", "yes")
	f := open(t, p, redisfence.Options{})
	if err := f.Sever(t.Context(), term(t, 7)); !errors.Is(err, redisfence.ErrCluster) {
		t.Errorf("%v", err)
	}
}

func TestPasswordNeverInAnError(t *testing.T) {
	for _, url := range []string{
		"redis://u:hunter2@host:port", "redis://u:hunter2/x@host:6379", "redis://u:hunter2 x@h", "http://u:hunter2@h", "redis://u:%zzhunter2@h",
		"redis://u:hunter2@h:6379/notanumber", "redis://u:hunter2@h:6379/0?hunter2=1",
	} {
		f, err := redisfence.Open(t.Context(), url, redisfence.Options{})
		if err == nil {
			_ = f.Close()
			t.Errorf("%s: no error", url)
			continue
		}
		if !errors.Is(err, redisfence.ErrURL) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}
