package redisfence_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// homedAt returns a term of an election whose fence is on a node.
func homedAt(t *testing.T, o *operator, p *servers.Process, n int64) guard.Term {
	t.Helper()
	top := rediscluster.New(rediscluster.Options{Seeds: []string{p.Addr}})
	defer top.Close()
	o.must(top.Refresh(t.Context()))
	for {
		x := term(t, n)
		if owner, ok := top.View().Owner(rediscluster.Slot([]byte(redisfence.Key(x.Election)))); ok && owner.Addr == p.Addr {
			return x
		}
	}
}

// leads makes a term rule, and returns its record.
func leads(t *testing.T, f *redisfence.ClusterFence, x guard.Term) guard.Record {
	t.Helper()
	ctx := testenv.Context(t)
	var err error
	for deadline := time.Now().Add(40 * time.Second); ; {
		if err = takeOverOnce(ctx, f, x); err == nil || time.Now().After(deadline) {
			break
		}
	}
	r, err2 := f.Read(ctx, x.Election)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return r
}

func mustBind(t *testing.T, f *redisfence.ClusterFence, addr string, x guard.Term, r guard.Record) *clusterConn {
	t.Helper()
	var (
		c         *clusterConn
		err, last error
	)
	defer func() {
		if t.Failed() && last != nil {
			t.Log("the last refusal of a bind:", last)
		}
	}()
	testenv.Within(t, 30*time.Second, "the bind", func() bool {
		if c, err = bindAt(t, f, addr, x, r); err != nil {
			last = err
		}
		return err == nil
	})
	if err := c.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// A primary that the others do not know is swept, since it is a member.
func TestClusterPrimaryUnknownToTheOthers(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, testenv.RedisServer, false, "--cluster-require-full-coverage", "no")
	o := newOperator(t, c)
	f := openCluster(t, c)
	a, b, last := c.Primaries[0], c.Primaries[1], c.Primaries[2]
	x := homedAt(t, o, a, 5)
	r := leads(t, f, x)
	old := mustBind(t, f, last.Addr, x, r)
	id, err := servers.RedisNodeID(t.Context(), last)
	o.must(err)
	for _, p := range []*servers.Process{a, b} {
		o.must(client(t, p.Addr).Do(t.Context(), "CLUSTER", "FORGET", id).Err())
	}
	// A proxy that is started now hears nothing of it from the others.
	g, err := redisfence.OpenCluster(t.Context(), "redis+cluster://"+a.Addr+","+b.Addr, redisfence.ClusterOptions{})
	o.must(err)
	defer g.Close()
	o.must(g.Topology().Refresh(t.Context()))
	if _, known := g.Topology().View().ByID(id); known {
		t.Fatal("it is known")
	}
	leads(t, g, after(x))
	if old.Write(t.Context()) == nil {
		t.Error("a connection to the unknown primary is alive")
	}
	if _, err := bindAt(t, f, last.Addr, x, r); err == nil {
		t.Error("bound to the old term")
	}

	// Where one node alone still lists it, and the members are lost, that one's word is enough.
	mc := client(t, b.Addr)
	host, bus := last.Host(), busPort(t, o, last)
	o.must(mc.Do(t.Context(), "CLUSTER", "MEET", host, last.Port(), bus).Err())
	testenv.Eventually(t, "one node knows it", func() bool {
		return strings.Contains(mc.ClusterNodes(t.Context()).Val(), id)
	})
	y := after(x)
	old = mustBind(t, f, last.Addr, y, leads(t, f, y))
	o.must(client(t, a.Addr).Del(t.Context(), membersOf(x.Election)).Err())
	leads(t, g, after(y))
	if old.Write(t.Context()) == nil {
		t.Error("a connection to the primary that one node knows is alive")
	}
}

func busPort(t *testing.T, o *operator, p *servers.Process) string {
	t.Helper()
	text, err := client(t, p.Addr).ClusterNodes(t.Context()).Result()
	o.must(err)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "myself") {
			_, bus, _ := strings.Cut(strings.Fields(line)[1], "@")
			bus, _, _ = strings.Cut(bus, ",")
			return bus
		}
	}
	t.Fatal("no bus port")
	return ""
}

