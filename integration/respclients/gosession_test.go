package respclients

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// goRedis is the script of go-redis, in this process.
func goRedis() *script {
	return &script{name: "go-redis", protocols: []int{2, 3}, run: func(ctx context.Context, p place, mode string, in io.Reader, out io.Writer) error {
		g := &goScript{p: p, in: bufio.NewScanner(in), out: out}
		switch {
		case p.cluster && mode != "loss":
			g.inCluster(ctx, mode)
			_, err := fmt.Fprintln(out, "done")
			return err
		}
		switch mode {
		case "session":
			g.session(ctx)
		case "read":
			c := g.connect()
			defer c.Close()
			g.reads(ctx, c)
		case "refused":
			g.refused(ctx)
		case "ways":
			g.ways(ctx)
		case "loss":
			g.loss(ctx)
		}
		_, err := fmt.Fprintln(out, "done")
		return err
	}}
}

// A goScript is one run of it.
type goScript struct {
	p   place
	in  *bufio.Scanner
	out io.Writer
}

// options are the library's own defaults, but for what the place says.
func (g *goScript) options() *redis.Options {
	o := &redis.Options{Addr: g.p.addr, Username: g.p.username(), Password: password, Protocol: g.p.resp, TLSConfig: g.p.tls(), ContextTimeoutEnabled: true}
	if g.p.bind {
		o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
			err := cn.Do(ctx, "FENCE", "BIND", g.p.election, g.p.token).Err()
			if redis.HasErrorPrefix(err, "FENCED") {
				return nil // a reader, then
			}
			return err
		}
	}
	return o
}

func (g *goScript) connect() *redis.Client { return redis.NewClient(g.options()) }

// show writes what came of something.
func (g *goScript) show(what string, got any, err error) {
	if err != nil {
		fmt.Fprintf(g.out, "%s: %T %v\n", what, err, err)
		return
	}
	text := fmt.Sprintf("%v", got)
	if len(text) > 2000 {
		text = fmt.Sprintf("%d bytes, %x", len(text), sha256.Sum256([]byte(text)))
	}
	text = strconv.Quote(text)
	fmt.Fprintf(g.out, "%s: %s\n", what, text[1:len(text)-1])
}

func (g *goScript) cmd(c redis.Cmder) {
	got := strings.TrimPrefix(c.String(), strings.Trim(fmt.Sprint(c.Args()), "[]")+": ")
	err := c.Err()
	name := c.FullName()
	if args := c.Args(); len(args) > 1 {
		name += fmt.Sprintf(" %.40v", args[1])
	}
	g.show(name, got, err)
}

func sorted(v []string, err error) ([]string, error) {
	sort.Strings(v)
	return v, err
}

// big is a value that no buffer holds.
func big() string { return strings.Repeat("0123456789abcdef", 1<<16) }

