package bench

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// slicesOf are slices in which a target did so many operations a second in each round.
func slicesOf(target string, cpu float64, rates ...float64) []Slice {
	var all []Slice
	for round, r := range rates {
		all = append(all, Slice{
			Round: round, Target: target, Seconds: 2, Operations: 2 * r,
			CPU:     map[string]float64{Proxy: cpu * 2 * r / 1e6},
			Latency: &Latency{P50: 1e6 / r, P99: 2e6 / r},
		})
	}
	return all
}

func testScenario() Scenario {
	sc := Scenario{Name: "postgres/pgbench-select/prepared/8", Title: "Postgres: pgbench -S -M prepared, 8 clients", Wire: "postgres",
		Unit: "transactions", Tool: "pgbench", Clients: 8, Targets: []string{Direct, PgBouncerSession, Fenced, Reader},
		LeftOut: map[string]string{PgBouncerTx: "it has no prepared statements"}}
	sc.Slices = slices.Concat(slicesOf(Direct, 0, 1000, 2000, 500), slicesOf(PgBouncerSession, 20, 800, 1500, 400),
		slicesOf(Fenced, 22, 900, 1400, 440), slicesOf(Reader, 22, 800, 1400, 400))
	return sc
}

func testReport(t *testing.T) *Report {
	t.Helper()
	l := NewLatencies()
	for i := range 5000 {
		l.Record(time.Duration(100+i) * time.Microsecond)
	}
	text, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	open := Scenario{Name: "redis/reads/open/1", Title: "Redis: GET of 64 bytes, 1 client", Wire: "redis", Unit: "operations",
		Tool: "fenceproxy", Open: true, Rate: 1000, Clients: 1, Targets: []string{Direct, HAProxy, Fenced},
		Histograms: map[string]string{Direct: text, Fenced: text}}
	for round := range 3 {
		for i, target := range open.Targets {
			open.Slices = append(open.Slices, Slice{Round: round, Place: i, Target: target, Seconds: 1, Operations: 1000, Latency: &Latency{Count: 1000, P50: float64(100 + 20*i), P99: float64(200 + 50*i)}})
		}
	}
	idle := Scenario{Name: "redis/idle/1000", Title: "Redis: 1000 idle sessions", Wire: "redis", Unit: Sessions, Tool: "fenceproxy", Clients: 1000,
		Targets: []string{Direct, Fenced}, Slices: []Slice{
			{Target: Direct, Seconds: 1, Operations: 1000, Memory: map[string]float64{Server: 30000}},
			{Target: Fenced, Seconds: 1, Operations: 1000, Memory: map[string]float64{Server: 30000, Proxy: 19 << 10}}}}
	failed := Scenario{Name: "redis/blocking/open/4", Title: "Redis: blocked", Wire: "redis", Targets: []string{Direct}, Failed: "no | answer"}
	start := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	return &Report{
		Schema: Schema, Name: "peers", Started: start, Ended: start.Add(time.Hour), Versions: map[string]string{"pgbouncer": "PgBouncer 1.18.0"},
		Machine:   Machine{CPU: "a processor", Cores: 2, Memory: 24 << 30, Kernel: "6.1", System: "Debian"},
		Notes:     []string{"A note."},
		Scenarios: []Scenario{testScenario(), open, idle, failed},
		Calls:     []Call{{"redis", "validate", Latency{Count: 10, P50: 50, P99: 70, Max: 80}}},
		Failovers: []Failover{{Backend: "redis", Wire: "postgres", TTL: 1000, Took: []float64{1100, 1200}}, {Backend: "redis", Wire: "postgres", TTL: 1000, Graceful: true, Took: []float64{60}}},
		Severs:    []Sever{{"postgres", 10, []float64{11, 12, 30}}, {"postgres", 100, []float64{97}}, {"redis", 10, []float64{3}}},
		Refreshes: []Refresh{{Sessions: 10000, Proxies: 2, Seconds: 10, Calls: 20, Every: 1}, {Sessions: 1, Proxies: 1, Seconds: 10, Every: 1}, {Sessions: 2, Proxies: 1, Seconds: 10, Calls: 12, Every: 1}},
	}
}

