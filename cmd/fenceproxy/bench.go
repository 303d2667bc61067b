package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/bench/load"
	"github.com/fenceproxy/fenceproxy/bench/rig"
	"github.com/fenceproxy/fenceproxy/bench/suite"
)

type benchCmd struct {
	Run       benchRunCmd       `cmd:"" help:"Measure your own server, direct and through proxies."`
	Own       benchOwnCmd       `cmd:"" help:"Measure fenceproxy beside direct, on servers started for it."`
	Peers     benchPeersCmd     `cmd:"" help:"The same beside PgBouncer, HAProxy and twemproxy."`
	Elections benchElectionsCmd `cmd:"" help:"Measure the calls of election backends, and failover."`
	Fence     benchFenceCmd     `cmd:"" help:"Measure what takeovers and the refresh of permits cost."`
	Check     benchCheckCmd     `cmd:"" help:"Measure a little, and compare its ratios with the last report's."`
	Show      benchShowCmd      `cmd:"" help:"Write the Markdown and the plots of a report again."`
}

// benchFlags are common to all that measures.
type benchFlags struct {
	Rounds int           `default:"7" help:"Rounds; each target has one slice in each."`
	Slice  time.Duration `default:"2s" help:"How long a slice is."`
	Only   []string      `placeholder:"PATTERN" help:"Only scenarios with these names, for instance redis/*/closed/*."`
	Out    string        `placeholder:"DIR" help:"Where the report goes; by default bench-NAME-DATE here."`
	Quiet  bool          `help:"Print only where the report is."`
}

func (f *benchFlags) options(name string, s *streams) (suite.Options, error) {
	if f.Rounds < 1 || f.Slice < 10*time.Millisecond {
		return suite.Options{}, usage("at least one round, and slices of 10ms")
	}
	o := suite.Options{Name: name, Only: f.Only, Settings: load.Settings{Rounds: f.Rounds, Slice: f.Slice}}
	if !f.Quiet {
		o.Progress = func(line string) { fmt.Fprintln(s.err, line) }
	}
	return o, nil
}

// save writes the report of a run, if there is one, and says where; the run's own error
// comes first.
func (f *benchFlags) save(s *streams, r *bench.Report, err error) error {
	if r == nil {
		return err
	}
	dir := f.Out
	if dir == "" {
		dir = fmt.Sprintf("bench-%s-%s", r.Name, r.Started.Format("2006-01-02-1504"))
	}
	r.Versions["fenceproxy"] = versionText()
	if saved := r.Save(dir); saved != nil {
		return errors.Join(err, saved)
	}
	fmt.Fprintln(s.out, filepath.Join(dir, "README.md"))
	return err
}

// wireFlags choose the wires of runs on servers of their own.
type wireFlags struct {
	Wire []string `enum:"postgres,redis" default:"postgres,redis" help:"postgres, redis, or both."`
}

type benchOwnCmd struct {
	benchFlags
	wireFlags
}

// Run measures.
func (c *benchOwnCmd) Run(ctx context.Context, s *streams) error {
	return runOwn(ctx, s, "own", &c.benchFlags, c.Wire, suite.Full, false)
}

type benchPeersCmd struct {
	benchFlags
	wireFlags
	Brief bool `help:"Only the scenarios that check compares."`
}

// Run measures.
func (c *benchPeersCmd) Run(ctx context.Context, s *streams) error {
	size := suite.Full
	if c.Brief {
		size = suite.Quick
	}
	return runOwn(ctx, s, "peers", &c.benchFlags, c.Wire, size, true)
}

func runOwn(ctx context.Context, s *streams, name string, f *benchFlags, wires []string, size suite.Size, peers bool) error {
	o, err := f.options(name, s)
	if err != nil {
		return err
	}
	o.Wires = wires
	self, err := thisProgram()
	if err != nil {
		return err
	}
	r, err := suite.Run(ctx, o, size, rig.Options{Self: self, Peers: peers})
	return f.save(s, r, err)
}

type benchCheckCmd struct {
	benchFlags
	wireFlags
	Reports   string  `default:"bench/reports" help:"Where reports are."`
	Tolerance float64 `default:"0.1" help:"How much worse a ratio may be."`
}

// thisProgram is what measurements start as the proxy.
func thisProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	return self, nil
}

// Run measures and compares.
func (c *benchCheckCmd) Run(ctx context.Context, s *streams) error {
	last, at, err := bench.Last(c.Reports, "peers")
	if err != nil {
		return err
	}
	o, err := c.options("peers", s)
	if err != nil {
		return err
	}
	o.Wires = c.Wire
	self, err := thisProgram()
	if err != nil {
		return err
	}
	run := func(out string) (bench.Comparison, error) {
		r, err := suite.Run(ctx, o, suite.Quick, rig.Options{Self: self, Peers: true})
		if err == nil && out != "" {
			err = (&benchFlags{Out: out}).save(s, r, nil)
		}
		if err != nil {
			return bench.Comparison{}, err
		}
		return bench.Compare(last, r, c.Tolerance), nil
	}
	d, err := run(c.Out)
	if err != nil {
		return err
	}
	if len(d.Regressions) > 0 {
		fmt.Fprintf(s.err, "%d of %d ratios look worse; measuring their scenarios again\n", len(d.Regressions), d.Compared)
		out := c.Out
		if out != "" {
			out = filepath.Join(out, "again")
		}
		o.Only = d.Scenarios()
		again, err := run(out)
		if err != nil {
			return err
		}
		d = d.Confirm(again)
	}
	for _, g := range d.Regressions {
		fmt.Fprintln(s.out, g)
	}
	fmt.Fprintf(s.out, "%d ratios compared with those of %s, %d worse by more than %g%%\n", d.Compared, at, len(d.Regressions), c.Tolerance*100)
	switch {
	case d.Compared == 0:
		return errors.New("the two reports have nothing in common")
	case len(d.Regressions) > 0:
		return &exitError{exitNo, nil}
	}
	return nil
}