func (g *goScript) reads(ctx context.Context, c *redis.Client) {
	for _, cmd := range []redis.Cmder{
		c.Ping(ctx), c.Echo(ctx, "hello"), c.Get(ctx, "{k}:s"), c.Get(ctx, "{k}:none"), c.MGet(ctx, "{k}:s", "{k}:none", "{k}:n"),
		c.GetRange(ctx, "{k}:s", 0, 3), c.StrLen(ctx, "{k}:s"), c.Exists(ctx, "{k}:s", "{k}:none"), c.Type(ctx, "{k}:z"), c.TTL(ctx, "{k}:s"),
		c.LRange(ctx, "{k}:l", 0, -1), c.LIndex(ctx, "{k}:l", 1), c.LPos(ctx, "{k}:l", "b", redis.LPosArgs{}), c.HGet(ctx, "{k}:h", "a"), c.HGetAll(ctx, "{k}:h"),
		c.HMGet(ctx, "{k}:h", "a", "none"), c.HStrLen(ctx, "{k}:h", "a"), c.SCard(ctx, "{k}:set"), c.SIsMember(ctx, "{k}:set", "m"), c.SMIsMember(ctx, "{k}:set", "m", "none"),
		c.ZRangeWithScores(ctx, "{k}:z", 0, -1), c.ZScore(ctx, "{k}:z", "two"), c.ZRank(ctx, "{k}:z", "three"), c.ZMScore(ctx, "{k}:z", "one", "none"),
		c.ZRangeArgs(ctx, redis.ZRangeArgs{Key: "{k}:z", Start: "(1", Stop: "+inf", ByScore: true}), c.ZCount(ctx, "{k}:z", "-inf", "2"), c.BitCount(ctx, "{k}:s", nil), c.GetBit(ctx, "{k}:s", 3),
		c.XRange(ctx, "{k}:x", "-", "+"), c.XRevRangeN(ctx, "{k}:x", "+", "-", 1), c.XLen(ctx, "{k}:x"), c.XInfoGroups(ctx, "{k}:x"),
		c.XRead(ctx, &redis.XReadArgs{Streams: []string{"{k}:x", "0"}, Count: 1}), c.XRead(ctx, &redis.XReadArgs{Streams: []string{"{k}:x", "$"}, Block: 10 * time.Millisecond}),
		c.Do(ctx, "GEOPOS", "{k}:g", "rome", "none"), c.GeoDist(ctx, "{k}:g", "rome", "oslo", "km"), c.GeoSearch(ctx, "{k}:g", &redis.GeoSearchQuery{Member: "rome", Radius: 100, RadiusUnit: "km"}),
		c.Get(ctx, "{k}:big"), c.GetRange(ctx, "{k}:big", 1000000, -1), c.Dump(ctx, "{k}:s"), c.ObjectEncoding(ctx, "{k}:l"), c.SortRO(ctx, "{k}:l", &redis.Sort{Alpha: true}),
		c.SInterCard(ctx, 0, "{k}:set", "{k}:set2"), c.EvalRO(ctx, "return redis.call('GET', KEYS[1])", []string{"{k}:s"}), c.FCallRO(ctx, "look", []string{"{k}:s"}),
		c.HGet(ctx, "{k}:s", "wrong type"), c.Do(ctx, "GET"), c.Do(ctx, "GETRANGE", "{k}:s", "x", 1), c.ConfigGet(ctx, "maxmemory"), c.Do(ctx, "COMMAND", "COUNT"),
		c.Do(ctx, "COMMAND", "GETKEYS", "MSET", "a", 1, "b", 2), c.Do(ctx, "ACL", "WHOAMI"), c.DBSize(ctx), c.Wait(ctx, 0, 0), c.Do(ctx, "LOLWUT", "VERSION", 1),
		c.PubSubNumSub(ctx, "nowhere"), c.Do(ctx, "CLIENT", "NO-TOUCH"), c.Do(ctx, "CLIENT", "TRACKINGINFO"), c.Do(ctx, "GET", "{k}:s", "too many"),
	} {
		g.cmd(cmd)
	}
	members, err := sorted(c.SMembers(ctx, "{k}:set").Result())
	g.show("smembers", members, err)
	var keys []string
	iter := c.Scan(ctx, 0, "{k}:*", 3).Iterator()
	for iter.Next(ctx) {
		keys = append(keys, iter.Val())
	}
	keys, err = sorted(keys, iter.Err())
	g.show("scan", keys, err)
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 300 {
			p.GetRange(ctx, "{k}:s", int64(i%4), -1)
		}
		p.LRange(ctx, "{k}:s", 0, 1)
		p.HGetAll(ctx, "{k}:h")
		return nil
	})
	g.show("pipeline", cmds, err)
	g.cmd(cmds[300])
	g.cmd(cmds[301])
	cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Get(ctx, "{k}:s")
		p.LLen(ctx, "{k}:s")
		p.Do(ctx, "TIME", "no such argument")
		return nil
	})
	g.show("transaction with an error in its queue", cmds, err)
	cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Get(ctx, "{k}:s")
		p.LLen(ctx, "{k}:s")
		p.ZRangeWithScores(ctx, "{k}:z", 0, -1)
		return nil
	})
	g.show("transaction with a failure", cmds, err)
	err = c.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Get(ctx, "{k}:s").Err() })
		return err
	}, "{k}:s")
	g.show("watch", "ok", err)
	conn := c.Conn()
	defer conn.Close()
	g.cmd(conn.ClientSetName(ctx, "mine"))
	g.cmd(conn.ClientGetName(ctx))
	g.cmd(conn.Select(ctx, 1))
	g.cmd(conn.Get(ctx, "{k}:s"))
	g.cmd(conn.Select(ctx, 0))
	g.cmd(conn.Get(ctx, "{k}:s"))
	id, err := conn.ClientID(ctx).Result()
	list := conn.Do(ctx, "CLIENT", "LIST", "ID", id)
	g.show("own entry in CLIENT LIST", strings.Contains(fmt.Sprint(list.Val()), " cmd=client"), errors.Join(err, list.Err()))
}

