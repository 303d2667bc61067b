package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The ports of a cluster's nodes, and the host that clients are told.
func TestClusterOptions(t *testing.T) {
	file := func(upstream, listen, cluster string) string {
		s := fmt.Sprintf("elections: {backend: \"redis://h\"}\nlisteners:\n  - protocol: redis\n    listen: %s\n    upstream: %q\n    control: %q\n", listen, upstream, strings.Replace("redis+cluster://n", "+cluster", upstream[5:strings.Index(upstream, ":")], 1))
		if cluster != "" {
			s += "    cluster: " + cluster + "\n"
		}
		return s
	}
	const cluster = "redis+cluster://n"
	for name, c := range map[string]struct {
		upstream, listen, cluster string
		ports                     []int
		announce                  string
		want                      string // without f.yaml:
	}{
		"a range":    {cluster, ":6380", "{ports: 7001-7003, announce: proxy.example}", []int{7001, 7002, 7003}, "proxy.example", ""},
		"one":        {cluster, ":6380", "{ports: 7001}", []int{7001}, "", ""},
		"a list":     {cluster, ":6380", "{ports: [7001-7002, 8000]}", []int{7001, 7002, 8000}, "", ""},
		"IPv6":       {cluster, ":6380", "{ports: 7001, announce: '2001:db8::1'}", []int{7001}, "2001:db8::1", ""},
		"none":       {cluster, ":6380", "", nil, "", "4:5: listeners[0].cluster: missing: in front of a cluster, ports"},
		"no ports":   {cluster, ":6380", "{announce: x}", nil, "", "7:5: listeners[0].cluster.ports: missing: a port for each node"},
		"twice":      {cluster, ":6380", "{ports: [7001-7002, 7002]}", nil, "", "7:34: listeners[0].cluster.ports[1]: 7002 is given twice"},
		"backwards":  {cluster, ":6380", "{ports: 7002-7001}", nil, "", "7:15: listeners[0].cluster.ports: \"7002-7001\" is no port"},
		"zero":       {cluster, ":6380", "{ports: 0-3}", nil, "", "7:15: listeners[0].cluster.ports: \"0-3\" is no port"},
		"many":       {cluster, ":6380", "{ports: 1-65535}", nil, "", "7:15: listeners[0].cluster.ports: has more than 1000 ports"},
		"own port":   {cluster, ":7001", "{ports: 7001-7003}", nil, "", "7:15: listeners[0].cluster.ports: 7001 is the listener's own port"},
		"with port":  {cluster, ":6380", "{ports: 7001, announce: '[::1]:1'}", nil, "", "7:28: listeners[0].cluster.announce: \"[::1]:1\" is no host name"},
		"a socket":   {cluster, "/run/s", "{ports: 7001}", nil, "", "7:5: listeners[0].cluster: needs listen to be host:port"},
		"TLS":        {cluster, ":6380", "{ports: 7001}\n    upstream_tls: {mode: require}", nil, "", "6:5: listeners[0].control: and upstream_tls must both be with TLS"},
		"nodes":      {cluster, ":6380", "{ports: 7001}\n    nodes: [a:1]", nil, "", "8:5: listeners[0].nodes: is not for a cluster"},
		"no cluster": {"redis+sentinel://n?master_name=m", ":6380", "{ports: 7001}", nil, "", "7:5: listeners[0].cluster: is for an upstream that is a cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := Parse("f.yaml", []byte(file(c.upstream, c.listen, c.cluster)), env(nil))
			if c.want == "" {
				if err != nil || !slices.Equal(cfg.Listeners[0].Cluster.Ports, c.ports) || cfg.Listeners[0].Cluster.Announce != c.announce {
					t.Errorf("got %+v, %v", cfg, err)
				}
				return
			}
			if err == nil || !strings.Contains("\n"+strings.ReplaceAll(err.Error(), "f.yaml:", ""), "\n"+c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
