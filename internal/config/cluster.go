package config

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// ClusterOptions say where clients find the nodes of a cluster.
type ClusterOptions struct {
	// Ports are the ports at which clients find the nodes, in the order in which they are
	// given to nodes. They are opened on the host of Listen.
	Ports []int
	// Announce is the host that clients are told; empty means the address at which they
	// reached the proxy.
	Announce string
}

// maxClusterPorts is more nodes than a cluster has.
const maxClusterPorts = 1000

// cluster reads where clients find the nodes of a cluster. The control connection was read
// from the field from.
func (r *reader) cluster(o *object, from *field, control string, l *Listener) {
	f := o.take("cluster")
	switch {
	case f == nil && l.Group == Cluster:
		r.mistake(l.Pos, o.key+".cluster", "missing: in front of a cluster, ports for its nodes, for instance {ports: 7001-7016}")
		return
	case f == nil:
		return
	case l.Group != Cluster && l.Upstream != "":
		f.mistake("is for an upstream that is a cluster: redis+cluster://…")
	}
	if l.Group == Cluster {
		if from != nil && l.UpstreamTLS != nil && hasTLS(control) != (l.UpstreamTLS.Mode != tlsconf.Disable) {
			from.mistake("and upstream_tls must both be with TLS (rediss+cluster://), or both without: the nodes tell the addresses of the one or of the other")
		}
		if isSocket(l.Listen) {
			f.mistake("needs listen to be host:port: the ports of the nodes are opened on that host")
		}
	}
	in := f.object()
	if f := in.need("ports", "a port for each node, for instance 7001-7016"); f != nil {
		l.Cluster.Ports = f.ports()
		if _, port, err := net.SplitHostPort(l.Listen); err == nil {
			if n, err := strconv.Atoi(port); err == nil && slices.Contains(l.Cluster.Ports, n) {
				f.mistake("%d is the listener's own port", n)
			}
		}
	}
	if f := in.take("announce"); f != nil {
		if s, ok := f.text(); ok && strings.ContainsAny(s, " \t\r\n,@[]/") {
			f.mistake("%q is no host name or address (without brackets and port)", s)
		} else {
			l.Cluster.Announce = s
		}
	}
	in.close()
}

func hasTLS(url string) bool {
	scheme, _, _ := strings.Cut(strings.ToLower(url), "+")
	return scheme == "rediss" || scheme == "valkeys"
}

// ports reads f as a range of ports, or a list of ranges and ports.
func (f *field) ports() (ports []int) {
	items := []*field{f}
	if f.isList() {
		items = f.list()
	}
	for _, item := range items {
		s, ok := item.text()
		if !ok {
			continue
		}
		first, last, ok := portRange(s)
		if !ok {
			item.mistake("%q is no port, and no range of ports such as 7001-7016", s)
			continue
		}
		if last-first >= maxClusterPorts {
			item.mistake("has more than %d ports", maxClusterPorts)
			continue
		}
		for p := first; p <= last; p++ {
			if slices.Contains(ports, p) {
				item.mistake("%d is given twice", p)
				break
			}
			ports = append(ports, p)
		}
	}
	return ports
}

func portRange(s string) (first, last int, ok bool) {
	from, to, several := strings.Cut(s, "-")
	if !several {
		to = from
	}
	var err1, err2 error
	first, err1 = strconv.Atoi(strings.TrimSpace(from))
	last, err2 = strconv.Atoi(strings.TrimSpace(to))
	return first, last, err1 == nil && err2 == nil && 0 < first && first <= last && last <= 65535
}
