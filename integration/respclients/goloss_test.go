package respclients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// goClosed is what go-redis says of a connection that the server closed.
const goClosed = `\bEOF$|connection reset by peer|broken pipe`

// loss loses leadership in each way; see losing.
func (g *goScript) loss(ctx context.Context) {
	for _, way := range []struct {
		name string
		lose func(ctx context.Context, c redis.UniversalClient)
	}{
		{"one command", g.loseIdle},
		{"blpop", g.loseBLPop},
		{"xreadgroup", g.loseXReadGroup},
		{"watch", g.loseWatch},
		{"pipeline", g.losePipeline},
		{"flood", func(ctx context.Context, c redis.UniversalClient) { g.loseFlood(ctx, c, c.Pipelined) }},
		{"flood of transactions", func(ctx context.Context, c redis.UniversalClient) { g.loseFlood(ctx, c, c.TxPipelined) }},
		{"subscribed", g.loseSubscribed},
	} {
		c := g.universal()
		way.lose(ctx, c)
		g.again(ctx, way.name, c)
		_ = c.Close()
	}
}

// universal is a client of one server, or of a cluster.
func (g *goScript) universal() redis.UniversalClient {
	if !g.p.cluster {
		return g.connect()
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{g.p.addr}, Username: g.p.username(), Password: password,
		Protocol: g.p.resp, TLSConfig: g.p.tls(), ContextTimeoutEnabled: true})
}

// lost prints what the library says of the loss.
func (g *goScript) lost(what string, err error) {
	if err == nil {
		fmt.Fprintln(g.out, "ok but should not:", what)
		return
	}
	fmt.Fprintf(g.out, "lost %s: %T: %s\n", what, err, strings.ReplaceAll(err.Error(), "\n", " / "))
}

func (g *goScript) ask(what string) string {
	fmt.Fprintln(g.out, what)
	g.in.Scan()
	return g.in.Text()
}

func (g *goScript) again(ctx context.Context, way string, c redis.UniversalClient) {
	if v, err := c.Get(ctx, "{k}:then").Result(); err == nil && v != "" {
		fmt.Fprintln(g.out, "again reads")
	} else {
		fmt.Fprintln(g.out, "again cannot read:", v, err)
	}
	fmt.Fprintln(g.out, "again refused", way, c.Set(ctx, "{k}:late again", 1, 0).Err())
	g.p.token = g.ask("@again")
	again := g.universal()
	defer again.Close()
	if err := again.Incr(ctx, "{k}:kept").Err(); err != nil {
		fmt.Fprintln(g.out, "again cannot write:", err)
		return
	}
	fmt.Fprintln(g.out, "again writes")
}

func (g *goScript) loseIdle(ctx context.Context, c redis.UniversalClient) {
	if err := c.Ping(ctx).Err(); err != nil {
		fmt.Fprintln(g.out, err)
	}
	g.ask("@idle")
	g.lost("one command", c.Set(ctx, "{k}:late", 1, 0).Err())
}

func (g *goScript) loseBLPop(ctx context.Context, c redis.UniversalClient) {
	fmt.Fprintln(g.out, "@blocked")
	g.lost("blpop", c.BLPop(ctx, 0, queue).Err())
}

func (g *goScript) loseXReadGroup(ctx context.Context, c redis.UniversalClient) {
	fmt.Fprintln(g.out, "@blocked")
	g.lost("xreadgroup", c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{stream, ">"}, Block: 0}).Err())
}

func (g *goScript) loseWatch(ctx context.Context, c redis.UniversalClient) {
	err := c.Watch(ctx, func(tx *redis.Tx) error {
		if err := tx.Get(ctx, "{k}:then").Err(); err != nil {
			return err
		}
		g.ask("@idle")
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "{k}:late", 1, 0).Err() })
		return err
	}, "{k}:then")
	g.lost("watch", err)
}

func (g *goScript) losePipeline(ctx context.Context, c redis.UniversalClient) {
	fmt.Fprintln(g.out, "@blocked")
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "{k}:early")
		p.BLPop(ctx, 0, queue)
		p.Set(ctx, "{k}:late", 1, 0)
		p.Get(ctx, "{k}:then")
		return nil
	})
	g.lost("pipeline", err)
	// The library sends it all again on a new connection, where what reads is answered.
	for _, cmd := range cmds[1:3] {
		g.lost("pipeline "+cmd.Name(), cmd.Err())
	}
}

func (g *goScript) loseFlood(ctx context.Context, c redis.UniversalClient, pipelined func(ctx context.Context, f func(redis.Pipeliner) error) ([]redis.Cmder, error)) {
	fmt.Fprintln(g.out, "@flooding")
	for {
		cmds, err := pipelined(ctx, func(p redis.Pipeliner) error {
			for range 100 {
				p.Incr(ctx, flood)
			}
			return nil
		})
		if err != nil {
			// Of a transaction it has the server's EXECABORT, and the reason in its commands.
			g.lost("flood", errors.Join(err, cmds[len(cmds)-1].Err()))
			return
		}
	}
}

// loseSubscribed has a subscription on a bound connection, which the library renews.
func (g *goScript) loseSubscribed(ctx context.Context, c redis.UniversalClient) {
	sub := c.Subscribe(ctx, "{k}:channel")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		fmt.Fprintln(g.out, err)
	}
	g.ask("@idle")
	_, err := sub.Receive(ctx)
	g.lost("subscription", err)
	for range 3 { // at the latest the third time it has another connection
		if _, err = sub.Receive(ctx); err == nil {
			return
		}
	}
	fmt.Fprintln(g.out, "again cannot subscribe:", err)
}

// go-redis loses leadership with its credential in the user name and with FENCE BIND, in
// each protocol.
func TestGoRedisLosesLeadership(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "goredisloss")
	for _, resp := range []int{2, 3} {
		goRedis().losing(t, ctx, s, func(c guard.Credential) place { return s.leader(c).in(resp) }, goClosed)
	}
	goRedis().losing(t, ctx, s, s.binding, goClosed)
}
