package respclients

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// In front of the newer servers, too, each library prints what it prints without the
// proxy, and loses leadership as it should.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, v := range []servers.RedisVersion{servers.Redis8, servers.Valkey8} {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			ctx := testenv.Context(t)
			s := newStageOn(t, ctx, v.Name, testenv.RedisVersion(t, v))
			for c, closed := range libraries(t, ctx) {
				t.Run(c.name, func(t *testing.T) { c.briefly(t, ctx, s, closed) })
			}
		})
	}
}
