package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// pauses stops the calls of one fence that a marked context makes, at a chosen one.
type pauses struct{ now atomic.Pointer[pause] }

type pause struct {
	at      int32
	n       atomic.Int32
	do      func()
	reached atomic.Bool
}

type marked struct{}

func (p *pauses) before(ctx context.Context) {
	if ctx.Value(marked{}) == nil {
		return
	}
	if now := p.now.Load(); now != nil && now.n.Add(1) == now.at {
		now.reached.Store(true)
		now.do()
	}
}

func (p *pauses) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *pauses) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.before(ctx)
		return next(ctx, cmd)
	}
}

func (p *pauses) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.before(ctx)
		return next(ctx, cmds)
	}
}

// pausable opens a fence whose calls can be stopped.
func pausable(t *testing.T, c *servers.RedisCluster) (*redisfence.ClusterFence, *pauses) {
	f, p := openCluster(t, c), new(pauses)
	for _, n := range c.All() {
		f.Topology().Client(n.Addr).AddHook(p)
	}
	return f, p
}

// An operator does to the cluster what its administrators and its faults do.
type operator struct {
	t   *testing.T
	c   *servers.RedisCluster
	all *redis.ClusterClient
}

func newOperator(t *testing.T, c *servers.RedisCluster) *operator {
	all := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Primaries[0].Addr}})
	t.Cleanup(func() { _ = all.Close() })
	return &operator{t, c, all}
}

func (o *operator) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *operator) at(addr string) *servers.Process {
	o.t.Helper()
	i := slices.IndexFunc(o.c.All(), func(p *servers.Process) bool { return p.Addr == addr })
	if i < 0 {
		o.t.Fatalf("no node at %s", addr)
	}
	return o.c.All()[i]
}

// owner is the node that owns a slot, as itself says.
func (o *operator) owner(slot int) *servers.Process {
	o.t.Helper()
	top := rediscluster.New(rediscluster.Options{Seeds: []string{o.c.Primaries[0].Addr, o.c.Primaries[1].Addr}})
	defer top.Close()
	var n rediscluster.Node
	testenv.Eventually(o.t, "the slot has an owner", func() (ok bool) {
		if top.Refresh(o.t.Context()) == nil {
			n, ok = top.View().Owner(slot)
		}
		return ok
	})
	return o.at(n.Addr)
}

func (o *operator) last(p *servers.Process) int {
	o.t.Helper()
	top := rediscluster.New(rediscluster.Options{Seeds: []string{p.Addr}})
	defer top.Close()
	o.must(top.Refresh(o.t.Context()))
	n, _ := top.View().ByAddr(p.Addr)
	return n.Slots[len(n.Slots)-1].Last
}

func (o *operator) move(slot int) {
	o.t.Helper()
	from := o.owner(slot)
	o.must(o.c.MoveSlot(o.t.Context(), slot, from, o.other(from)))
}

func (o *operator) other(than *servers.Process) *servers.Process {
	for {
		if p := o.c.Primaries[rand.IntN(len(o.c.Primaries))]; p != than {
			return p
		}
	}
}

// half begins to move a slot, and moves the given key; the returned function ends it.
func (o *operator) half(slot int, key string) (finish func()) {
	o.t.Helper()
	ctx := o.t.Context()
	from := o.owner(slot)
	to := o.other(from)
	fromID, err := servers.RedisNodeID(ctx, from)
	o.must(err)
	toID, err := servers.RedisNodeID(ctx, to)
	o.must(err)
	o.must(client(o.t, to.Addr).Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err())
	o.must(client(o.t, from.Addr).Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err())
	o.must(client(o.t, from.Addr).Do(ctx, "MIGRATE", to.Host(), to.Port(), "", 0, 5000, "REPLACE", "KEYS", key).Err())
	return func() {
		o.t.Helper()
		o.must(servers.MoveKeys(ctx, slot, from, to))
		o.must(o.c.AssignSlot(ctx, slot, from, to))
	}
}

func membersOf(id string) string { return "fenceproxy:{" + id + "}:nodes" }

// snapshot returns a function that sets the home of an election back to what it is now, as
// a failover does that loses writes.
func (o *operator) snapshot(id string) (rollBack func()) {
	o.t.Helper()
	ctx := o.t.Context()
	value := o.all.Get(ctx, redisfence.Key(id)).Val()
	set := o.all.SMembers(ctx, membersOf(id)).Val()
	return func() {
		o.t.Helper()
		o.must(o.all.Del(ctx, redisfence.Key(id), membersOf(id)).Err())
		if value != "" {
			o.must(o.all.Set(ctx, redisfence.Key(id), value, 0).Err())
		}
		for _, m := range set {
			o.must(o.all.SAdd(ctx, membersOf(id), m).Err())
		}
	}
}

func (o *operator) flush(p *servers.Process) {
	o.t.Helper()
	o.must(client(o.t, p.Addr).FlushAll(o.t.Context()).Err())
}

