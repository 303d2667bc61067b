package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// cluster makes the wire in front of a Redis or Valkey cluster.
func (p *proxy) cluster(ctx context.Context, c resp.Config, up *tlsconf.Client, newGuard func(fence) *guard.Guard) (wire, error) {
	f, err := openClusterFence(ctx, p.Listener, up, p.log)
	if err != nil {
		return nil, err
	}
	p.ends = append(p.ends, func() { _ = f.Close() })
	c.Guard = newGuard(f)
	k, err := resp.NewCluster(resp.ClusterConfig{
		Config:   c,
		Fence:    f,
		Topology: f.Topology(),
		Ports:    p.Cluster.Ports,
		Listen:   func(ctx context.Context, port int) (net.Listener, error) { return listenNode(ctx, p.Listener, port) },
		Announce: p.Cluster.Announce,
	})
	if err != nil {
		return nil, fmt.Errorf("%v: listener %s: %w", p.Pos, p.Name, err)
	}
	return k, nil
}

func openClusterFence(ctx context.Context, l *config.Listener, up *tlsconf.Client, log *slog.Logger) (*redisfence.ClusterFence, error) {
	o := redisOptions(l, up, log)
	f, err := redisfence.OpenCluster(ctx, l.Control.Reveal(), redisfence.ClusterOptions{Log: o.Log, TLS: o.TLS})
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("%v: listener %s: control: %w", l.Pos, l.Name, err)}
	}
	return f, nil
}

// listenNode opens a port for a node of a cluster, on the listener's own host.
func listenNode(ctx context.Context, l *config.Listener, port int) (net.Listener, error) {
	host, _, err := net.SplitHostPort(l.Listen)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// clusterNodes checks the nodes of a cluster as sessions would find them, and their ports.
func (c *checkCmd) clusterNodes(ctx context.Context, l *config.Listener, f *redisfence.ClusterFence, r *checkReport) {
	asking, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := f.Topology().Refresh(asking); err != nil {
		return // reported with the control connection
	}
	view := f.Topology().View()
	for _, n := range view.Nodes() {
		what := "a replica"
		if n.Primary {
			what = fmt.Sprintf("a primary with %d slots", slots(n))
		}
		one := l.SplitUpstream(n.Addr)
		switch how, err := askUpstream(ctx, one, c.Timeout); {
		case err != nil && n.Failed:
			r.warn("", "%s: node %s, %s that the cluster has given up, does not answer: %v", l.Name, n.Addr, what, err)
		case err != nil:
			r.fail(upstreamFix(one, err), "%s: node %s, %s: %v", l.Name, n.Addr, what, err)
		default:
			r.ok("%s: node %s answers as %s: %s%s", l.Name, n.Addr, l.Protocol, what, how)
		}
	}
	c.sameCluster(asking, l, f.Topology(), r)
	if have, need := len(l.Cluster.Ports), len(view.Nodes()); have < need {
		r.fail(fmt.Sprintf("Add ports to cluster.ports of the listener at %v.", l.Pos), "%s: the cluster has %d nodes, and there are %d ports for them", l.Name, need, have)
	}
	for _, port := range l.Cluster.Ports {
		ln, err := listenNode(ctx, l, port)
		switch {
		case err == nil:
			_ = ln.Close()
		case inUse(err):
			r.warn("Fine if a fenceproxy runs there already; else choose other ports.", "%s: cannot listen on port %d for a node: %v", l.Name, port, errors.Unwrap(err))
		default:
			r.fail(fmt.Sprintf("Correct cluster.ports of the listener at %v.", l.Pos), "%s: cannot listen on port %d for a node: %v", l.Name, port, errors.Unwrap(err))
		}
	}
}

func slots(n rediscluster.Node) (count int) {
	for _, s := range n.Slots {
		count += s.Last - s.First + 1
	}
	return count
}

// sameCluster checks that the servers in upstream are nodes of the cluster that control
// leads to.
func (c *checkCmd) sameCluster(ctx context.Context, l *config.Listener, top *rediscluster.Topology, r *checkReport) {
	o, err := rediscluster.ParseURL(l.Upstream)
	if err != nil {
		return // the configuration was checked
	}
	for _, addr := range o.Seeds {
		id, err := top.Client(addr).Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			r.warn("", "%s: upstream names %s, which does not say which node it is: %v", l.Name, addr, err)
			continue
		}
		if _, ok := top.View().ByID(id); !ok {
			r.fail("They must name nodes of one cluster.", "%s: upstream names %s, which is no node of the cluster that control leads to", l.Name, addr)
		}
	}
}
