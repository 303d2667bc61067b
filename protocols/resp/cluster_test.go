package resp_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// In front of a cluster of each kind, which stays as it is.
func TestCluster(t *testing.T) {
	for _, v := range servers.RedisVersions() {
		t.Run(v.Name, func(t *testing.T) {
			nodes := startCluster(t, v)
			for name, test := range map[string]func(*testing.T, *servers.RedisCluster){
				"Lists": clusterLists, "ClientStaysOnTheProxy": clusterClientStaysOnTheProxy, "Takeover": clusterTakeover,
				"SlotsMoveUnderLoad": clusterSlotsMoveUnderLoad, "TooFewPorts": clusterTooFewPorts, "Rules": clusterRules,
			} {
				t.Run(name, func(t *testing.T) { test(t, nodes) })
			}
		})
	}
}

// What the nodes are asked for their addresses comes as they answer it, but for the
// addresses, in both protocols.
func clusterLists(t *testing.T, nodes *servers.RedisCluster) {
	r := newClusterRig(t, nodes, func(c *resp.ClusterConfig) { c.Own = map[string]resp.Commands{resp.OwnElection: new(ownCommands)} })
	dial(t, r.addr).want("ELECTION", "*2\r\n$5\r\nwords\r\n*0\r\n") // where clients begin, and below at each node
	for _, n := range r.nodes.All() {
		through, there := dial(t, r.proxied(t, n.Addr)), dial(t, n.Addr)
		for _, protocol := range []string{"2", "3"} {
			for _, w := range []*wire{through, there} {
				w.wantPrefix("HELLO "+protocol, map[string]string{"2": "*", "3": "%"}[protocol])
			}
			for _, cmd := range []string{"CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER REPLICAS " + strings.Repeat("0", 40), "CLUSTER MYID", "CLUSTER SLOTS x"} {
				want := there.ask(cmd)
				for _, other := range r.nodes.All() {
					to := r.proxied(t, other.Addr)
					_, from, _ := strings.Cut(other.Addr, ":")
					_, port, _ := strings.Cut(to, ":")
					want = strings.ReplaceAll(want, ":"+from+"\r\n", ":"+port+"\r\n")
				}
				through.want(cmd, want)
			}
			through.wantPrefix("ELECTION", map[string]string{"2": "*2", "3": "%1"}[protocol])
			got := through.ask("CLUSTER NODES")
			for _, other := range r.nodes.All() {
				if strings.Contains(got, " "+other.Addr+"@") || !strings.Contains(got, " "+r.proxied(t, other.Addr)+"@") {
					t.Errorf("CLUSTER NODES tells %s:\n%s", other.Addr, got)
				}
			}
		}
	}
}

// A cluster client writes over all slots and stays on the proxy.
func clusterClientStaysOnTheProxy(t *testing.T, nodes *servers.RedisCluster) {
	r := newClusterRig(t, nodes, nil)
	lead := r.lead(t)
	c := r.client(t, lead.Token)
	for i := range 300 {
		if err := c.Set(t.Context(), "key"+sprint(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range r.nodes.All() {
		noStrangers(t, n.Addr)
		if n := direct(t, n.Addr, "DBSIZE"); n == "0" {
			t.Error("a node got no key")
		}
	}
}
