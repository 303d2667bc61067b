package resp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// tagIn is a hash tag whose slot the node owns.
func (r *clusterRig) tagIn(t testing.TB, p *servers.Process) string {
	t.Helper()
	n, ok := r.top.View().ByAddr(p.Addr)
	if !ok || len(n.Slots) == 0 {
		t.Fatalf("%s has no slots", p.Addr)
	}
	return "{" + rediscluster.Tag(n.Slots[0].First) + "}"
}

// A load counts up keys with a client until it is ended.
type load struct {
	keys []string
	acks map[string]int
	errs []error
	n    atomic.Int64 // writes that were acknowledged
	end  context.CancelFunc
	over sync.WaitGroup
}

// burden counts keys up, in all slots or in those with the tags.
func burden(t testing.TB, c *redis.ClusterClient, keys ...string) *load {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	l := &load{keys: keys, acks: make(map[string]int), end: end}
	l.over.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			k := keys[i%len(keys)]
			if err := c.Incr(context.WithoutCancel(ctx), k).Err(); err != nil {
				l.errs = append(l.errs, err)
			} else {
				l.acks[k]++
				l.n.Add(1)
			}
		}
	})
	t.Cleanup(func() { end(); l.over.Wait() })
	return l
}

// goesOn waits for more acknowledged writes.
func (l *load) goesOn(t testing.TB) {
	t.Helper()
	most := l.n.Load() + 100
	eventually(t, "the leader writes", func() bool { return l.n.Load() >= most })
}

// done ends the load and compares: nothing that was acknowledged is lost, and nothing was
// done more often than asked.
func (l *load) done(t testing.TB, c *redis.ClusterClient) (total int) {
	t.Helper()
	l.end()
	l.over.Wait()
	for _, k := range l.keys {
		n := 0
		eventually(t, "the cluster agrees on where "+k+" is", func() (ok bool) {
			var err error
			n, err = c.Get(t.Context(), k).Int()
			return err == nil || errors.Is(err, redis.Nil)
		})
		if n < l.acks[k] || n > l.acks[k]+len(l.errs) {
			t.Errorf("%s is %d after %d acknowledged and %d failed writes", k, n, l.acks[k], len(l.errs))
		}
		total += l.acks[k]
	}
	return total
}

// agree waits until all primaries say that a slot is a node's.
func (r *clusterRig) agree(t testing.TB, slot int, p *servers.Process) {
	t.Helper()
	id := direct(t, p.Addr, "CLUSTER", "MYID")
	eventually(t, "the nodes agree on the slot", func() bool {
		for _, n := range r.nodes.Primaries {
			_, line, _ := strings.Cut(direct(t, n.Addr, "CLUSTER", "NODES"), id+" ")
			line, _, _ = strings.Cut(line, "\n")
			// The slot is the node's first, or alone.
			if !strings.Contains(line, fmt.Sprintf(" connected %d", slot)) {
				return false
			}
		}
		return true
	})
}

