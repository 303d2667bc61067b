package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// The proxy follows the primary that sentinels name, and so do its elections: after a failover
// the leader connects again and goes on.
func TestServeSentinel(t *testing.T) {
	s := testenv.RedisSentinel(t, "redis-server")
	ctx := testenv.Context(t)
	id, addr := testenv.Name(t, "serve"), freeAddr(t)
	url := "redis+sentinel://" + s.Addrs() + "/0?master_name=" + servers.SentinelMaster
	file := configFile(t, `elections: {backend: "%s"}
listeners:
  - {name: cache, protocol: redis, listen: "%s", upstream: "%s", control: "%s", election: "%s"}
`, url, addr, url, url, id)
	if r := command(t, "", "check", "-c", file); r.code != exitOK || !strings.Contains(r.out, "ok    cache: the sentinels name "+s.Primary.Addr) {
		t.Fatalf("%+v", r)
	}
	serve(t, file, addr)
	got, _ := keys(t, command(t, "", "election", "acquire", id, "--backend", url, "--ttl", "10m", "--json").out)
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1,
		CredentialsProvider: func() (string, string) { return ";token=" + got["token"].(string), "x" }})
	defer client.Close()
	write := func() error { return client.Incr(ctx, "k").Err() }
	if err := write(); err != nil {
		t.Fatal(err)
	}
	direct := redis.NewClient(&redis.Options{Addr: s.Primary.Addr})
	defer direct.Close()
	if n := direct.Wait(ctx, 1, 0).Val(); n != 1 {
		t.Fatal("the replica lacks what was written")
	}
	if err := s.Primary.Freeze(); err != nil {
		t.Fatal(err)
	}
	testenv.Within(t, time.Minute, "a write on the next primary", func() bool { return write() == nil })
	after := redis.NewClient(&redis.Options{Addr: s.Replica.Addr})
	defer after.Close()
	if n, err := after.Get(ctx, "k").Int(); err != nil || n < 2 {
		t.Errorf("%d writes there, %v", n, err)
	}
	if err := s.Primary.Thaw(); err != nil {
		t.Fatal(err)
	}

	elections := testenv.Redis(t)
	wrong := "redis+sentinel://" + s.Sentinels[0].Addr + "," + elections.Addr + ",127.0.0.1:1/0?master_name=other"
	wants(t, "nobody", checked(t, elections.Addr, wrong, wrong, ""),
		"fail: db: "+s.Sentinels[0].Addr+` watches no primary named "other" (it watches: main)`, "fail: db: "+elections.Addr+" is no sentinel",
		"fail: db: 127.0.0.1:1: connection refused", "Correct the sentinels or master_name")
	wants(t, "a sentinel", checked(t, elections.Addr, s.Sentinels[0].Addr, "redis://"+s.Sentinels[0].Addr, ""),
		"fail: db: the server is a sentinel", "Set upstream and control to redis+sentinel://HOST:PORT?master_name=NAME: docs/redis.md#sentinel")
}
