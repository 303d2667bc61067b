package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/loops/loopstest"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// sentinelProxy serves a proxy that follows the primary which the sentinels name.
func sentinelProxy(t *testing.T, ctx context.Context, s *servers.RedisSentinel, b election.Backend) (addr string, f *redisfence.Fence) {
	t.Helper()
	f, err := redisfence.OpenSentinel(ctx, sentinelURL(s), redisfence.Options{Log: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	g := guard.New(b, f, guard.Config{})
	srv, err := resp.New(resp.Config{Upstream: "main", Guard: g, Control: f, Log: testLogger(t), Loops: loopstest.Start(t),
		Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := f.Primary().Dial(ctx)
			if err != nil {
				return nil, err
			}
			return c, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, srv.Serve, func() {
		g.Close()
		_ = f.Close()
	}), f
}

func sentinelURL(s *servers.RedisSentinel) string {
	return "redis+sentinel://" + s.Addrs() + "/0?master_name=" + servers.SentinelMaster
}

// A sentinelRace is takeovers and failovers at once. Every write of number n appends "n:i" to
// one list, so that the list which survives shows the order in which writes were applied.
type sentinelRace struct {
	t       *testing.T
	s       *servers.RedisSentinel
	proxies [2]string

	writes, refused atomic.Int64
	mu              sync.Mutex
	firsts          []int64           // the numbers whose first write was acknowledged, in that order
	late            map[string]string // acknowledged writes that were begun after the first one of a higher number
}

// flood writes as number n until a write fails.
func (r *sentinelRace) flood(ctx context.Context, c guard.Credential, n int64, proxy, way int) {
	cl := dialRedis(r.proxies[proxy], 2+way%2, &c)
	defer cl.Close()
	defer context.AfterFunc(ctx, func() { _ = cl.Close() })()
	for ctx.Err() == nil {
		entry := fmt.Sprintf("%d:%d", n, r.writes.Add(1))
		r.mu.Lock()
		ruler := int64(0)
		if len(r.firsts) > 0 {
			ruler = r.firsts[len(r.firsts)-1]
		}
		r.mu.Unlock()
		var err error
		switch way {
		case 0:
			err = cl.RPush(ctx, "log", entry).Err()
		case 1:
			_, err = cl.Pipelined(ctx, func(p redis.Pipeliner) error {
				for range 20 {
					p.RPush(ctx, "log", entry)
				}
				return nil
			})
		default:
			_, err = cl.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.RPush(ctx, "log", entry)
				p.RPush(ctx, "log", entry)
				return nil
			})
		}
		if err != nil {
			r.refused.Add(1)
			return
		}
		if n < ruler {
			r.mu.Lock()
			r.late[entry] = strconv.FormatInt(ruler, 10) + ":first"
			r.mu.Unlock()
		}
	}
}

// first makes the first write of number n, however long the failover takes.
func (r *sentinelRace) first(ctx context.Context, c guard.Credential, n int64) {
	for proxy := 0; ; proxy++ {
		cl := dialRedis(r.proxies[proxy%2], 3, &c)
		err := cl.RPush(ctx, "log", fmt.Sprint(n, ":first")).Err()
		_ = cl.Close()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			r.t.Fatalf("the first write of number %d: %v", n, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.firsts = append(r.firsts, n)
}

// failover makes another server the primary: by the sentinels' own command, or by stopping
// the present one for as long as that takes.
func (r *sentinelRace) failover(ctx context.Context, f *redisfence.Fence, stop bool) {
	t := r.t
	was, err := f.Primary().Addr(ctx)
	if err != nil {
		t.Fatal(err)
	}
	changed := func() bool {
		now, err := f.Primary().Addr(ctx)
		return err == nil && now != was
	}
	if !stop {
		sentinel := redis.NewSentinelClient(&redis.Options{Addr: r.s.Sentinels[0].Addr})
		defer sentinel.Close()
		// It is refused while the last failover is not over yet.
		testenv.Within(t, time.Minute, "a failover", func() bool {
			return changed() || sentinel.Failover(ctx, servers.SentinelMaster).Err() == nil
		})
		testenv.Within(t, time.Minute, "the next primary", changed)
		return
	}
	old := r.s.Primary
	if old.Addr != was {
		old = r.s.Replica
	}
	if err := old.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer old.Thaw()
	testenv.Within(t, time.Minute, "the next primary", changed)
}

// With failovers in between, the list that survives shows no write of a lower number after
// one of a higher. Writes that were acknowledged in another order are ones that the
// failover itself lost, or that followed a number which it lost.
func TestSentinelNoLateWrites(t *testing.T) {
	takeovers, every := 24, 12
	if os.Getenv("FENCEPROXY_LONG") != "" {
		takeovers, every = 500, 25
	}
	ctx := testenv.Context(t)
	s := testenv.RedisSentinel(t, "redis-server")
	b := memory.New()
	r := &sentinelRace{t: t, s: s, late: make(map[string]string)}
	var f *redisfence.Fence
	r.proxies[0], f = sentinelProxy(t, ctx, s, b)
	r.proxies[1], _ = sentinelProxy(t, ctx, s, b)

	var wg sync.WaitGroup
	floodCtx, stop := context.WithCancel(ctx)
	defer wg.Wait()
	defer stop()
	var token election.Token
	failovers := 0
	for i := range takeovers {
		if !token.IsZero() {
			if _, err := b.Resign(ctx, "orders", token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := b.Acquire(ctx, "orders", election.AcquireOptions{TTL: 10 * time.Minute})
		if err != nil || got.Status != election.Acquired {
			t.Fatalf("acquire: %+v, %v", got, err)
		}
		token = got.Token
		c := guard.Credential{Election: "orders", Token: token}
		if i%every == every/2 {
			failovers++
			wg.Go(func() { r.failover(ctx, f, failovers%2 == 1) })
		}
		r.first(ctx, c, got.Number)
		for way := range 3 {
			for proxy := range 2 {
				wg.Go(func() {
					for range 3 {
						r.flood(floodCtx, c, got.Number, proxy, way)
					}
				})
			}
		}
		pause := time.NewTimer(time.Duration(20+rand.IntN(200)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	stop()
	wg.Wait()
	r.judge(ctx, f, failovers)
}

// judge reads the list that survived.
func (r *sentinelRace) judge(ctx context.Context, f *redisfence.Fence, failovers int) {
	t := r.t
	addr, err := f.Primary().Addr(ctx)
	if err != nil {
		t.Fatal(err)
	}
	direct := redis.NewClient(&redis.Options{Addr: addr})
	defer direct.Close()
	list, err := direct.LRange(ctx, "log", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	at := make(map[string]int, len(list)) // the last place of each entry
	var highest int64
	late := 0
	for i, entry := range list {
		at[entry] = i
		number, _, _ := strings.Cut(entry, ":")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n < highest {
			late++
		}
		highest = max(highest, n)
	}
	lost := 0
	for _, n := range r.firsts {
		if _, there := at[strconv.FormatInt(n, 10)+":first"]; !there {
			lost++
		}
	}
	unexplained := 0
	for entry, first := range r.late {
		a, landed := at[entry]
		b, ruled := at[first]
		if landed && ruled && a > b {
			unexplained++
		}
	}
	t.Logf("%d takeovers, %d failovers, %d writes survived, %d first writes were lost by failovers, %d writes were acknowledged late, %d of them unexplained, %d late in the list",
		len(r.firsts), failovers, len(list), lost, len(r.late), unexplained, late)
	if late != 0 || unexplained != 0 {
		t.Errorf("%d late writes, %d unexplained", late, unexplained)
	}
	if len(list) < 3*len(r.firsts) {
		t.Errorf("only %d writes: the flood did not flood", len(list))
	}
}