// Slots move while the leader writes, to a node that had some and to a new one: no write
// fails, and no client finds its way to a node.
func clusterSlotsMoveUnderLoad(t *testing.T, nodes *servers.RedisCluster) {
	r := newClusterRig(t, nodes, nil)
	lead := r.lead(t)
	c := r.client(t, lead.Token)
	a, b := nodes.Primaries[0], nodes.Primaries[1]
	tag := r.tagIn(t, a)
	slot := rediscluster.Slot([]byte(tag))
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("%sk%d", tag, i), fmt.Sprintf("k%d", i))
	}
	l := burden(t, c, keys...)
	// A client that does not follow sees what it is told.
	w := dial(t, r.proxied(t, a.Addr))
	w.wantPrefix("AUTH "+r.user("", lead.Token)+" x", "+OK")
	for round := range 4 {
		l.goesOn(t)
		from, to := a, b
		if round%2 == 1 {
			from, to = b, a
		}
		direct(t, to.Addr, "CLUSTER", "SETSLOT", slot, "IMPORTING", direct(t, from.Addr, "CLUSTER", "MYID"))
		direct(t, from.Addr, "CLUSTER", "SETSLOT", slot, "MIGRATING", direct(t, to.Addr, "CLUSTER", "MYID"))
		if round == 0 {
			w.want("SET "+tag+"new 1", fmt.Sprintf("-ASK %d %s\r\n", slot, r.proxied(t, b.Addr)))
			x := dial(t, r.proxied(t, b.Addr))
			x.wantPrefix("AUTH "+r.user("", lead.Token)+" x", "+OK")
			x.want("ASKING", "+OK\r\n")
			x.want("SET "+tag+"new 1", "+OK\r\n")
			x.want("SET "+tag+"new 1", fmt.Sprintf("-MOVED %d %s\r\n", slot, r.proxied(t, a.Addr)))
		}
		if err := servers.MoveKeys(t.Context(), slot, from, to); err != nil {
			t.Fatal(err)
		}
		if err := nodes.AssignSlot(t.Context(), slot, from, to); err != nil {
			t.Fatal(err)
		}
		r.agree(t, slot, to)
		if round == 0 {
			w.want("GET "+tag+"new", fmt.Sprintf("-MOVED %d %s\r\n", slot, r.proxied(t, b.Addr)))
		}
	}
	total := l.done(t, c)
	if len(l.errs) > 0 {
		t.Errorf("%d writes failed, the first: %v", len(l.errs), l.errs[0])
	}
	t.Logf("%d writes", total)
	for _, n := range nodes.All() {
		noStrangers(t, n.Addr)
	}
}

// A failover, asked for or forced by a death: the leader goes on at the new primary, and
// no bound session stays on the old one.
func TestClusterFailover(t *testing.T) {
	for _, v := range []servers.RedisVersion{servers.Redis7, servers.Valkey8} {
		t.Run(v.Name, func(t *testing.T) { clusterFailover(t, startCluster(t, v)) })
	}
}

