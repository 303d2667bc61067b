package bench

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// stacks makes a CPU profile of stacks, what ran first in each, and hundredths of seconds.
func stacks(t *testing.T, all map[string]int64) []byte {
	t.Helper()
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e7,
	}
	for stack, n := range all {
		s := &profile.Sample{Value: []int64{n, n * 1e7}}
		for name := range strings.FieldsSeq(stack) {
			f := &profile.Function{ID: uint64(len(p.Function)) + 1, Name: name}
			l := &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
			p.Function, p.Location, s.Location = append(p.Function, f), append(p.Location, l), append(s.Location, l)
		}
		p.Sample = append(p.Sample, s)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func testProfile(t *testing.T) *Profile {
	t.Helper()
	const own = module + "/protocols/resp.(*session).serve"
	p, err := ParseProfile(stacks(t, map[string]int64{
		"internal/runtime/syscall/linux.Syscall6 syscall.Syscall syscall.write " + own:               50,
		"syscall.Syscall syscall.read " + own:                                                        11,
		"internal/runtime/syscall/linux.Syscall6 runtime.netpoll runtime.findRunnable runtime.mcall": 12,
		"runtime.futex runtime.futexwakeup runtime.systemstack " + own:                               10,
		own + " main.main":                        8,
		"main.run runtime.main":                   1,
		"runtime.memmove " + own:                  5,
		"github.com/fenceproxy/fenceproxyother.f": 1,
		"syscalls.none":                           1,
		"a.a":                                     1,
	}))
	if err != nil {
		t.Fatal(err)
	}
	p.PerOperation = KernelCounts{Voluntary: 1.2, Involuntary: 0.1}
	return p
}

func TestParseProfile(t *testing.T) {
	p := testProfile(t)
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("system calls", p.Syscalls, 0.61)
	near("scheduler", p.Scheduler, 0.22)
	near("own", p.Own, 0.09)
	near("seconds", p.Seconds, 1)
	// The call below the scheduler is the same function's own time.
	if p.Samples != 100 || len(p.Top) != 9 || p.Top[0].Name != "internal/runtime/syscall/linux.Syscall6" {
		t.Errorf("%+v", p)
	}
	near("the first", p.Top[0].Share, 0.62)
	many := map[string]int64{}
	for c := 'a'; c <= 'z'; c++ {
		many[string(c)+".f"] = int64(c)
	}
	if p, err := ParseProfile(stacks(t, many)); err != nil || len(p.Top) != topFunctions || p.Top[0].Name != "z.f" {
		t.Errorf("%+v, %v", p, err)
	}
	for name, bad := range map[string][]byte{"empty": nil, "text": []byte("no profile"), "no samples": stacks(t, nil)} {
		if p, err := ParseProfile(bad); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestWhy(t *testing.T) {
	r := testReport(t)
	sc := r.Scenario("redis/reads/open/1") // whose latency is not as it is meant to be
	if !sc.Missed() || r.Scenario("redis/idle/1000").Missed() {
		t.Error("what is not met")
	}
	sc.Profile = testProfile(t)
	text := r.Markdown(nil)
	for _, want := range []string{
		"| [**not met**](#why-redis-reads-open-1) |",
		"<a id=\"why-redis-reads-open-1\"></a>\n\n### Why\n\n61% of the proxy's processor time is in system calls (1.3 context switches an operation), " +
			"22% in Go's scheduler, 9% in fenceproxy's own code, and 8% in the rest: Go's runtime and libraries.\n\n" +
			"| per operation | voluntary context switches | involuntary |\n|---|---|---|\n| fenceproxy | 1.2 | 0.1 |\n\n" +
			"| function | its own time |\n|---|---|\n| `internal/runtime/syscall/linux.Syscall6` | 62.0% |\n| `syscall.Syscall` | 11.0% |\n",
		"\n100 samples, 1 s of processor time, in a slice of their own.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for unit, want := range map[string]string{Bytes: "1.3M context switches a MB", "transactions": "1.3 context switches a transaction"} {
		if got := sc.Profile.sentence(unit); !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

// A peer that adds nothing makes no ratio.
func TestAddedBesideNoise(t *testing.T) {
	for _, c := range []struct {
		ours, peers   float64
		measured, met bool
		text          string
	}{
		{20, 10, true, false, ""},
		{-1, 10, true, true, ""},
		{-3, -2, true, true, "fenceproxy adds -3 µs, haproxy -2 µs"},
		{-1, -2, true, true, "fenceproxy adds -1 µs, haproxy -2 µs"},
		{0, 0, true, true, "fenceproxy adds 0 µs, haproxy 0 µs"},
		{4, -0.5, false, false, "fenceproxy adds 4 µs, haproxy -0.5 µs"},
	} {
		sc := Scenario{Name: "redis/reads/open/1", Targets: []string{Direct, HAProxy, Fenced}}
		for i, more := range []float64{0, c.peers, c.ours} {
			sc.Slices = append(sc.Slices, Slice{Target: sc.Targets[i], Latency: &Latency{P50: 100 + more, P99: 100 + more}})
		}
		r := &Report{Scenarios: []Scenario{sc}}
		for _, row := range r.Rows() {
			if row.Scenario != sc.Name {
				continue
			}
			if row.Measured() != c.measured || row.Met() != c.met || row.Value.Text != c.text {
				t.Errorf("%v beside %v: %+v, met %v", c.ours, c.peers, row.Value, row.Met())
			}
		}
		if text := r.Markdown(nil); !strings.Contains(text, c.text) || strings.Contains(text, "NaN") {
			t.Errorf("no %q in\n%s", c.text, text)
		}
	}
}
