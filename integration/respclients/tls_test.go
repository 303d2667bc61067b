package respclients

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// With TLS on both legs, each with a certificate of its own, each client prints what it
// prints without the proxy, and loses leadership as it should.
func TestTLS(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	ca := testenv.NewAuthority(t)
	cert := ca.Issue("server", []string{"127.0.0.1"}, nil)
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	server := testenv.Redis(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", cert.Cert, "--tls-key-file", cert.Key,
		"--tls-ca-cert-file", ca.CA, "--tls-auth-clients", "no")
	upstream := fmt.Sprintf("127.0.0.1:%d", port)
	s := newStageBehind(t, ctx, "tls", server, upstream, "rediss://"+upstream, ca)
	lead := s.lead(t, ctx, "tls")
	for c := range libraries(t, ctx) {
		checkWays(t, c.transcript(t, ctx, s.leader(lead).in(c.protocols[0]), "ways"))
	}
	s.resign(t, ctx, lead)
	for c, closed := range libraries(t, ctx) {
		t.Run(c.name, func(t *testing.T) { c.briefly(t, ctx, s, closed) })
	}
	t.Run("redis-cli", func(t *testing.T) {
		c := s.lead(t, ctx, "redis-cli")
		defer s.resign(t, ctx, c)
		session := typed(t, "session") + typed(t, "read")
		s.fresh(t, ctx)
		want := s.direct().runCLI(t, ctx, session)
		s.fresh(t, ctx)
		testenv.Same(t, "session", s.leader(c).runCLI(t, ctx, session), want)
		out, err := s.leader(c).benchmark(t, ctx, "-n", "500", "-q", "-t", "set,get", "-P", "5").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "SET: ") {
			t.Errorf("redis-benchmark: %v %s", err, out)
		}
		plain := s.reader()
		plain.ca = ""
		if out := plain.runCLI(t, ctx, "", "PING"); strings.Contains(out, "PONG") {
			t.Errorf("without TLS: %s", out)
		}
	})
}
