package suite

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/bench/load"
	"github.com/fenceproxy/fenceproxy/bench/rig"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A session at rest takes at most 20 KB of the proxy, without TLS. Most of that is stacks, which
// grow with what is done on them and shrink only where a goroutine at rest is not deep: less than
// a quarter of 8 KB, of which the runtime keeps 800 bytes.
func TestMemoryOfASessionAtRest(t *testing.T) {
	const most = 20 << 10 // bytes
	for wire, n := range map[string]int{load.Postgres: 150, load.Redis: 600} {
		t.Run(wire, func(t *testing.T) {
			r, err := rig.Start(testenv.Context(t), rig.Options{Self: testenv.Program(t), Wire: wire, Connections: n + 50, Scale: -1, Templates: testenv.Templates()})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Stop()
			sc, err := load.Run(testenv.Context(t), load.Idle(wire, n), []*load.Target{r.Target(bench.Fenced)}, load.Settings{Rounds: 1, Slice: time.Second})
			if err != nil || sc.Failed != "" {
				t.Fatal(err, sc.Failed)
			}
			if m := bench.Summarize(sc.Values(bench.Memory(bench.Proxy), bench.Fenced)).Median; !(m <= most) {
				t.Errorf("%.0f bytes, at most %d", m, most)
			} else {
				t.Logf("%.0f bytes", m)
			}
		})
	}
}