// A primary that owns no slot yet, and gets its first one, has no copy: the others are looked
// at in its place.
func TestClusterPrimaryWithoutSlots(t *testing.T) {
	t.Parallel()
	c := startCluster(t, testenv.RedisServer, false)
	o := newOperator(t, c)
	f := openCluster(t, c)
	x := homedAt(t, o, c.Primaries[0], 5)
	r := leads(t, f, x)
	p, err := c.AddPrimary(t.Context())
	o.must(err)
	o.must(f.Topology().Refresh(t.Context()))
	rollBack := o.snapshot(x.Election)
	old, err := bindAt(t, f, p.Addr, x, r)
	o.must(err)
	y := after(x)
	s := leads(t, f, y)
	if old.Write(t.Context()) == nil {
		t.Error("alive")
	}
	if _, err := bindAt(t, f, p.Addr, x, r); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("the old term: %v", err)
	}
	if _, err := bindAt(t, f, p.Addr, y, s); err != nil {
		t.Error(err)
	}
	rollBack()
	if _, err := bindAt(t, f, p.Addr, x, r); !errors.Is(err, redisfence.ErrBehind) {
		t.Errorf("the old term, when the raise is lost: %v", err)
	}
	s = leads(t, f, y)
	o.must(c.MoveSlot(t.Context(), 0, o.owner(0), p))
	o.must(f.Topology().Refresh(t.Context()))
	mustBind(t, f, p.Addr, y, s)
}

