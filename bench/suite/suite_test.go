package suite

import (
	"context"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/bench/load"
	"github.com/fenceproxy/fenceproxy/bench/rig"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func specsOf(t *testing.T, size Size) []*load.Spec {
	t.Helper()
	var all []*load.Spec
	for _, wire := range []string{load.Postgres, load.Redis} {
		specs, err := Specs(wire, size)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, specs...)
	}
	return all
}

// Every goal is about some scenario of a full run, and names differ.
func TestGoalsHaveScenarios(t *testing.T) {
	all := specsOf(t, Full)
	names := map[string]bool{}
	for _, sp := range all {
		if names[sp.Name] {
			t.Errorf("two scenarios are %s", sp.Name)
		}
		names[sp.Name] = true
	}
	for _, g := range bench.Goals() {
		if !slices.ContainsFunc(all, func(sp *load.Spec) bool { ok, err := path.Match(g.Where, sp.Name); return ok && err == nil }) {
			t.Errorf("%q is about no scenario", g.Where)
		}
	}
	for _, sp := range specsOf(t, Quick) {
		if !names[sp.Name] || sp.Open {
			t.Errorf("%s is compared, and a full run has not got it", sp.Name)
		}
	}
}

func TestSelected(t *testing.T) {
	all := specsOf(t, Full)
	n := len(all)
	got, err := selected(slices.Clone(all), []string{"redis/*/open/*", "postgres/idle/*"})
	if err != nil || len(got) == 0 || len(got) == n {
		t.Errorf("%d of %d, %v", len(got), n, err)
	}
	if _, err := selected(all, []string{"["}); err == nil {
		t.Error("a pattern that is none")
	}
}

// Everything of the harness but the time: each kind of scenario on every target, on real
// servers, peers and proxies.
func TestSmoke(t *testing.T) {
	for _, wire := range []string{load.Postgres, load.Redis} {
		t.Run(wire, func(t *testing.T) {
			t.Parallel()
			smoke(t, wire)
		})
	}
}

func smoke(t *testing.T, wire string) {
	ctx := testenv.Context(t)
	r, err := rig.Start(ctx, rig.Options{Self: testenv.Program(t), Wire: wire, Peers: true, Connections: 40, Scale: 1, Templates: testenv.Templates()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	settings := load.Settings{Rounds: 1, Slice: 20 * time.Millisecond, Progress: func(line string) { t.Log(line) }}
	report := NewReport("smoke")
	if err := measure(ctx, smallSpecs(t, wire), r.Targets, settings, report, nil); err != nil {
		t.Fatal(err)
	}
	tool := load.RedisBenchmark("set", 16, 2)
	if wire == load.Postgres {
		tool = load.Pgbench("simple-update", "prepared", 2)
	}
	two := []*load.Target{r.Target(bench.Direct), r.Target(bench.Fenced)} // pgbench takes three seconds each
	profiled := func(ctx context.Context, sp *load.Spec, sc *bench.Scenario) (err error) {
		sc.Profile, err = load.Profile(ctx, sp, r.Target(bench.Fenced), time.Second, func(ctx context.Context) ([]byte, error) { return r.Profile(ctx, 2) })
		return err
	}
	if err := measure(ctx, []*load.Spec{tool}, two, settings, report, profiled); err != nil {
		t.Fatal(err)
	}
	if p := report.Scenarios[len(report.Scenarios)-1].Profile; p == nil || p.Samples == 0 || p.PerOperation.Voluntary <= 0 {
		t.Errorf("profile %+v, notes %q", p, report.Notes)
	}
	if _, err := finish(report); err != nil {
		t.Error(err)
	}
	for i := range report.Scenarios {
		sc := &report.Scenarios[i]
		if len(sc.Slices) != len(sc.Targets) || len(sc.Targets)+len(sc.LeftOut) < 5 && sc.Tool == "fenceproxy" {
			t.Errorf("%s: %d slices of %v, without %v", sc.Name, len(sc.Slices), sc.Targets, sc.LeftOut)
		}
		for _, s := range sc.Slices {
			checkSlice(t, sc, &s)
		}
	}
	dir := filepath.Join(t.TempDir(), "report")
	if err := report.Save(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !strings.Contains(string(text), ": pipelines of 1") || !strings.Contains(string(text), "| fenceproxy-reader |") {
		t.Errorf("%v\n%s", err, text)
	}
}

// smallSpecs are each kind of load once.
func smallSpecs(t *testing.T, wire string) []*load.Spec {
	t.Helper()
	var specs []*load.Spec
	for _, name := range load.Kinds(wire) {
		sp, err := load.Idle(wire, 10), error(nil)
		switch name {
		case "idle":
		case "reads", "blocking":
			sp, err = load.Open(wire, name, 2, 200)
		default:
			sp, err = load.Closed(wire, name, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, sp)
	}
	return specs
}

func checkSlice(t *testing.T, sc *bench.Scenario, s *bench.Slice) {
	t.Helper()
	if s.Operations+float64(s.Unsent) <= 0 || s.Seconds <= 0 { // a busy machine may be late for all of so short an open loop
		t.Errorf("%s, %s: nothing was done", sc.Name, s.Target)
	}
	if sc.Unit == bench.Sessions {
		// So few sessions may take less than what the proxy gives back meanwhile.
		if m, ok := s.Memory[bench.Proxy]; ok != (s.Target != bench.Direct) || math.IsNaN(m) {
			t.Errorf("%s, %s: memory %v", sc.Name, s.Target, s.Memory)
		}
		return
	}
	if _, proxied := s.CPU[bench.Proxy]; proxied == (s.Target == bench.Direct) {
		t.Errorf("%s, %s: processor time %v", sc.Name, s.Target, s.CPU)
	}
}
