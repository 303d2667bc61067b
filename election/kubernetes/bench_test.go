package kubernetes

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fenceproxy/fenceproxy/election"
)

// Validate beside the client's own read of the same Lease, turn and turn about.
func BenchmarkValidate(b *testing.B) {
	s := sharedSite(b)
	h := s.open(b, s.config)
	g := win(b, h, "e", election.AcquireOptions{})
	ways := map[string]func() error{
		"validate": func() error { _, err := h.Validate(b.Context(), "e", g.Token); return err },
		"get": func() error {
			var l coordinationv1.Lease
			return h.client.Get().Namespace(s.namespace).Resource(resource).Name("e").Do(b.Context()).Into(&l)
		},
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, way := range ways {
			asked := time.Now()
			if err := way(); err != nil {
				b.Fatal(err)
			}
			took[name] = append(took[name], time.Since(asked))
		}
	}
	for name, d := range took {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds()), name+"-p50-µs")
		b.ReportMetric(float64(d[len(d)*99/100].Microseconds()), name+"-p99-µs")
	}
}
