package resp_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// startTLSCluster starts three primaries that speak TLS with each other and with clients;
// the addresses are those for TLS.
func startTLSCluster(t *testing.T, v servers.RedisVersion, ca *testenv.Authority) (c *servers.RedisCluster, addrs []string) {
	t.Helper()
	cert := ca.Issue("redis", []string{"127.0.0.1", "localhost"}, nil)
	c = &servers.RedisCluster{}
	for i := range 3 {
		var ports [2]int // TLS, bus
		for j := range ports {
			var err error
			if ports[j], err = servers.FreePort(); err != nil {
				t.Fatal(err)
			}
		}
		p := testenv.RedisVersion(t, v, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--tls-cluster", "yes",
			"--tls-port", strconv.Itoa(ports[0]), "--cluster-port", strconv.Itoa(ports[1]),
			"--tls-cert-file", cert.Cert, "--tls-key-file", cert.Key, "--tls-ca-cert-file", ca.CA, "--tls-auth-clients", "no")
		c.Primaries = append(c.Primaries, p)
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", ports[0]))
		direct(t, p.Addr, "CLUSTER", "ADDSLOTSRANGE", i*rediscluster.Slots/3, (i+1)*rediscluster.Slots/3-1)
		direct(t, c.Primaries[0].Addr, "CLUSTER", "MEET", "127.0.0.1", ports[0], ports[1])
	}
	for _, p := range c.Primaries {
		eventually(t, "the cluster is up", func() bool {
			info := direct(t, p.Addr, "CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3\r")
		})
	}
	return c, addrs
}

// With TLS on both legs a cluster client stays on the proxy, whose ports it is told for TLS.
func TestClusterTLS(t *testing.T) {
	ca := testenv.NewAuthority(t)
	nodes, addrs := startTLSCluster(t, servers.Redis7, ca)
	proxy := ca.Issue("proxy", []string{"localhost", "127.0.0.1"}, nil)
	r := newClusterRig(t, nodes, func(c *resp.ClusterConfig) {
		c.DialNode = nil
		c.UpstreamTLS = openClientTLS(t, tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: ca.CA})
		c.TLS = openServerTLS(t, tlsconf.ServerOptions{Cert: proxy.Cert, Key: proxy.Key, Required: true})
		c.Announce = "localhost"
	}, func(o *rediscluster.Options) {
		o.Seeds, o.Redis.Dialer = addrs, nil
		o.Redis.TLSConfig = trusting(ca)
	})
	lead := r.lead(t)
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{r.addr}, DisableIdentity: true, ContextTimeoutEnabled: true, TLSConfig: trusting(ca),
		CredentialsProvider: func() (string, string) { return r.user("", lead.Token), "x" },
	})
	defer c.Close()
	for i := range 50 {
		if err := c.Set(t.Context(), "key"+sprint(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	shards, err := c.ClusterShards(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		for _, n := range s.Nodes {
			at := net.JoinHostPort("127.0.0.1", strconv.FormatInt(n.TLSPort, 10))
			conn, err := tls.Dial("tcp", at, trusting(ca))
			if err != nil {
				t.Fatalf("%+v: %v", n, err)
			}
			w := &wire{t: t, Conn: conn, r: bufio.NewReader(conn)}
			w.want("CLUSTER MYID", fmt.Sprintf("$40\r\n%s\r\n", n.ID))
			_ = conn.Close()
			if n.Port != n.TLSPort || n.Endpoint != "localhost" || n.IP != "localhost" {
				t.Errorf("told %+v", n)
			}
		}
	}
}
