package resp_test

import (
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Valkey sends clients that ask for it (CLIENT CAPA redirect) from a replica to its primary:
// past the proxy, where they would present their user name, and the token in it.
func TestNoRedirectionPastTheProxy(t *testing.T) {
	primary, replica := testenv.RedisVersion(t, servers.Valkey8), testenv.RedisVersion(t, servers.Valkey8)
	r := newRig(t, rigOptions{redis: replica})
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	early, direct := dial(t, r.addr), dial(t, replica.Addr)
	early.want("FENCE BIND "+r.lead(t).Token.Reveal(), "+OK\r\n")
	for _, w := range []*wire{early, direct} {
		w.want("CLIENT CAPA other Redirect", "+OK\r\n")
	}
	c := redis.NewClient(&redis.Options{Addr: replica.Addr, DisableIdentity: true})
	defer c.Close()
	if err := c.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	direct.wantPrefix("GET a", "-REDIRECT "+primary.Addr) // the server does that
	late := dial(t, r.addr)
	late.want("CLIENT CAPA redirect", "+OK\r\n")
	late.want("CLIENT CAPA", "-ERR wrong number of arguments for 'client|capa' command\r\n")
	for _, w := range []*wire{early, late} {
		w.want("MULTI", "+OK\r\n")
		w.want("CLIENT CAPA redirect", "+QUEUED\r\n")
		w.want("EXEC", "*1\r\n+OK\r\n")
	}
	for _, w := range []*wire{early, late} {
		if s := w.ask("GET a"); s[0] == '-' && s[:5] != "-MAST" && s[:5] != "-LOAD" {
			t.Errorf("a reader of a replica is answered %q", s)
		}
	}
	early.wantPrefix("SET a 1", "-READONLY ")
	early.wantEnd()
}