// Nobody is bound on a node that is not a member, whatever its copy says, nor on a replica,
// nor by a record that is not severed.
func TestClusterConfirmNeedsAllThatItAsksFor(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, testenv.RedisServer, true)
	o := newOperator(t, c)
	f := openCluster(t, c)
	ctx := t.Context()
	p := c.Primaries[1]
	x := homedAt(t, o, c.Primaries[0], 5)
	r := leads(t, f, x)
	mustBind(t, f, p.Addr, x, r)
	o.must(o.all.Del(ctx, membersOf(x.Election)).Err())
	mustBind(t, f, p.Addr, x, r)
	id, err := servers.RedisNodeID(ctx, p)
	o.must(err)
	if !o.all.SIsMember(ctx, membersOf(x.Election), "node:"+id+"@"+p.Addr).Val() {
		t.Error("bound on a node that is not a member")
	}
	// It cannot become one.
	o.must(o.all.Set(ctx, membersOf(x.Election), "x", 0).Err())
	if _, err := bindAt(t, f, p.Addr, x, r); err == nil {
		t.Error("bound on a node that cannot be a member")
	}
	o.must(o.all.Del(ctx, membersOf(x.Election)).Err())

	conn, err := nameAt(t, p.Addr, x)
	o.must(err)
	n, _ := f.Topology().View().ByAddr(c.Replicas[1].Addr)
	if err := f.Confirm(ctx, n, x, r); !errors.Is(err, redisfence.ErrNotPrimary) {
		t.Errorf("replica: %v", err)
	}
	n, _ = f.Topology().View().ByAddr(p.Addr)
	raised := r
	raised.State = guard.Raised
	other, _ := guardtest.Term(x.Election, x.Number)
	for name, err := range map[string]error{
		"raised":       f.Confirm(ctx, n, x, raised),
		"other holder": f.Confirm(ctx, n, other, r),
		"other raise":  f.Confirm(ctx, n, x, guard.Record{Highest: 5, Holder: x.Digest, State: guard.Severed, Raise: guard.RaiseID{77}}),
	} {
		if !errors.Is(err, guard.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.must(conn.Write(ctx))
}

// cutOff keeps a primary's replica from getting anything more, without its noticing.
func cutOff(t *testing.T, o *operator, primary, replica *servers.Process) {
	t.Helper()
	o.must(client(t, replica.Addr).ConfigSet(t.Context(), "masterauth", "wrong").Err())
	o.must(client(t, primary.Addr).Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
}

// A failover of the home's primary loses the raise, and the members. No older term is
// bound again, on any node, though all copies but one may be lost too.
func TestClusterFailoverThatLosesTheRaise(t *testing.T) {
	t.Parallel() // it waits most of the time
	for _, program := range []string{testenv.RedisServer, testenv.ValkeyServer} {
		t.Run(program, func(t *testing.T) {
			c := startCluster(t, program, true)
			o := newOperator(t, c)
			f := openCluster(t, c)
			ctx := t.Context()
			home, away, third, heir := c.Primaries[0], c.Primaries[1], c.Primaries[2], c.Replicas[0]
			x := homedAt(t, o, home, 5)
			r := leads(t, f, x)
			for _, p := range c.Primaries {
				mustBind(t, f, p.Addr, x, r)
			}
			// The heir was a primary once, and is a member as such.
			o.must(o.c.Failover(ctx, heir, false))
			o.must(f.Topology().Refresh(ctx))
			old := mustBind(t, f, heir.Addr, x, r)
			testenv.Eventually(t, "the former primary is a replica", func() bool {
				return strings.Contains(client(t, home.Addr).Info(ctx, "replication").Val(), "master_link_status:up")
			})
			o.must(o.c.Failover(ctx, home, false))
			testenv.Eventually(t, "the replica is one again", func() bool {
				return strings.Contains(client(t, heir.Addr).Info(ctx, "replication").Val(), "master_link_status:up")
			})
			o.must(f.Topology().Refresh(ctx))

			cutOff(t, o, home, heir)
			y := after(x)
			s := leads(t, f, y)
			live := mustBind(t, f, away.Addr, y, s)
			if old.Write(ctx) == nil {
				t.Error("a connection to what is a replica now is alive")
			}
			o.must(o.c.Failover(ctx, heir, true))
			testenv.Eventually(t, "the raise is lost", func() bool {
				_ = f.Topology().Refresh(ctx)
				got, err := f.Read(ctx, x.Election)
				return err == nil && got == r
			})
			refused := func(what string) {
				t.Helper()
				for _, p := range []*servers.Process{away, third, heir} {
					if _, err := bindAt(t, f, p.Addr, x, r); !errors.Is(err, redisfence.ErrBehind) {
						t.Errorf("%s: %s: %v", what, p.Addr, err)
					}
				}
			}
			refused("the raise is lost")
			o.flush(third)
			refused("and a copy too")
			o.must(live.Write(ctx))
			// A proxy of the older term finds its record severed, and cannot bind; one that raises
			// to it again is told what rules.
			var above *guard.BoundAboveError
			if err := f.Sever(ctx, x); !errors.As(err, &above) || above.Number != 6 {
				t.Errorf("sever: %v", err)
			}
			// The live term raises once more.
			if _, err := bindAt(t, f, away.Addr, y, s); !errors.Is(err, guard.ErrConflict) {
				t.Errorf("%v", err)
			}
			s = leads(t, f, y)
			o.must(live.Write(ctx))
			for _, p := range []*servers.Process{away, third, heir} {
				mustBind(t, f, p.Addr, y, s)
			}
		})
	}
}

// A node that is dead holds up a takeover until the cluster has declared it failed and its
// slots are others'; a primary whose slots nobody takes over holds it up for good.
func TestClusterDeadNodes(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, testenv.RedisServer, true, "--cluster-require-full-coverage", "no")
	o := newOperator(t, c)
	f := openCluster(t, c)
	x := homedAt(t, o, c.Primaries[0], 5)
	r := leads(t, f, x)
	old := mustBind(t, f, c.Primaries[0].Addr, x, r)
	gone := mustBind(t, f, c.Primaries[1].Addr, x, r)

	// A replica: not before it has failed.
	c.Replicas[2].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	err := takeOver(ctx, f, after(x))
	cancel()
	if err == nil {
		t.Error("severed although a node may have connections")
	}
	y := after(x)
	leads(t, f, y)
	if old.Write(t.Context()) == nil {
		t.Error("alive")
	}
	if ps := f.Check(t.Context()); len(ps) > 0 {
		t.Errorf("check: %v", ps)
	}

	// A primary that its replica follows.
	c.Primaries[1].Kill()
	if gone.Write(t.Context()) == nil {
		t.Error("alive")
	}
	z := after(y)
	s := leads(t, f, z)
	mustBind(t, f, c.Replicas[1].Addr, z, s)

	// A primary without one.
	c.Primaries[2].Kill()
	testenv.Eventually(t, "the primary has failed", func() bool {
		_ = f.Topology().Refresh(t.Context())
		n, _ := f.Topology().View().ByAddr(c.Primaries[2].Addr)
		return n.Failed
	})
	if err := takeOverOnce(t.Context(), f, after(z)); err == nil {
		t.Errorf("a primary with slots is dead: %v", err)
	}
	found := false
	for _, p := range f.Check(t.Context()) {
		found = found || p.Fatal && strings.Contains(p.What, c.Primaries[2].Addr)
	}
	if !found {
		t.Error("check does not name it")
	}
}

// A paused primary is given up by the cluster and by a takeover. When it comes back its old
// connections end, before it could be promoted again.
func TestClusterNodeThatReturnsIsSwept(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, testenv.RedisServer, true)
	o := newOperator(t, c)
	f := openCluster(t, c)
	x := homedAt(t, o, c.Primaries[0], 5)
	r := leads(t, f, x)
	p := c.Primaries[1]
	old := mustBind(t, f, p.Addr, x, r)
	resume := testenv.Freeze(t, p)
	leads(t, f, after(x))
	resume()
	testenv.Eventually(t, "the connection is ended", func() bool { return old.Write(t.Context()) != nil })
}
