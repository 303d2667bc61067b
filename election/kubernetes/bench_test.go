package kubernetes

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fenceproxy/fenceproxy/election/electiontest"
)

// Validate beside the client's own read of the same Lease.
func BenchmarkValidate(b *testing.B) {
	s := sharedSite(b)
	h := s.open(b, s.config)
	electiontest.BenchValidate(b, h, "e", "get", map[string]func(context.Context) error{
		"get": func(ctx context.Context) error {
			var l coordinationv1.Lease
			return h.client.Get().Namespace(s.namespace).Resource(resource).Name("e").Do(ctx).Into(&l)
		},
	})
}
