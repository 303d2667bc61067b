package resp_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A server that becomes a replica while a leader's transaction is queued says so in words of
// its own. The session ends as after any other such error.
func TestDemotedWithinATransaction(t *testing.T) {
	for _, v := range servers.RedisVersions() {
		t.Run(v.Name, func(t *testing.T) {
			r := newRig(t, rigOptions{redis: testenv.RedisVersion(t, v)})
			w := dial(t, r.addr)
			w.want("FENCE BIND "+r.lead(t).Token.Reveal(), "+OK\r\n")
			w.want("MULTI", "+OK\r\n")
			w.want("SET a 1", "+QUEUED\r\n")
			c := redis.NewClient(&redis.Options{Addr: r.redis.Addr, DisableIdentity: true})
			defer c.Close()
			if err := c.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
				t.Fatal(err)
			}
			w.wantPrefix("EXEC", "-EXECABORT ")
			w.wantEnd()
		})
	}
}
