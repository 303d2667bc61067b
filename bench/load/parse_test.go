package load

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
)

func TestParsePgbench(t *testing.T) {
	const out = `pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: select only>
scaling factor: 1
query mode: prepared
number of clients: 8
number of threads: 2
maximum number of tries: 1
duration: 2 s
number of transactions actually processed: 29036
number of failed transactions: 0 (0.000%)
latency average = 0.549 ms
initial connection time = 9.520 ms
tps = 14518.000000 (without initial connection time)
`
	if n, err := checkPgbench(out); err != nil || n != 29036 {
		t.Error(n, err)
	}
	for name, bad := range map[string]string{
		"empty":  "",
		"failed": "number of transactions actually processed: 10\nnumber of failed transactions: 1 (10%)\ntps = 5.0 (without initial connection time)\n",
		"none":   "number of transactions actually processed: 0\ntps = 0.0 (without initial connection time)\n",
	} {
		if _, err := checkPgbench(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The first second does not count, neither its transactions nor its processor time.
func TestPgbenchWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pgbenchWindow{seconds: 2}
		for _, line := range []string{
			"pgbench (15.18 (Debian 15.18-0+deb12u1))",
			"progress: 1.0 s, 100.0 tps, lat 0.321 ms stddev 0.137, 0 failed",
			"progress: 2.0 s, 300.0 tps, lat 0.321 ms stddev 0.137, 0 failed",
			"progress: 3.0 s, 350.5 tps, lat 0.321 ms stddev 0.137", // before 15
			"progress: 4.0 s, 90.0 tps, lat 0.321 ms stddev 0.137, 0 failed",
		} {
			if o, err := w.outcome(); w.lines < 2 && err == nil {
				t.Errorf("after %d lines: %+v", w.lines, o)
			}
			time.Sleep(time.Second)
			w.line(line, os.Getpid())
		}
		o, err := w.outcome()
		if err != nil || o.operations != 650.5 || o.seconds != 2 || o.cpu == nil {
			t.Errorf("%+v, %v", o, err)
		}
		if _, there := o.cpu[pgbenchProcess]; there || len(o.cpu) != 1 {
			t.Errorf("processor time %v, want the load's alone", o.cpu)
		}
	})
}

func TestParseRedisBenchmark(t *testing.T) {
	const out = "WARNING: Could not fetch server CONFIG\n" +
		`"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n" +
		`"SET","50000.00","0.291","0.096","0.287","0.423","0.511","1.007"` + "\n"
	o, err := parseRedisBenchmark(out, 100000)
	if err != nil || o.operations != 100000 || o.seconds != 2 || o.latency.P50 != 287 || o.latency.P99 != 511 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{"", "Error: Connection refused", `"test","rps"` + "\n", `"test","rps"` + "\n" + `"SET","0.00"` + "\n", `"test","rps"` + "\n" + `"SET"` + "\n"} {
		if o, err := parseRedisBenchmark(bad, 10); err == nil {
			t.Errorf("%q: %+v", bad, o)
		}
	}
}

func TestParseStat(t *testing.T) {
	s, err := parseStat("4242 (a ) b) S 17 4242 4242 0 -1 4194560 100 0 0 0 11 22 33 44 20 0 1 0 99 1 2")
	if err != nil || s.parent != 17 || s.ticks != 110 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "4242 (a) S 17", "4242 (a) S x 4242 4242 0 -1 4194560 100 0 0 0 11 22 33 44 20"} {
		if s, err := parseStat(bad); err == nil {
			t.Errorf("%q: %+v", bad, s)
		}
	}
}

func TestTree(t *testing.T) {
	tr := tree{map[int]procStat{1: {parent: 0}, 5: {parent: 1}, 6: {parent: 5}, 7: {parent: 6}, 8: {parent: 1}}}
	if got := tr.below(5); len(got) != 3 || got[0] != 5 {
		t.Errorf("below 5: %v", got)
	}
	if got := tr.below(99); got != nil {
		t.Errorf("below nobody: %v", got)
	}
}

func TestParseRollup(t *testing.T) {
	if got, err := parseRollup("55683848f000-7fffc034d000 ---p 00000000 00:00 0 [rollup]\nRss: 1776 kB\nPss:                 199 kB\nPss_Dirty: 112 kB\n"); err != nil || got != 199*1024 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseRollup("Rss: 1776 kB\n"); err == nil {
		t.Error("there was a Pss")
	}
}

func TestOfThisProcess(t *testing.T) {
	own := map[string]int{bench.Proxy: os.Getpid()}
	cpu, err := cpuOf(own)
	if err != nil || cpu[bench.Load] <= 0 || cpu[bench.Proxy] < 0 {
		t.Errorf("%v, %v", cpu, err)
	}
	m, err := memoryOf(own)
	if err != nil || m[bench.Proxy] < 1<<20 {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := cpuOf(map[string]int{bench.Proxy: 1 << 30}); err == nil {
		t.Error("a process that is not there used processor time")
	}
	if d := less(map[string]float64{"a": 3}, map[string]float64{"a": 1, "b": 7}); len(d) != 1 || d["a"] != 2 {
		t.Errorf("%v", d)
	}
}