type benchShowCmd struct {
	Report string `arg:"" help:"The report: its directory, or the JSON."`
	Out    string `placeholder:"DIR" help:"Where it goes; by default beside the JSON."`
}

// Run writes.
func (c *benchShowCmd) Run(s *streams) error {
	r, err := bench.LoadReport(c.Report)
	if err != nil {
		return err
	}
	dir := c.Out
	if dir == "" {
		if dir = c.Report; strings.HasSuffix(dir, ".json") {
			dir = filepath.Dir(dir)
		}
	}
	if err := r.Save(dir); err != nil {
		return err
	}
	fmt.Fprintln(s.out, filepath.Join(dir, "README.md"))
	return nil
}

type benchRunCmd struct {
	benchFlags
	tokenFlags
	Direct     string            `required:"" env:"FENCEPROXY_BENCH_DIRECT" placeholder:"URL" help:"The server itself, as a user who may make a table there (Postgres) or write keys (Redis): postgres://… or redis://…"`
	Via        map[string]string `mapsep:"none" placeholder:"NAME=URL" help:"A proxy in front of it. May be repeated."`
	Fenced     []string          `placeholder:"NAME" help:"These proxies are fenceproxies, and sessions present the token there."`
	Election   string            `help:"The election of the token."`
	PID        map[string]int    `name:"pid" placeholder:"NAME=PID" help:"The process of a proxy, or of the server (direct), whose processor time and memory are measured. On this machine only."`
	Scenario   []string          `default:"reads,writes,mixed,pipeline,connect" help:"Loads: reads, writes, mixed, pipeline, large, blocking, connect, idle; of Postgres also simple, copy-in and copy-out."`
	Clients    int               `default:"8" help:"Connections of each load."`
	Rate       float64           `help:"Operations a second of the open loops; by default half of what the slowest does in the closed loop."`
	ClosedOnly bool              `help:"Only closed loops: throughput."`
}

// Help has examples.
func (benchRunCmd) Help() string {
	return `Makes the table fenceproxy_bench (Postgres) or keys that begin with fenceproxy-bench: (Redis) on the server, measures each load direct and through each proxy by turns, and removes them again. Use a server that nobody needs meanwhile. Everybody on the machine can read a command line: give a password of Postgres as PGPASSWORD or in ~/.pgpass.

Examples:

  fenceproxy bench run --direct postgres://app@db:5432/shop --via pool=postgres://app@db:6432/shop
  FENCE_TOKEN=… fenceproxy bench run --direct redis://db:6379 --via fence=redis://proxy:6380 --fenced fence --election jobs --scenario reads,writes`
}

// Run measures.
func (c *benchRunCmd) Run(ctx context.Context, s *streams) error {
	o, err := c.options("yours", s)
	if err != nil {
		return err
	}
	targets, wire, err := c.targets(s)
	if err != nil {
		return err
	}
	specs, err := c.specs(wire)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	r, err := suite.Yours(ctx, o, specs, targets)
	return c.save(s, r, err)
}

func (c *benchRunCmd) specs(wire string) ([]*load.Spec, error) {
	var specs []*load.Spec
	for _, name := range c.Scenario {
		if name == "idle" {
			specs = append([]*load.Spec{load.Idle(wire, c.Clients)}, specs...) // before the others make processes grow
			continue
		}
		sp, err := load.Closed(wire, name, c.Clients)
		if err != nil {
			return nil, err
		}
		specs = append(specs, sp)
		if c.ClosedOnly || sp.Unit != "operations" {
			continue
		}
		if sp, err = load.Open(wire, name, c.Clients, c.Rate); err != nil {
			return nil, err
		}
		specs = append(specs, sp)
	}
	return specs, nil
}

// targets are direct and the proxies, all of one wire.
func (c *benchRunCmd) targets(s *streams) ([]*load.Target, string, error) {
	wire, err := wireOf(c.Direct)
	if err != nil {
		return nil, "", err
	}
	targets := []*load.Target{{Name: bench.Direct, URL: c.Direct}}
	for _, name := range slices.Sorted(maps.Keys(c.Via)) {
		if w, err := wireOf(c.Via[name]); err != nil || w != wire || name == bench.Direct {
			return nil, "", usage("--via %s: needs another name, or a URL like that of --direct", name)
		}
		targets = append(targets, &load.Target{Name: name, URL: c.Via[name]})
	}
	find := func(name string) *load.Target {
		for _, t := range targets {
			if t.Name == name {
				return t
			}
		}
		return nil
	}
	if len(c.Fenced) > 0 {
		token, err := c.token(s)
		if err != nil {
			return nil, "", err
		}
		for _, name := range c.Fenced {
			t := find(name)
			if t == nil || name == bench.Direct {
				return nil, "", usage("--fenced %s: no --via has that name", name)
			}
			t.Token, t.Election = token, c.Election
		}
	}
	for name, pid := range c.PID {
		t := find(name)
		if t == nil {
			return nil, "", usage("--pid %s=%s: there is no such target", name, strconv.Itoa(pid))
		}
		process := bench.Proxy
		if name == bench.Direct {
			process = bench.Server
		}
		t.Processes = map[string]int{process: pid}
	}
	return targets, wire, nil
}

func wireOf(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err == nil {
		switch u.Scheme {
		case "postgres", "postgresql":
			return load.Postgres, nil
		case "redis", "rediss":
			return load.Redis, nil
		}
	}
	return "", usage("a server's URL begins with postgres://, redis:// or rediss://") // it may hold a password
}