// A ratio is of two slices of the same round: the machine may be twice as fast in the next.
func TestRatiosAreByPairs(t *testing.T) {
	sc := testScenario()
	if got, want := sc.Ratios(Throughput, Fenced, PgBouncerSession), []float64{900.0 / 800, 1400.0 / 1500, 440.0 / 400}; !slices.Equal(got, want) {
		t.Errorf("ratios %v, want %v", got, want)
	}
	sc.Slices = slices.DeleteFunc(sc.Slices, func(s Slice) bool { return s.Target == PgBouncerSession && s.Round == 1 })
	if got, want := sc.Ratios(Throughput, Fenced, PgBouncerSession), []float64{900.0 / 800, 440.0 / 400}; !slices.Equal(got, want) {
		t.Errorf("without a pair: %v, want %v", got, want)
	}
	if got := sc.Differences(P50, Fenced, Direct); len(got) != 3 || got[0] <= 0 {
		t.Errorf("differences %v", got)
	}
	if got := sc.Ratios(Memory(Proxy), Fenced, Direct); len(got) != 0 {
		t.Errorf("ratios of what was not measured: %v", got)
	}
	if got := Summarize(sc.Ratios(CPU(Proxy), Fenced, PgBouncerSession)).Median; math.Abs(got-1.1) > 1e-9 {
		t.Errorf("processor time %v", got)
	}
}

func TestGoals(t *testing.T) {
	r := testReport(t)
	met := map[string]bool{}
	unmeasured := 0
	for _, row := range r.Rows() {
		if !row.Measured() {
			unmeasured++
			if row.Met() {
				t.Errorf("met, and not measured: %+v", row)
			}
			continue
		}
		met[row.Goal.Title+" "+row.Goal.Text] = row.Met()
	}
	for what, want := range map[string]bool{
		"Postgres throughput, bound session x pgbouncer-session":                 true,  // 1.1
		"Postgres processor time of the proxy a transaction x pgbouncer-session": true,  // 1.1 and a little
		"Postgres throughput, fenced beside the fence off x fenceproxy-reader":   true,  // 1.1
		"Added latency at one client, p50 x haproxy's":                           false, // 2
		"Memory of an idle session KB":                                           true,  // 19
	} {
		got, ok := met[what]
		if strings.Contains(what, "processor time") {
			continue // at the border, rounded
		}
		if !ok || got != want {
			t.Errorf("%s: met %v (measured %v), want %v", what, got, ok, want)
		}
	}
	if unmeasured == 0 {
		t.Error("all was measured")
	}
	if (Row{Goal: Goal{AtLeast: 1, AtMost: math.NaN()}, Value: Value{Summary: Summary{Median: 0.99, N: 3}}}).Met() {
		t.Error("0.99 is at least 1")
	}
	if (Row{Goal: Goal{AtLeast: math.NaN(), AtMost: 1}, Value: Value{Summary: Summary{Median: 1.01, N: 3}}}).Met() {
		t.Error("1.01 is at most 1")
	}
}

