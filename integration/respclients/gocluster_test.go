package respclients

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusterKeys is how many keys, key:0 and so on, a script spreads over a cluster.
const clusterKeys = 60

// inCluster is the script's work in a cluster.
func (g *goScript) inCluster(ctx context.Context, mode string) {
	c := g.universal().(*redis.ClusterClient)
	defer c.Close()
	switch mode {
	case "session":
		g.clusterSession(ctx, c)
		g.clusterReads(ctx, c)
	case "read":
		g.clusterReads(ctx, c)
	case "refused":
		for i := range clusterKeys {
			err := c.Set(ctx, fmt.Sprint("late:", i), 1, 0).Err()
			fmt.Fprintf(g.out, "set: %v\n", err)
		}
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range clusterKeys {
				p.Set(ctx, fmt.Sprint("late:", i), 1, 0)
			}
			return nil
		})
		fmt.Fprintf(g.out, "pipeline: %v\n", err)
	}
}

func (g *goScript) clusterSession(ctx context.Context, c *redis.ClusterClient) {
	for i := range clusterKeys {
		g.cmd(c.Set(ctx, fmt.Sprint("key:", i), i, 0))
	}
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range clusterKeys {
			p.Append(ctx, fmt.Sprint("key:", i), "x")
		}
		p.LPush(ctx, "key:1", "x")
		return nil
	})
	g.show("pipeline", cmds, err)
	cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "{k}:n")
		p.RPush(ctx, "{k}:l", 1, 2, 3)
		return nil
	})
	g.show("transaction", cmds, err)
	err = c.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Incr(ctx, "{k}:n").Err() })
		return err
	}, "{k}:n")
	g.show("watch", "committed", err)
	script := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
	for _, cmd := range []redis.Cmder{
		c.MSet(ctx, "key:1", 1, "key:2", 2), c.Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"key:7"}), script.Run(ctx, c, []string{"{k}:n"}, 0),
		c.BLPop(ctx, time.Second, "{k}:l"), c.XAdd(ctx, &redis.XAddArgs{Stream: "{k}:x", ID: "1-1", Values: []any{"f", "v"}}), c.XGroupCreate(ctx, "{k}:x", "g", "0"),
		c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"{k}:x", ">"}}), c.Rename(ctx, "key:1", "key:2"), c.Del(ctx, "{k}:none"),
	} {
		g.cmd(cmd)
	}
	sub, sharded := c.Subscribe(ctx, "channel"), c.SSubscribe(ctx, "key:3")
	defer sub.Close()
	defer sharded.Close()
	for _, s := range []*redis.PubSub{sub, sharded} {
		m, err := s.Receive(ctx)
		g.show("subscribed", m, err)
	}
	g.show("publish", "ok", errors.Join(c.Publish(ctx, "channel", "hello").Err(), c.SPublish(ctx, "key:3", "to a shard").Err()))
	for _, s := range []*redis.PubSub{sub, sharded} {
		m, err := s.ReceiveMessage(ctx)
		g.show("received", m, err)
	}
}

func (g *goScript) clusterReads(ctx context.Context, c *redis.ClusterClient) {
	for i := range clusterKeys {
		g.cmd(c.Get(ctx, fmt.Sprint("key:", i)))
	}
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range clusterKeys {
			p.Get(ctx, fmt.Sprint("key:", i))
		}
		return nil
	})
	g.show("pipeline", cmds, err)
	g.cmd(c.LRange(ctx, "{k}:l", 0, -1))
	g.cmd(c.Do(ctx, "MGET", "key:1", "key:2"))
	g.cmd(c.ClusterKeySlot(ctx, "{k}:n"))
	g.cmd(c.ClusterCountKeysInSlot(ctx, 7629))
	var primaries, keys atomic.Int64
	err = c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		primaries.Add(1)
		iter := c.Scan(ctx, 0, "key:*", 5).Iterator()
		for iter.Next(ctx) {
			keys.Add(1)
		}
		return iter.Err()
	})
	g.show("primaries and keys", []int64{primaries.Load(), keys.Load()}, err)
	shards, err := c.ClusterShards(ctx).Result()
	g.show("shards", len(shards), err)
}
