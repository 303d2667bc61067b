package suite

import (
	"slices"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/bench/load"
	"github.com/fenceproxy/fenceproxy/bench/rig"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Each call of some backends, and two failovers.
func TestElectionsSmoke(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	o := Options{Name: "elections", Settings: load.Settings{Rounds: 1, Progress: func(line string) { t.Log(line) }}}
	r, err := Elections(testenv.Context(t), o, ElectionOptions{
		Backends: []string{"memory", "redis"}, Calls: 3,
		Failovers: []string{"redis"}, Wires: []string{load.Redis}, TTLs: []time.Duration{ttl}, Self: testenv.Program(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Calls) != 10 || r.Calls[0].Latency.Count != 3 {
		t.Errorf("%+v", r.Calls)
	}
	if len(r.Failovers) != 2 {
		t.Fatalf("%+v", r.Failovers)
	}
	killed, resigned := r.Failovers[0], r.Failovers[1]
	// Nobody leads before a dead leader's lease has run out, and that was renewed a third of
	// it ago, or on a busy machine a little more.
	if killed.Graceful || len(killed.Took) != 1 || killed.Took[0] < float64(ttl.Milliseconds())/4 {
		t.Errorf("killed: %+v", killed)
	}
	if !resigned.Graceful || len(resigned.Took) != 1 || resigned.Took[0] <= 0 {
		t.Errorf("resigned: %+v", resigned)
	}
}

func TestFenceSmoke(t *testing.T) {
	t.Parallel()
	o := Options{Name: "fence", Wires: []string{load.Redis}, Settings: load.Settings{Rounds: 2, Progress: func(line string) { t.Log(line) }}}
	r, err := Fence(testenv.Context(t), o, FenceOptions{
		Sessions: map[string][]int{load.Redis: {5}}, Refreshed: []int{20, 21}, PerProxy: 20, RefreshFor: 2500 * time.Millisecond,
	}, rig.Options{Self: testenv.Program(t)})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Severs) != 1 || len(r.Severs[0].Took) != 2 || r.Severs[0].Took[0] <= 0 {
		t.Errorf("%+v", r.Severs)
	}
	if len(r.Refreshes) != 2 {
		t.Fatalf("%+v", r.Refreshes)
	}
	// Twenty sessions of one token ask as often as one; at two proxies as often as two.
	if one := r.Refreshes[0]; one.Sessions != 20 || one.Proxies != 1 || !one.Met() {
		t.Errorf("one proxy: %+v", one)
	}
	if two := r.Refreshes[1]; two.Sessions != 21 || two.Proxies != 2 || two.Calls < 2 || !two.Met() {
		t.Errorf("two proxies: %+v", two)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		n, perProxy int
		want        []int
	}{{1, 5000, []int{1}}, {5000, 5000, []int{5000}}, {5001, 5000, []int{2500, 2501}}, {10000, 5000, []int{5000, 5000}}, {10000, 0, []int{10000}}, {0, 10, []int{0}}} {
		if got := spread(c.n, c.perProxy); !slices.Equal(got, c.want) {
			t.Errorf("%d, at most %d: %v, want %v", c.n, c.perProxy, got, c.want)
		}
	}
}

func TestCountEvals(t *testing.T) {
	const info = "# Commandstats\r\ncmdstat_info:calls=7,usec=1\r\ncmdstat_evalsha:calls=12,usec=3\r\ncmdstat_evalsha_ro:calls=5,usec=1\r\ncmdstat_eval:calls=1\r\ncmdstat_pttl:calls=99\r\n"
	if n := countEvals(info); n != 18 {
		t.Errorf("%v", n)
	}
	if n := countEvals(""); n != 0 {
		t.Errorf("%v", n)
	}
}