func (g *goScript) session(ctx context.Context) {
	c := g.connect()
	defer c.Close()
	for _, cmd := range []redis.Cmder{
		c.Set(ctx, "{k}:s", "text", 0), c.Append(ctx, "{k}:s", " and more"), c.SetArgs(ctx, "{k}:s", "x", redis.SetArgs{Mode: "NX"}), c.Incr(ctx, "{k}:n"), c.IncrBy(ctx, "{k}:n", 9007199254740993),
		c.IncrByFloat(ctx, "{k}:f", 1.5), c.Incr(ctx, "{k}:s"), c.MSet(ctx, "{k}:a", "", "{k}:b", "\x00\xff\r\n"), c.Get(ctx, "{k}:a"), c.Get(ctx, "{k}:b"), c.SetArgs(ctx, "{k}:a", 1, redis.SetArgs{Get: true}), c.GetDel(ctx, "{k}:a"),
		c.Set(ctx, "{k}:e", 1, time.Hour), c.Persist(ctx, "{k}:e"), c.GetEx(ctx, "{k}:e", time.Minute), c.ExpireNX(ctx, "{k}:e", time.Hour), c.Set(ctx, "{k}:big", big(), 0),
		c.RPush(ctx, "{k}:l", "c", "a", "b"), c.LSet(ctx, "{k}:l", 0, "z"), c.LInsertBefore(ctx, "{k}:l", "a", "y"), c.LMove(ctx, "{k}:l", "{k}:l2", "LEFT", "RIGHT"), c.LMPop(ctx, "left", 2, "{k}:none", "{k}:l2"),
		c.HSet(ctx, "{k}:h", "a", 1), c.HIncrBy(ctx, "{k}:h", "a", 5), c.HSetNX(ctx, "{k}:h", "a", 1), c.SAdd(ctx, "{k}:set", "m", "n", "m"), c.SAdd(ctx, "{k}:set2", "n", "o"), c.SInterStore(ctx, "{k}:set3", "{k}:set", "{k}:set2"),
		c.SRem(ctx, "{k}:set", "n"), c.SPop(ctx, "{k}:set3"), c.ZAdd(ctx, "{k}:z", redis.Z{Score: 1, Member: "one"}, redis.Z{Score: 2.5, Member: "two"}, redis.Z{Score: 3, Member: "three"}),
		c.ZIncrBy(ctx, "{k}:z", 0.25, "two"), c.ZAddArgsIncr(ctx, "{k}:z", redis.ZAddArgs{NX: true, Members: []redis.Z{{Score: 9, Member: "one"}}}), c.ZRangeStore(ctx, "{k}:z2", redis.ZRangeArgs{Key: "{k}:z", Start: 0, Stop: 1}),
		c.ZPopMax(ctx, "{k}:z2"), c.ZMPop(ctx, "min", 1, "{k}:z2"), c.SetBit(ctx, "{k}:bits", 7, 1), c.BitOpNot(ctx, "{k}:bits2", "{k}:bits"), c.BitField(ctx, "{k}:bits", "INCRBY", "u4", 2, 3), c.PFAdd(ctx, "{k}:p", 1, 2, 3), c.PFCount(ctx, "{k}:p"),
		c.GeoAdd(ctx, "{k}:g", &redis.GeoLocation{Name: "rome", Longitude: 12.5, Latitude: 41.9}, &redis.GeoLocation{Name: "oslo", Longitude: 10.75, Latitude: 59.9}),
		c.XAdd(ctx, &redis.XAddArgs{Stream: "{k}:x", ID: "1-1", Values: []any{"f", "v"}}), c.XAdd(ctx, &redis.XAddArgs{Stream: "{k}:x", ID: "2-*", Values: []any{"f", "w", "g", "x"}}), c.XAdd(ctx, &redis.XAddArgs{Stream: "{k}:x", ID: "1-1", Values: []any{"f", "v"}}),
		c.XGroupCreate(ctx, "{k}:x", "g", "0"), c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"{k}:x", ">"}}), c.XAck(ctx, "{k}:x", "g", "1-1"), c.XPending(ctx, "{k}:x", "g"),
		c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"{k}:x", ">"}, Block: 10 * time.Millisecond}), c.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: "{k}:x", Group: "g", Consumer: "d", Start: "0"}), c.XTrimMaxLen(ctx, "{k}:x", 5),
		c.BLPop(ctx, time.Second, "{k}:none", "{k}:l"), c.Do(ctx, "BLPOP", "{k}:none", "0.05"), c.BLMove(ctx, "{k}:l", "{k}:l", "RIGHT", "LEFT", time.Second), c.BZPopMin(ctx, time.Second, "{k}:z"), c.BLMPop(ctx, time.Second, "right", 1, "{k}:none", "{k}:l"),
		c.RPush(ctx, "{k}:l", "b", "a"), c.ZAdd(ctx, "{k}:z", redis.Z{Score: 1, Member: "one"}), c.Copy(ctx, "{k}:s", "{k}:copy", 0, true), c.Rename(ctx, "{k}:copy", "{k}:renamed"), c.Unlink(ctx, "{k}:renamed", "{k}:none"), c.SortStore(ctx, "{k}:l", "{k}:sorted", &redis.Sort{Alpha: true}),
		c.Eval(ctx, "redis.call('SET', KEYS[1], ARGV[1]) return {1, 'two', false, {ok = 'FINE'}}", []string{"{k}:script"}, "by a script"), c.Eval(ctx, "return redis.error_reply('MY error')", nil), c.Eval(ctx, "return nowhere", nil),
		c.EvalSha(ctx, "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", nil), c.ScriptLoad(ctx, "return 500"), c.EvalSha(ctx, "98fe65896b61b785c5ed328a5a0a1421f4f1490c", nil), c.ScriptExists(ctx, "98fe65896b61b785c5ed328a5a0a1421f4f1490c"),
		c.FunctionLoadReplace(ctx, "#!lua name=lib\nredis.register_function('put', function(k, a) return redis.call('SET', k[1], a[1]) end)\nredis.register_function{function_name='look', callback=function(k) return redis.call('GET', k[1]) end, flags={'no-writes'}}"),
		c.FCall(ctx, "put", []string{"{k}:fn"}, "by a function"), c.Get(ctx, "{k}:fn"), c.FunctionList(ctx, redis.FunctionListQuery{}), c.Do(ctx, "FUNCTION", "STATS"), c.Touch(ctx, "{k}:s"), c.Do(ctx, "OBJECT", "FREQ", "{k}:s"), c.Do(ctx, "NOSUCHCOMMAND", "x"),
		c.Publish(ctx, "nobody", "hears"),
	} {
		g.cmd(cmd)
	}
	incr := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
	g.cmd(incr.Run(ctx, c, []string{"{k}:sn"}, 7))
	g.cmd(incr.Run(ctx, c, []string{"{k}:sn"}, 7))
	g.pipelines(ctx, c)
	g.transactions(ctx, c)
	g.pubsub(ctx, c)
	g.connections(ctx, c)
	g.reads(ctx, c)
}