// takeOver does what the guard does: raise, sever, mark; and starts over where the fence
// changed.
func takeOver(ctx context.Context, f guard.Fence, x guard.Term) error {
	var err error
	for range 20 {
		if err = takeOverOnce(ctx, f, x); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func takeOverOnce(ctx context.Context, f guard.Fence, x guard.Term) error {
	was, err := f.Read(ctx, x.Election)
	if err != nil {
		return err
	}
	raised := guardtest.Record(x, guard.Raised, byte(rand.Int()))
	if was.Highest == x.Number && was.Holder == x.Digest {
		if raised = was; was.State == guard.Severed {
			return nil
		}
	} else if err := f.Swap(ctx, x.Election, was, raised); err != nil {
		return err
	}
	if err := f.Sever(ctx, x); err != nil {
		return err
	}
	severed := raised
	severed.State = guard.Severed
	return f.Swap(ctx, x.Election, raised, severed)
}

// TestClusterInterleavings stops a bind before each of its calls, lets a takeover by another
// proxy go as far as before each of its own, lets the bind come to its end, and then the
// takeover. At either stop something befalls the cluster. Whatever comes of it: when the
// takeover is over, the connection is not bound, or is dead; and nobody binds to the old
// term any more.
func TestClusterInterleavings(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, testenv.RedisServer, false)
	o := newOperator(t, c)
	binder, binds := pausable(t, c)
	taker, takes := pausable(t, c)
	every := 10
	if os.Getenv("FENCEPROXY_LONG") != "" {
		every = 1
	}
	counts := map[string]int{}
	for _, warm := range []bool{true, false} { // the node is a member with a copy already
		for _, atHome := range []bool{true, false} {
			for k := int32(1); ; k++ {
				var bindEnded bool
				for j := int32(1 + rand.IntN(every)); ; j += int32(1 + rand.IntN(2*every-1)) {
					run := interleaving{o: o, binder: binder, taker: taker, binds: binds, takes: takes, warm: warm, atHome: atHome, k: k, j: j}
					reachedK, reachedJ, outcome := run.run(t)
					if t.Failed() {
						t.Fatalf("warm %v, at home %v, stops %d and %d, %s", warm, atHome, k, j, run.what)
					}
					counts[outcome]++
					bindEnded = !reachedK
					if !reachedJ || bindEnded {
						break
					}
				}
				if bindEnded {
					break
				}
			}
		}
	}
	t.Log(counts)
	if counts["refused"] == 0 || counts["severed"] == 0 {
		t.Error("not all that may happen did")
	}
}

type interleaving struct {
	o             *operator
	binder, taker *redisfence.ClusterFence
	binds, takes  *pauses
	warm, atHome  bool
	k, j          int32
	what          string
}

func (r *interleaving) run(t *testing.T) (reachedK, reachedJ bool, outcome string) {
	ctx := context.WithValue(t.Context(), marked{}, true)
	x := term(t, 5)
	id := x.Election
	o := r.o
	home := rediscluster.Slot([]byte(redisfence.Key(id)))
	p := o.owner(home)
	if !r.atHome {
		p = o.other(p)
	}
	rec := guardtest.Record(x, guard.Severed, 1)
	if err := r.taker.Swap(t.Context(), id, guard.Record{}, rec); err != nil {
		t.Fatal(err)
	}
	if r.warm {
		if _, err := bindAt(t, r.taker, p.Addr, x, rec); err != nil {
			t.Fatal(err)
		}
	}
	rollBack := o.snapshot(id)
	var later []func()
	befall := func() {
		switch what := rand.IntN(16); what {
		case 0:
			r.what += " home rolled back,"
			if len(later) == 0 {
				rollBack()
			}
		case 1:
			r.what += " node flushed,"
			o.flush(p)
		case 2:
			r.what += " home flushed,"
			o.flush(o.owner(home))
		case 3:
			r.what += " home moved,"
			if len(later) == 0 {
				o.move(home)
			}
		case 4:
			r.what += " home half moved,"
			if len(later) == 0 {
				later = append(later, o.half(home, redisfence.Key(id)))
			}
		case 5:
			r.what += " last slot moved,"
			if s := o.last(p); s != home {
				o.move(s)
			}
		default:
			r.what += " nothing,"
		}
	}
	taken := make(chan error, 1)
	stopped, goOn := make(chan struct{}), make(chan struct{})
	takes := &pause{at: r.j, do: func() { close(stopped); <-goOn }}
	binds := &pause{at: r.k, do: func() {
		befall()
		r.takes.now.Store(takes)
		go func() { taken <- takeOver(ctx, r.taker, after(x)) }()
		select {
		case <-stopped:
		case err := <-taken:
			taken <- err
		}
		befall()
	}}
	r.binds.now.Store(binds)
	conn, err := nameAt(t, p.Addr, x)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := r.binder.Topology().View().ByAddr(p.Addr)
	bindErr := r.binder.Confirm(ctx, n, x, rec)
	close(goOn)
	if reachedK = binds.reached.Load(); reachedK {
		for _, finish := range later {
			finish()
		}
		if err := <-taken; err != nil {
			t.Errorf("takeover: %v", err)
		}
	}
	reachedJ = takes.reached.Load()
	if !reachedK {
		if bindErr != nil {
			t.Errorf("undisturbed: %v", bindErr)
		}
		return false, false, "undisturbed"
	}
	outcome = "refused"
	if bindErr == nil {
		outcome = "severed"
		if conn.Write(ctx) == nil {
			t.Error("bound, and alive after the takeover")
		}
	}
	for _, p := range o.c.Primaries {
		if _, err := bindAt(t, r.binder, p.Addr, x, rec); err == nil {
			t.Errorf("bound to the old term at %s after the takeover", p.Addr)
		}
	}
	if !errors.Is(bindErr, guard.ErrConflict) && bindErr != nil {
		outcome = fmt.Sprintf("failed: %.40v", bindErr)
	}
	return reachedK, reachedJ, outcome
}
