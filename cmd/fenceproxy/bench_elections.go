package main

import (
	"context"
	"time"

	"github.com/fenceproxy/fenceproxy/bench/rig"
	"github.com/fenceproxy/fenceproxy/bench/suite"
)

type benchElectionsCmd struct {
	benchFlags
	wireFlags
	Backend  []string        `default:"memory,redis,valkey,postgres,zookeeper" enum:"memory,redis,valkey,postgres,zookeeper,kubernetes" help:"Backends whose calls are measured: memory, redis, valkey, postgres, zookeeper, kubernetes."`
	Kube     string          `placeholder:"DIR" help:"The Go module of the Kubernetes API server of the tests (internal/testenv/kubeapi), which is built where KUBEBUILDER_ASSETS names no other."`
	Calls    int             `default:"500" help:"How often each call is made."`
	Failover []string        `default:"redis" enum:"redis,valkey,postgres,zookeeper,kubernetes,none" help:"Backends of which failover is measured; or none."`
	TTL      []time.Duration `name:"ttl" default:"1s,15s" help:"Leases of the failovers."`
}

// Help says what there is to see.
func (benchElectionsCmd) Help() string {
	return `Measures each call of the election backends, by turns, and how long it takes from a leader's end (killed, or asked to end) to the next leader's first applied write, with --rounds rounds for each lease.`
}

// Run measures.
func (c *benchElectionsCmd) Run(ctx context.Context, s *streams) error {
	o, err := c.options("elections", s)
	if err != nil {
		return err
	}
	self, err := thisProgram()
	if err != nil {
		return err
	}
	e := suite.ElectionOptions{Backends: c.Backend, Kube: c.Kube, Calls: c.Calls, Wires: c.Wire, TTLs: c.TTL, Self: self}
	for _, b := range c.Failover {
		if b != "none" {
			e.Failovers = append(e.Failovers, b)
		}
	}
	r, err := suite.Elections(ctx, o, e)
	return c.save(s, r, err)
}

type benchFenceCmd struct {
	benchFlags
	wireFlags
	Sessions         []int         `default:"10,100,1000,5000" help:"Bound sessions that a takeover severs."`
	PostgresSessions []int         `default:"10,100,1000" help:"The same of Postgres, whose server has a process for each."`
	Refreshed        []int         `default:"1,100,10000" help:"Sessions of one token while the calls of the election backend are counted."`
	PerProxy         int           `default:"5000" help:"How many of those one proxy has at most, which has two files open for each; more proxies are started."`
	RefreshFor       time.Duration `default:"10s" help:"For how long."`
}

// Run measures.
func (c *benchFenceCmd) Run(ctx context.Context, s *streams) error {
	o, err := c.options("fence", s)
	if err != nil {
		return err
	}
	o.Wires = c.Wire
	self, err := thisProgram()
	if err != nil {
		return err
	}
	rig.MoreFiles(65536)
	r, err := suite.Fence(ctx, o, suite.FenceOptions{
		Sessions:  map[string][]int{"redis": c.Sessions, "postgres": c.PostgresSessions},
		Refreshed: c.Refreshed, PerProxy: c.PerProxy, RefreshFor: c.RefreshFor,
	}, rig.Options{Self: self})
	return c.save(s, r, err)
}

type benchWorkerCmd struct {
	Elections, Owner, Wire string
	URL                    string        `name:"url"`
	TTL                    time.Duration `name:"ttl"`
}

// Run is a worker of the failover benchmark.
func (c *benchWorkerCmd) Run(ctx context.Context, s *streams) error {
	return suite.RunWorker(ctx, suite.WorkerOptions{Elections: c.Elections, Owner: c.Owner, Wire: c.Wire, URL: c.URL, TTL: c.TTL}, s.out)
}