func (g *goScript) pipelines(ctx context.Context, c *redis.Client) {
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 2000 {
			p.RPush(ctx, "{k}:many", i)
		}
		p.Incr(ctx, "{k}:s") // an error in the middle
		p.LLen(ctx, "{k}:many")
		p.Set(ctx, "{k}:big2", big(), 0)
		p.StrLen(ctx, "{k}:big2")
		p.LRange(ctx, "{k}:many", 0, -1)
		return nil
	})
	g.show("pipeline", len(cmds), err)
	for _, cmd := range cmds[1998:] {
		g.cmd(cmd)
	}
	cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for range 100 {
			p.Incr(ctx, "{k}:tx")
		}
		p.Incr(ctx, "{k}:s")
		p.HSet(ctx, "{k}:txh", "f", "v")
		p.HGetAll(ctx, "{k}:txh")
		return nil
	})
	g.show("transaction", cmds, err)
	cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "{k}:aborted", 1, 0)
		p.Do(ctx, "SET", "{k}:aborted")
		return nil
	})
	g.show("aborted transaction", cmds, err)
	g.cmd(c.Exists(ctx, "{k}:aborted"))
}

func (g *goScript) transactions(ctx context.Context, c *redis.Client) {
	for _, disturbed := range []bool{false, true} {
		err := c.Watch(ctx, func(tx *redis.Tx) error {
			n, err := tx.Get(ctx, "{k}:tx").Int()
			if err != nil {
				return err
			}
			if disturbed {
				g.cmd(c.Set(ctx, "{k}:tx", 0, 0))
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "{k}:tx", n*2, 0).Err() })
			return err
		}, "{k}:tx", "{k}:other")
		g.show("watch", "committed", err)
		g.cmd(c.Get(ctx, "{k}:tx"))
	}
	conn := c.Conn()
	defer conn.Close()
	for _, args := range []string{"WATCH {k}:tx", "UNWATCH", "MULTI", "SET {k}:discarded 1", "DISCARD", "EXISTS {k}:discarded", "EXEC", "MULTI", "MULTI", "PING", "INCR {k}:tx", "EXEC"} {
		g.cmd(conn.Do(ctx, fields(args)...))
	}
}

