package resp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// A cluster client holds several elections on all nodes, and loses its connections on all of
// them with one.
func clusterRules(t *testing.T, nodes *servers.RedisCluster) {
	p := testenv.Name(t, "r")
	rules := shardRules(t, p)
	r := newClusterRig(t, nodes, func(c *resp.ClusterConfig) { rules(&c.Config) })
	one, two := r.acquire(t, p+"orders-1"), r.acquire(t, p+"orders-2")
	user := fmt.Sprintf(";election=%sorders-1;token=%s;election=%sorders-2;token=%s", p, one.Token.Reveal(), p, two.Token.Reveal())
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{r.addr}, DisableIdentity: true, ContextTimeoutEnabled: true, MaxRetries: -1,
		CredentialsProvider: func() (string, string) { return user, "x" },
	})
	defer c.Close()
	key := func(shard, i int) string { return fmt.Sprintf("%sorders:%d:%d", p, shard, i) }
	for i := range 60 {
		if err := c.Set(t.Context(), key(1+i%2, i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.Set(t.Context(), key(3, i), i, 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "FENCED write refused: election \""+p+"orders-3\"") {
			t.Fatalf("it writes what it does not lead: %v", err)
		}
		if err := c.Set(t.Context(), p+"open:"+sprint(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	names := 0
	for _, n := range nodes.Primaries {
		list := direct(t, n.Addr, "CLIENT", "LIST")
		names += strings.Count(list, "name=fenceproxy:"+p+"orders-1:")
		if strings.Count(list, "name=fenceproxy:"+p+"orders-1:") != strings.Count(list, ","+p+"orders-2:") {
			t.Errorf("not all names are joined:\n%s", list)
		}
	}
	if names < 3 {
		t.Errorf("bound on %d connections", names)
	}
	if _, err := r.elections.Resign(t.Context(), p+"orders-2", two.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	next := r.acquire(t, p+"orders-2")
	w := dial(t, r.proxied(t, nodes.Primaries[0].Addr))
	w.want("FENCE BIND "+p+"orders-2 "+next.Token.Reveal(), "+OK\r\n")
	for _, n := range nodes.Primaries {
		list := direct(t, n.Addr, "CLIENT", "LIST")
		if strings.Contains(list, ","+p+"orders-2:"+sprint(two.Number)+":") {
			t.Errorf("a connection of the older term is left:\n%s", list)
		}
	}
	eventually(t, "the client connects anew, and writes what it still leads", func() bool {
		return c.Set(t.Context(), key(1, 0), 1, time.Minute).Err() == nil
	})
	if err := c.Set(t.Context(), key(2, 0), 1, 0).Err(); err == nil {
		t.Error("the old leader writes")
	}
}
