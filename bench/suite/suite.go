// Package suite is what the commands of the benchmark run: which scenarios, on which
// targets, into one report.
//
// It promises that a scenario that failed is in the report, and that a run with one ends
// with an error. It does not decide whether a number is good: goals and comparisons are
// package bench's.
package suite

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/bench/load"
	"github.com/fenceproxy/fenceproxy/bench/rig"
)

// Options say what is run.
type Options struct {
	// Name is the report's; runs of one name are compared with each other.
	Name string
	// Wires are load.Postgres and load.Redis.
	Wires []string
	// Only are patterns of scenarios' names, as package path has them; none means all.
	Only []string
	load.Settings
}

// A Size says how many scenarios there are.
type Size int

// Sizes.
const (
	// Full is every scenario.
	Full Size = iota
	// Quick is the closed loops whose ratios a check compares, a client count each.
	Quick
)

// Defaults of runs.
const (
	DefaultRounds = 7
	DefaultSlice  = 2 * time.Second
	// IdlePostgres and IdleRedis are how many sessions idle: a Postgres server has a process
	// for each.
	IdlePostgres = 200
	IdleRedis    = 2000
)

// ErrFailed means that a scenario failed; the report says why.
var ErrFailed = errors.New("a scenario failed")

// NewReport begins a report.
func NewReport(name string) *bench.Report {
	return &bench.Report{Schema: bench.Schema, Name: name, Started: time.Now().Truncate(time.Second), Machine: bench.ThisMachine(), Versions: map[string]string{}}
}

// Specs are the scenarios of a wire.
func Specs(wire string, size Size) ([]*load.Spec, error) {
	var all []*load.Spec
	var failed error
	closed := func(name string, clients int) {
		sp, err := load.Closed(wire, name, clients)
		all, failed = append(all, sp), errors.Join(failed, err)
	}
	open := func(name string, clients int) {
		sp, err := load.Open(wire, name, clients, 0)
		all, failed = append(all, sp), errors.Join(failed, err)
	}
	if size == Full {
		// First, while the processes have not grown yet.
		n := IdlePostgres
		if wire == load.Redis {
			n = IdleRedis
		}
		all = append(all, load.Idle(wire, n))
	}
	if wire == load.Postgres {
		clients := []int{1, 8, 32}
		if size == Quick {
			clients = []int{8}
		}
		for _, script := range []string{"select", "simple-update"} {
			for _, n := range clients {
				all = append(all, load.Pgbench(script, "prepared", n))
			}
		}
		if size == Full {
			all = append(all, load.Pgbench("select", "simple", 8), load.Pgbench("simple-update", "simple", 8))
		}
		closed("copy-in", 1)
		closed("copy-out", 1)
		closed("large", 1)
	} else {
		pipelines, clients := []int{1, 16}, []int{1, 16, 64}
		if size == Quick {
			clients = []int{16}
		}
		for _, test := range []string{"set", "get"} {
			for _, p := range pipelines {
				for _, n := range clients {
					all = append(all, load.RedisBenchmark(test, p, n))
				}
			}
		}
		closed("large", 1)
	}
	closed("mixed", 8)
	closed("pipeline", 8)
	if size == Quick {
		return all, failed
	}
	for _, name := range []string{"reads", "writes", "mixed"} {
		open(name, 1)
		open(name, 16)
	}
	open("pipeline", 8)
	open("blocking", 4)
	closed("connect", 4)
	return all, failed
}

// selected are those whose names match.
func selected(all []*load.Spec, only []string) ([]*load.Spec, error) {
	if len(only) == 0 {
		return all, nil
	}
	for _, p := range only {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", p, err)
		}
	}
	return slices.DeleteFunc(all, func(sp *load.Spec) bool {
		return !slices.ContainsFunc(only, func(p string) bool { ok, err := path.Match(p, sp.Name); return ok && err == nil })
	}), nil
}