func TestSaveAndLoad(t *testing.T) {
	r := testReport(t)
	dir := filepath.Join(t.TempDir(), "report")
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	back, err := LoadReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again := back.Markdown(back.Plots()); again != r.Markdown(r.Plots()) {
		t.Error("what was read is not what was written")
	}
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Benchmark peers, 2026-03-04 05:06 UTC", "a processor, 2 cores, 24.0 GB", "| pgbouncer | PgBouncer 1.18.0 |", "- A note.",
		"| 1.100 (1.017 to 1.113) | met |", "**not met**", "not measured",
		"Without pgbouncer-transaction: it has no prepared statements.", "**Ended early:** no | answer",
		"| redis | validate | 50 | 70 | 80 | 10 |", "| redis | postgres | was killed | 1000 | 1150 | 1125 to 1175 | 2 | at most 1250 | met |", "| resigned | 1000 | 60 | 60 to 60 | 1 | at most 50 | **not met** |", "| postgres | 10 | 12 |", "| 10000 | 2 | 10 | 20 | 1 s (set: 1 s) | at most 22 | met |",
		"| 1 | 1 | 10 | 0 | - (set: 1 s) | at most 11 | **not met** |", "| 2 | 1 | 10 | 12 | 0.833 s (set: 1 s) | at most 11 | **not met** |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "NaN") {
		t.Errorf("NaN in\n%s", text)
	}
	for _, p := range r.Plots() {
		svg, err := os.ReadFile(filepath.Join(dir, p.File))
		if err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(text), "]("+p.File+")") {
			t.Errorf("%s is not shown", p.File)
		}
		wellFormed(t, p.File, string(svg))
	}
	if err := os.WriteFile(filepath.Join(dir, ReportFile), []byte(`{"schema": 99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadReport(dir); err == nil {
		t.Error("a report of another version was read")
	}
}

func wellFormed(t *testing.T, name, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, svg)
		}
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("%s has places that are none:\n%s", name, svg)
	}
}

func TestPlots(t *testing.T) {
	var names []string
	for _, p := range testReport(t).Plots() {
		names = append(names, p.File)
	}
	if want := []string{"postgres-throughput.svg", "postgres-cpu.svg", "redis-memory.svg", "redis-reads-open-1.svg", "sever.svg", "failover.svg"}; !slices.Equal(names, want) {
		t.Errorf("plots %v, want %v", names, want)
	}
	if got := new(Report).Plots(); len(got) != 0 {
		t.Errorf("plots of nothing: %v", got)
	}
	wellFormed(t, "no curves", lines("<nothing> & more", axis{}, axis{}, nil))
	wellFormed(t, "one point", lines("one", axis{}, axis{log: true}, []curve{{x: []float64{3}, y: []float64{4}}}))
	wellFormed(t, "zeros", bars("zeros", "", 0, []bar{{label: "a"}}))
}

func TestLast(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Last(dir, "peers"); !errors.Is(err, ErrNoReport) {
		t.Errorf("%v", err)
	}
	r := testReport(t)
	for i, name := range []string{"2026-03-04", "2026-03-05", "2026-03-06"} {
		r.Started = r.Started.Add(24 * time.Hour)
		r.Name = "peers"
		if i == 2 {
			r.Name = "own"
		}
		if err := r.Save(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	_, at, err := Last(dir, "peers")
	if err != nil || filepath.Base(filepath.Dir(at)) != "2026-03-05" {
		t.Errorf("%s, %v", at, err)
	}
}

func TestCompare(t *testing.T) {
	old := &Report{Scenarios: []Scenario{testScenario()}}
	same := Compare(old, old, DefaultTolerance)
	// Two targets of ours, of which the bound one is beside three and the other beside two, in
	// two metrics but for direct, which has no proxy.
	if same.Compared != 8 || len(same.Regressions) != 0 {
		t.Errorf("a report beside itself: %+v", same)
	}
	change := func(f func(s *Slice)) *Report {
		sc := testScenario()
		for i := range sc.Slices {
			if sc.Slices[i].Target == Fenced {
				f(&sc.Slices[i])
			}
		}
		return &Report{Scenarios: []Scenario{sc}}
	}
	slower := Compare(old, change(func(s *Slice) { s.Operations *= 0.6; s.CPU[Proxy] *= 0.6 }), DefaultTolerance)
	if len(slower.Regressions) != 3 || !strings.Contains(slower.Regressions[0].String(), "throughput, fenceproxy / direct") {
		t.Errorf("slower: %v", slower.Regressions)
	}
	if faster := Compare(old, change(func(s *Slice) { s.Operations *= 2; s.CPU[Proxy] *= 2 }), DefaultTolerance); len(faster.Regressions) != 0 {
		t.Errorf("faster: %v", faster.Regressions)
	}
	if dearer := Compare(old, change(func(s *Slice) { s.CPU[Proxy] *= 1.5 }), DefaultTolerance); len(dearer.Regressions) != 2 {
		t.Errorf("dearer: %v", dearer.Regressions)
	}
	// A peer that became faster makes none.
	peer := testScenario()
	for i := range peer.Slices {
		if peer.Slices[i].Target == peer.Targets[1] {
			peer.Slices[i].Operations *= 2
			peer.Slices[i].CPU[Proxy] *= 2 // as much an operation
		}
	}
	if c := Compare(old, &Report{Scenarios: []Scenario{peer}}, DefaultTolerance); len(c.Regressions) != 0 {
		t.Errorf("beside %s, which became faster: %v", peer.Targets[1], c.Regressions)
	}
	// One bad round of three is not a regression.
	if noisy := Compare(old, change(func(s *Slice) {
		if s.Round == 1 {
			s.Operations *= 0.3
			s.CPU[Proxy] *= 0.3
		}
	}), DefaultTolerance); len(noisy.Regressions) != 0 {
		t.Errorf("noisy: %v", noisy.Regressions)
	}
	// What a second run does not find is none, and what it finds is said with its numbers.
	if c := slower.Confirm(same); c.Compared != 8 || len(c.Regressions) != 0 {
		t.Errorf("slower in one run of two: %+v", c)
	}
	half := Compare(old, change(func(s *Slice) { s.Operations *= 0.5; s.CPU[Proxy] *= 0.5 }), DefaultTolerance)
	if c := slower.Confirm(half); !slices.Equal(c.Regressions, half.Regressions) || !slices.Equal(c.Scenarios(), []string{testScenario().Name}) {
		t.Errorf("slower in both: %+v", c)
	}
	if c := slower.Confirm(Compare(old, change(func(s *Slice) { s.CPU[Proxy] *= 1.5 }), DefaultTolerance)); len(c.Regressions) != 0 {
		t.Errorf("slower in one run and dearer in the other: %+v", c)
	}
	// The machine being slower as a whole is none either.
	whole := testScenario()
	for i := range whole.Slices {
		whole.Slices[i].Operations /= 3
		whole.Slices[i].CPU[Proxy] /= 3
	}
	if c := Compare(old, &Report{Scenarios: []Scenario{whole}}, DefaultTolerance); len(c.Regressions) != 0 {
		t.Errorf("a slower machine: %v", c.Regressions)
	}
	if c := Compare(old, testReport(t), DefaultTolerance); c.Compared != 8 {
		t.Errorf("open loops and new scenarios were compared: %d", c.Compared)
	}
}

func TestThisMachine(t *testing.T) {
	m := ThisMachine()
	if m.Cores < 1 || m.Go == "" || m.Arch == "" {
		t.Errorf("%+v", m)
	}
	const cpuinfo = "processor\t: 0\nmodel name\t: A: B\nmodel name\t: C\n"
	if got := field(cpuinfo, "model name"); got != "A: B" {
		t.Errorf("model name %q", got)
	}
	if got := field(cpuinfo, "flags"); got != "" {
		t.Errorf("flags %q", got)
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.1234: "0.123", 1.5: "1.5", 99.95: "100", 123.4: "123", 9999: "9999", 12345: "12k", 1234567: "1.23M", -3: "-3"} {
		if got := short(v); got != want {
			t.Errorf("short(%v) = %q, want %q", v, got, want)
		}
	}
	if short(math.NaN()) != "-" {
		t.Error("NaN")
	}
}