func clusterFailover(t *testing.T, nodes *servers.RedisCluster) {
	old := nodes.Primaries[0]
	replica, err := nodes.AddReplica(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	r := newClusterRig(t, nodes, nil)
	lead := r.lead(t)
	c := r.client(t, lead.Token)
	tag := r.tagIn(t, old)
	slot := rediscluster.Slot([]byte(tag))
	l := burden(t, c, tag+"a", tag+"b")

	// On a replica nobody writes: who may is told where.
	there := dial(t, r.proxied(t, replica.Addr))
	there.wantPrefix("AUTH "+r.user("", lead.Token)+" x", "+OK")
	there.want("SET "+tag+"x 1", fmt.Sprintf("-MOVED %d %s\r\n", slot, r.proxied(t, old.Addr)))
	there.wantPrefix("FLUSHALL", "-FENCEDOWN ")
	there.want("READONLY", "+OK\r\n")
	eventually(t, "the replica knows that the cluster is up", func() bool { return there.ask("GET "+tag+"x") == "$-1\r\n" })
	blocked := dial(t, r.proxied(t, old.Addr))
	blocked.wantPrefix("AUTH "+r.user("", lead.Token)+" x", "+OK")
	blocked.send("BLPOP " + tag + "list 0")

	l.goesOn(t)
	if err := nodes.Failover(t.Context(), replica, false); err != nil {
		t.Fatal(err)
	}
	// The demoted node answers blocked commands with a redirection; then, or without one, the
	// session ends.
	if rest := blocked.rest(); rest != "" && rest != fmt.Sprintf("-MOVED %d %s\r\n", slot, r.proxied(t, replica.Addr)) && !strings.HasPrefix(rest, "-UNBLOCKED ") {
		t.Errorf("the session on the old primary got %q", rest)
	}
	eventually(t, "the session on the new primary may write", func() bool {
		return there.ask("SET "+tag+"x 1") == "+OK\r\n"
	})
	eventually(t, "nobody is bound on the replica", func() bool {
		return !strings.Contains(direct(t, old.Addr, "CLIENT", "LIST"), "name=fenceproxy:")
	})
	before := dial(t, r.proxied(t, old.Addr))
	before.wantPrefix("AUTH "+r.user("", lead.Token)+" x", "+OK")
	before.want("SET "+tag+"x 2", fmt.Sprintf("-MOVED %d %s\r\n", slot, r.proxied(t, replica.Addr)))

	l.goesOn(t)
	// A primary that dies may take the last writes along: the count ends here.
	t.Logf("%d writes, %d failed", l.done(t, c), len(l.errs))
	// The new primary dies; the old one takes its place again.
	replica.Kill()
	eventually(t, "the session on the old primary may write again", func() bool {
		return before.ask("SET "+tag+"x 3") == "+OK\r\n"
	})
	eventually(t, "the leader goes on once its client has looked again", func() bool {
		c.ReloadState(t.Context())
		return c.Set(t.Context(), tag+"c", 1, 0).Err() == nil
	})
}

// A takeover ends the old leader's sessions on every node.
func clusterTakeover(t *testing.T, nodes *servers.RedisCluster) {
	r := newClusterRig(t, nodes, nil)
	lead := r.lead(t)
	var old []*wire
	for _, p := range nodes.Primaries {
		w := dial(t, r.proxied(t, p.Addr))
		w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
		w.want("SET "+r.tagIn(t, p)+"k 1", "+OK\r\n")
		w.send("BLPOP " + r.tagIn(t, p) + "list 0")
		eventually(t, "the command blocks", func() bool { return strings.Contains(direct(t, p.Addr, "CLIENT", "LIST"), " cmd=blpop ") })
		old = append(old, w)
	}
	next := r.takeOver(t, lead)
	w := dial(t, r.proxied(t, nodes.Primaries[0].Addr))
	w.want("FENCE BIND "+next.Token.Reveal(), "+OK\r\n")
	for i, p := range nodes.Primaries {
		if got := old[i].rest(); !strings.HasPrefix(got, "-FENCED ") || strings.Count(got, "\r\n") != 1 {
			t.Errorf("the old leader on node %d got %q", i, got)
		}
		list := direct(t, p.Addr, "CLIENT", "LIST")
		if n := strings.Count(list, "name=fenceproxy:"); n > 1 || n == 1 && i > 0 {
			t.Errorf("node %d has bound sessions: %s", i, list)
		}
		x := dial(t, r.proxied(t, p.Addr))
		x.wantPrefix("FENCE BIND "+lead.Token.Reveal(), "-FENCED ")
		x.wantPrefix("SET "+r.tagIn(t, p)+"k 1", "-FENCED ")
	}
}

// While the cluster cannot be asked, nobody is bound; a session is bound at its next write
// when it can.
func TestClusterCannotBeAsked(t *testing.T) {
	nodes := startCluster(t, servers.Redis7)
	r := newClusterRig(t, nodes, nil)
	lead := r.lead(t)
	p := nodes.Primaries[0]
	w := dial(t, r.proxied(t, p.Addr))
	r.fence.fail(errors.New("out of reach"))
	w.wantPrefix("AUTH "+r.user("", lead.Token)+" x", "+OK")
	w.wantPrefix("SET "+r.tagIn(t, p)+" 1", "-FENCEDOWN ")
	w.want("GET "+r.tagIn(t, p), "$-1\r\n")
	if strings.Contains(direct(t, p.Addr, "CLIENT", "LIST"), "name=fenceproxy:") {
		t.Error("the session kept the name")
	}
	r.fence.fail(nil)
	w.want("SET "+r.tagIn(t, p)+" 1", "+OK\r\n")
}

// Nodes come and go: a new one is told of as soon as its cluster knows it, and the port of
// one that has left is another's when there are no more.
func TestClusterNodesComeAndGo(t *testing.T) {
	nodes := startCluster(t, servers.Redis7)
	var ports []int
	r := newClusterRig(t, nodes, func(c *resp.ClusterConfig) {
		c.Ports = c.Ports[:4]
		c.Announce = "localhost"
		ports = c.Ports
	})
	first := nodes.Primaries[0]
	w := dial(t, r.proxied(t, first.Addr))
	sees := func(p *servers.Process) func() bool {
		_, port, _ := net.SplitHostPort(r.proxied(t, p.Addr))
		return func() bool { return strings.Contains(w.ask("CLUSTER NODES"), " localhost:"+port+"@") }
	}
	fourth, err := nodes.AddReplica(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.ask("CLUSTER NODES"); strings.Count(got, "@") != 4 || strings.Contains(got, "127.0.0.1") {
		t.Errorf("with a node that is new: %s", got)
	}
	eventually(t, "the new node is told of", sees(fourth))
	fifth, err := nodes.AddReplica(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "there are no ports left", func() bool { return strings.Contains(r.log.String(), "there are more nodes than ports") })
	if got := w.ask("CLUSTER NODES"); strings.Count(got, "@") != 4 {
		t.Errorf("without a port for the fifth: %s", got)
	}
	gone := dial(t, r.proxied(t, fourth.Addr))
	gone.want("PING", "+PONG\r\n")
	id := direct(t, fourth.Addr, "CLUSTER", "MYID")
	fourth.Kill()
	for _, p := range []*servers.Process{nodes.Primaries[0], nodes.Primaries[1], nodes.Primaries[2], fifth} {
		direct(t, p.Addr, "CLUSTER", "FORGET", id)
	}
	gone.rest()
	eventually(t, "the fifth has the port of the fourth", sees(fifth))
	if len(ports) != 4 {
		t.Error(ports)
	}
}

// The ports of a cluster are counted together, and the address that clients connect to
// first leads to a primary.
func TestClusterSeed(t *testing.T) {
	nodes := startCluster(t, servers.Redis7)
	if _, err := nodes.AddReplica(t.Context(), nodes.Primaries[0]); err != nil {
		t.Fatal(err)
	}
	r := newClusterRig(t, nodes, func(c *resp.ClusterConfig) { c.MaxConns = 3 })
	var all []*wire
	for _, addr := range []string{r.addr, r.proxied(t, nodes.Primaries[0].Addr), r.proxied(t, nodes.Replicas[0].Addr)} {
		w := dial(t, addr)
		w.want("PING", "+PONG\r\n")
		all = append(all, w)
	}
	if info := all[0].ask("INFO replication"); !strings.Contains(info, "role:master") {
		t.Error(info)
	}
	for _, addr := range []string{r.addr, r.proxied(t, nodes.Primaries[0].Addr)} {
		if got := dial(t, addr).rest(); got != "-ERR max number of clients reached\r\n" {
			t.Errorf("one too many got %q", got)
		}
	}
	_ = all[2].Close()
	eventually(t, "a place is free", func() bool {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = c.Write([]byte("PING\r\n"))
		b := make([]byte, 5)
		_, err = c.Read(b)
		return err == nil && string(b) == "+PONG"
	})
}

// A node that is new gets its first slot, with keys in it, while the leader writes to them.
func TestClusterNewPrimary(t *testing.T) {
	nodes := startCluster(t, servers.Redis7)
	first := nodes.Primaries[0]
	fresh, err := nodes.AddPrimary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new node knows that the cluster is up", func() bool {
		return strings.Contains(direct(t, fresh.Addr, "CLUSTER", "INFO"), "cluster_state:ok")
	})
	r := newClusterRig(t, nodes, nil)
	lead := r.lead(t)
	c := r.client(t, lead.Token)
	tag := r.tagIn(t, first)
	slot := rediscluster.Slot([]byte(tag))
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("%sk%d", tag, i))
	}
	l := burden(t, c, keys...)
	l.goesOn(t)
	if err := nodes.MoveSlot(t.Context(), slot, first, fresh); err != nil {
		t.Fatal(err)
	}
	l.goesOn(t)
	total := l.done(t, c)
	if len(l.errs) > 0 {
		t.Errorf("%d of %d writes failed, the first: %v", len(l.errs), total, l.errs[0])
	}
	noStrangers(t, fresh.Addr)
}