// Run measures scenarios on a rig of each wire, with peers or without.
func Run(ctx context.Context, o Options, size Size, r rig.Options) (*bench.Report, error) {
	report := NewReport(o.Name)
	ran := 0
	for _, wire := range o.Wires {
		specs, err := Specs(wire, size)
		if err != nil {
			return nil, err
		}
		if specs, err = selected(specs, o.Only); err != nil {
			return nil, err
		}
		if len(specs) == 0 {
			continue
		}
		ran += len(specs)
		r.Wire = wire
		if err := runOn(ctx, o, specs, r, report); err != nil {
			return nil, err
		}
	}
	if ran == 0 {
		return nil, errors.New("no scenario matches")
	}
	return finish(report)
}

func runOn(ctx context.Context, o Options, specs []*load.Spec, ro rig.Options, report *bench.Report) error {
	if !slices.ContainsFunc(specs, func(sp *load.Spec) bool { return sp.Tool == "pgbench" }) {
		ro.Scale = -1
	}
	if o.Progress != nil {
		o.Progress("starting servers and proxies for " + ro.Wire)
	}
	r, err := rig.Start(ctx, ro)
	if err != nil {
		return err
	}
	defer r.Stop()
	introduce(report, r, ro.Wire)
	return measure(ctx, specs, r.Targets, o.Settings, report, profileOn(r, o.Slice, o.Progress))
}

// introduce writes down what runs on a rig of a wire.
func introduce(report *bench.Report, r *rig.Rig, wire string) {
	for name, v := range r.Versions {
		report.Versions[wireName(name, wire)] = v
	}
	report.Notes = append(report.Notes, r.Notes()...)
}

// wireName tells the servers of several rigs apart.
func wireName(process, wire string) string {
	if process == bench.Server {
		return wire
	}
	return process
}

// measure runs scenarios on targets. Explain may be nil. What it cannot explain is noted, and
// no failure: the measurement stands.
func measure(ctx context.Context, specs []*load.Spec, targets []*load.Target, s load.Settings, report *bench.Report, explain profiler) error {
	for _, sp := range specs {
		sc, err := load.Run(ctx, sp, targets, s)
		if err != nil {
			return err
		}
		if sc.Failed != "" && s.Progress != nil {
			s.Progress(sp.Name + " FAILED: " + sc.Failed)
		}
		if explain != nil {
			if err := explain(ctx, sp, &sc); ctx.Err() != nil {
				return ctx.Err()
			} else if err != nil {
				report.Notes = append(report.Notes, "There is no profile of "+sc.Name+": "+err.Error())
			}
		}
		report.Scenarios = append(report.Scenarios, sc)
	}
	return nil
}

// finish ends a report. Failed scenarios make an error beside it.
func finish(report *bench.Report) (*bench.Report, error) {
	report.Ended = time.Now().Truncate(time.Second)
	for i := range report.Scenarios {
		if sc := &report.Scenarios[i]; sc.Failed != "" {
			return report, fmt.Errorf("%w: %s: %s", ErrFailed, sc.Name, sc.Failed)
		}
	}
	return report, nil
}

// Yours measures scenarios on servers that somebody else runs. The first target is what
// the others are beside, and where the table or the keys of the scenarios are made and
// removed again. Sp are the scenarios, all of one wire.
func Yours(ctx context.Context, o Options, specs []*load.Spec, targets []*load.Target) (*bench.Report, error) {
	report := NewReport(o.Name)
	specs, err := selected(specs, o.Only)
	if err != nil {
		return nil, err
	}
	if len(specs) == 0 {
		return nil, errors.New("no scenario matches")
	}
	prepare, remove := load.PreparePostgres, load.RemovePostgres
	if specs[0].Wire == load.Redis {
		prepare, remove = load.PrepareRedis, load.RemoveRedis
	}
	if err := prepare(ctx, targets[0]); err != nil {
		return nil, err
	}
	err = measure(ctx, specs, targets, o.Settings, report, nil)
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := errors.Join(err, remove(after, targets[0])); err != nil {
		return nil, err
	}
	return finish(report)
}
