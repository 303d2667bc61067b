package electiontest

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// BenchValidate measures Validate of a live token beside other ways to ask the same
// server, in one run and by turns, in random order, so that whatever else the machine
// does falls on all alike. It reports the median and the 99th percentile of each, and
// the ratio of Validate's to that of the way named raw.
func BenchValidate(b *testing.B, h election.Backend, id string, raw string, ways map[string]func(context.Context) error) {
	b.Helper()
	ctx := b.Context()
	g, err := h.Acquire(ctx, id, election.AcquireOptions{TTL: election.MaxTTL})
	if err != nil || g.Status != election.Acquired {
		b.Fatalf("Acquire: %+v, %v", g, err)
	}
	const validate = "validate"
	ways[validate] = func(ctx context.Context) error {
		v, err := h.Validate(ctx, id, g.Token)
		if err == nil && v.Standing != election.StandingCurrent {
			b.Errorf("Validate: %+v", v)
		}
		return err
	}
	names := make([]string, 0, len(ways))
	for name := range ways {
		names = append(names, name)
	}
	took := map[string][]time.Duration{}
	round := func() {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			asked := time.Now()
			if err := ways[name](ctx); err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			took[name] = append(took[name], time.Since(asked))
		}
	}
	for range 100 { // connections, caches
		round()
	}
	clear(took)
	for b.Loop() {
		round()
	}
	at := func(name string, percent int) float64 {
		d := took[name]
		slices.Sort(d)
		return float64(d[(len(d)-1)*percent/100].Nanoseconds()) / 1000
	}
	for _, name := range names {
		b.ReportMetric(at(name, 50), name+"-p50-µs")
		b.ReportMetric(at(name, 99), name+"-p99-µs")
	}
	b.ReportMetric(at(validate, 50)/at(raw, 50), "p50-ratio")
	b.ReportMetric(at(validate, 99)/at(raw, 99), "p99-ratio")
	b.ReportMetric(0, "ns/op") // of a whole round: says nothing
}