func fields(s string) (args []any) {
	for _, f := range strings.Fields(s) {
		args = append(args, f)
	}
	return args
}

func (g *goScript) pubsub(ctx context.Context, c *redis.Client) {
	sub := c.Subscribe(ctx, "{k}:one", "{k}:two")
	defer sub.Close()
	receive := func(sub *redis.PubSub, n int) {
		for range n {
			m, err := sub.Receive(ctx)
			g.show("received", m, err)
		}
	}
	receive(sub, 2)
	g.show("psubscribe", "ok", sub.PSubscribe(ctx, "{k}:t*"))
	receive(sub, 1)
	g.cmd(c.Publish(ctx, "{k}:one", "hello"))
	g.cmd(c.Publish(ctx, "{k}:two", big()))
	receive(sub, 3)
	g.cmd(c.PubSubNumSub(ctx, "{k}:one"))
	g.cmd(c.PubSubNumPat(ctx))
	g.show("ping", "ok", sub.Ping(ctx, "there"))
	receive(sub, 1)
	g.show("unsubscribe", "ok", sub.Unsubscribe(ctx))
	receive(sub, 2)
	sharded := c.SSubscribe(ctx, "{k}:shard")
	defer sharded.Close()
	receive(sharded, 1)
	g.cmd(c.SPublish(ctx, "{k}:shard", "to a shard"))
	receive(sharded, 1)
}

func (g *goScript) connections(ctx context.Context, c *redis.Client) {
	conn := c.Conn()
	defer conn.Close()
	for _, args := range []string{"CLIENT SETNAME mine", "CLIENT GETNAME", "SELECT 1", "SET there 1", "KEYS *", "FLUSHDB", "DBSIZE", "SELECT 0", "MOVE {k}:fn 1", "SELECT 1", "GET {k}:fn", "SELECT 0",
		"CLIENT CACHING YES", "CLIENT GETREDIR", "AUTH app wrong", "AUTH app secret", "ACL WHOAMI", "GET {k}:s", "SET {k}:after-auth 1"} {
		g.cmd(conn.Do(ctx, fields(args)...))
	}
	// With DB, a client selects when it connects.
	o := g.options()
	o.DB, o.ClientName = 1, "named"
	other := redis.NewClient(o)
	defer other.Close()
	g.cmd(other.Set(ctx, "in one", 1, 0))
	g.cmd(other.DBSize(ctx))
	g.cmd(other.ClientGetName(ctx))
}

