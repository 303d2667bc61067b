package examples

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A program that knows nothing of leaders writes on the host whose sidecar leads. That
// sidecar is stopped for too long, and goes on; then the other one ends in order.
func TestSidecars(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s := newStage(t, ctx, "sidecar", "fenceproxy-a.yaml", "fenceproxy-b.yaml")
	hosts := []struct{ name, listen, admin string }{
		{"a", "127.0.0.1:6432", "127.0.0.1:9181"},
		{"b", "127.0.0.1:6433", "127.0.0.1:9182"},
	}
	// Either may be the first.
	testenv.Eventually(t, "one leads", func() bool { return s.leads(t, ctx, hosts[0].admin) || s.leads(t, ctx, hosts[1].admin) })
	one, other := 0, 1
	if s.leads(t, ctx, hosts[1].admin) {
		one, other = 1, 0
	}
	var loops [2]*worker
	for i, h := range hosts {
		_, port, _ := net.SplitHostPort(h.listen)
		_, here, _ := net.SplitHostPort(s.at(h.listen))
		loops[i] = s.start(t, ctx, h.name, "PGPORT="+port+" ./loop.sh "+h.name, append(s.libpq(t), "PGPORT="+here), "./loop.sh", h.name)
	}
	// A refusal names who leads.
	led := func(i int) string { return `"host-` + hosts[i].name + `"` }

	loops[one].await(t, "wrote")
	loops[other].await(t, led(one))
	s.proxies[one].Pause(t)
	loops[other].await(t, "wrote")
	if !s.leads(t, ctx, hosts[other].admin) {
		t.Error("who writes does not lead")
	}
	s.proxies[one].Signal(syscall.SIGCONT)
	loops[one].await(t, led(other))
	if s.leads(t, ctx, hosts[one].admin) {
		t.Error("who is refused leads")
	}
	s.proxies[other].Signal(syscall.SIGTERM)
	loops[one].await(t, "wrote")
	inOrder(t, s.journal(t, ctx), hosts[one].name+hosts[other].name+hosts[one].name)
}

// leads asks a sidecar's admin listener.
func (s *stage) leads(t *testing.T, ctx context.Context, admin string) bool {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.at(admin)+"/leader", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK
}