// refused tries to write without a live token.
func (g *goScript) refused(ctx context.Context) {
	c := g.connect()
	defer c.Close()
	attempt := func(what string, err error) { fmt.Fprintf(g.out, "%s: %T %v\n", what, err, err) }
	attempt("set", c.Set(ctx, "{k}:late", 1, 0).Err())
	attempt("big", c.Set(ctx, "{k}:late", big(), 0).Err())
	attempt("blpop", c.BLPop(ctx, 0, "{k}:queue").Err())
	attempt("xreadgroup", c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"{k}:x", ">"}}).Err())
	attempt("eval", c.Eval(ctx, "return redis.call('SET', KEYS[1], 1)", []string{"{k}:late"}).Err())
	attempt("script", redis.NewScript("return redis.call('SET', KEYS[1], 2)").Run(ctx, c, []string{"{k}:late"}).Err())
	attempt("fcall", c.FCall(ctx, "put", []string{"{k}:late"}, 1).Err())
	attempt("publish", c.Publish(ctx, "c", "m").Err())
	attempt("flushall", c.FlushAll(ctx).Err())
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Get(ctx, "{k}:s")
		p.Set(ctx, "{k}:late", 1, 0)
		p.Get(ctx, "{k}:s")
		return nil
	})
	attempt("pipeline", err)
	if cmds[0].Err() != nil || cmds[2].Err() != nil {
		fmt.Fprintln(g.out, "its neighbours:", cmds)
	}
	cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Get(ctx, "{k}:s")
		p.Set(ctx, "{k}:late", 1, 0)
		return nil
	})
	attempt("transaction", cmds[1].Err())
	if err == nil {
		fmt.Fprintln(g.out, "a transaction with a refused write:", cmds)
	}
	attempt("watch", c.Watch(ctx, func(tx *redis.Tx) error { return tx.Set(ctx, "{k}:late", 1, 0).Err() }, "{k}:s"))
}

// ways presents the token in each way.
func (g *goScript) ways(ctx context.Context) {
	status := func(what string, o *redis.Options) {
		o.Addr, o.Protocol, o.TLSConfig = g.p.addr, g.p.resp, g.p.tls()
		c := redis.NewClient(o)
		defer c.Close()
		g.status(ctx, what, c)
	}
	full, short := g.p.username(), ";token="+g.p.token
	status("none", &redis.Options{Username: user, Password: password})
	status("user name", &redis.Options{Username: full, Password: password})
	status("default election", &redis.Options{Username: user + short, Password: password})
	status("default user", &redis.Options{Username: ";election=" + g.p.election + short, Password: "x"})
	status("CredentialsProvider", &redis.Options{CredentialsProvider: func() (string, string) { return full, password }})
	status("CredentialsProviderContext", &redis.Options{CredentialsProviderContext: func(context.Context) (string, string, error) { return full, password, nil }})
	status("OnConnect", &redis.Options{OnConnect: func(ctx context.Context, cn *redis.Conn) error {
		return cn.Do(ctx, "FENCE", "BIND", g.p.election, g.p.token).Err()
	}})
	if o, err := redis.ParseURL("redis://" + strings.NewReplacer(";", "%3B", "=", "%3D").Replace(full) + ":" + password + "@" + g.p.addr); err == nil {
		status("URL", o)
	} else {
		fmt.Fprintln(g.out, "URL:", err)
	}
}

func (g *goScript) status(ctx context.Context, what string, c *redis.Client) {
	v, err := c.Do(ctx, "FENCE", "STATUS").Result()
	state := any(err)
	switch v := v.(type) {
	case map[any]any:
		state = v["state"]
	case []any:
		state = v[1]
	}
	fmt.Fprintf(g.out, "%s: %v\n", what, state)
}

func TestGoRedis(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	goRedis().transcripts(t, ctx, newStage(t, ctx, "goredis"), "by a function", "redis: transaction failed", "EXECABORT", "to a shard", "MY error", "NOSCRIPT", "WRONGTYPE")
}
