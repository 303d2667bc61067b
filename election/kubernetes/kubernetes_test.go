package kubernetes

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) {
	s := sharedSite(t)
	electiontest.Run(t, electiontest.Harness{
		Hints: true,
		Open:  func(t testing.TB) election.Backend { return s.openLeft(t, s.config) },
		Lose:  func(t testing.TB, _ election.Backend, id string) { s.lose(t, id) },
		Dump: func(t testing.TB, _ election.Backend) string {
			return string(s.must(t, http.MethodGet, s.leases(), nil, http.StatusOK))
		},
		Server: s.host(t),
		OpenAt: func(t testing.TB, addr string) election.Backend { return s.openLeft(t, s.at(addr)) },
		Reads:  1, // the Lease
	})
}

// A site is a namespace of an API server, and an administrator of it.
type site struct {
	config    *rest.Config
	namespace string
	admin     *http.Client
}

// sharedSite is a fresh namespace in the server that all tests share.
func sharedSite(t testing.TB) *site {
	t.Helper()
	return newSite(t, testenv.SharedKubeconfig(t))
}

func newSite(t testing.TB, kubeconfig string) *site {
	t.Helper()
	s := adminOf(t, kubeconfig)
	s.namespace = testenv.Name(t, "test-")
	s.makeNamespace(t)
	return s
}

// adminOf is a site without a namespace.
func adminOf(t testing.TB, kubeconfig string) *site {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{config: config}
	c := rest.CopyConfig(config)
	conns := newConns(nil)
	c.Dial = conns.dial
	if s.admin, err = rest.HTTPClientFor(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conns.close)
	return s
}

func (s *site) makeNamespace(t testing.TB) {
	t.Helper()
	s.must(t, http.MethodPost, "/api/v1/namespaces", map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": s.namespace},
	}, http.StatusCreated)
}

// leases is the path of the Leases, or of the named one.
func (s *site) leases(name ...string) string {
	return strings.Join(append([]string{
		"/apis/coordination.k8s.io/v1/namespaces/" + s.namespace + "/leases",
	}, name...), "/")
}

// host is the API server's host:port.
func (s *site) host(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	if u.Port() == "" {
		return u.Host + ":443"
	}
	return u.Host
}

// at is the config with another address of the server.
func (s *site) at(addr string) *rest.Config {
	c := rest.CopyConfig(s.config)
	if u, err := url.Parse(c.Host); err == nil && c.ServerName == "" {
		c.ServerName = u.Hostname()
	}
	c.Host = "https://" + addr
	return c
}

// as is the config of somebody else.
func (s *site) as(user string, groups ...string) *rest.Config {
	c := rest.CopyConfig(s.config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return c
}

// openLeft opens a backend that the caller closes.
func (s *site) openLeft(t testing.TB, c *rest.Config) *Backend {
	t.Helper()
	b, err := Open(c, s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// open opens a backend for the length of the test.
func (s *site) open(t testing.TB, c *rest.Config) *Backend {
	t.Helper()
	b := s.openLeft(t, c)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// ask sends one request as the administrator.
func (s *site) ask(t testing.TB, method, path string, body any) (status int, answer []byte) {
	t.Helper()
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		in = bytes.NewReader(b)
	}
	q, err := http.NewRequestWithContext(testenv.Context(t), method, s.config.Host+path, in)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json")
	resp, err := s.admin.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

func (s *site) must(t testing.TB, method, path string, body any, want int) []byte {
	t.Helper()
	status, answer := s.ask(t, method, path, body)
	if status != want {
		t.Fatalf("%s %s: %d: %s", method, path, status, answer)
	}
	return answer
}

func (s *site) lose(t testing.TB, id string) {
	t.Helper()
	s.must(t, http.MethodDelete, s.leases(leaseName(id)), nil, http.StatusOK)
}

// get returns the election's Lease.
func (s *site) get(t testing.TB, id string) *coordinationv1.Lease {
	t.Helper()
	var l coordinationv1.Lease
	if err := json.Unmarshal(s.must(t, http.MethodGet, s.leases(leaseName(id)), nil, http.StatusOK), &l); err != nil {
		t.Fatal(err)
	}
	return &l
}

// put writes a Lease, whatever is there.
func (s *site) put(t testing.TB, l *coordinationv1.Lease) {
	t.Helper()
	s.must(t, http.MethodPut, s.leases(l.Name), l, http.StatusOK)
}

func win(t testing.TB, b election.Backend, id string, o election.AcquireOptions) election.AcquireResult {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = time.Hour
	}
	g, err := b.Acquire(t.Context(), id, o)
	if err != nil || g.Status != election.Acquired {
		t.Fatalf("Acquire: %+v, %v", g, err)
	}
	return g
}

func standing(t testing.TB, b election.Backend, id string, token election.Token, want election.Standing, number int64) {
	t.Helper()
	v, err := b.Validate(t.Context(), id, token)
	if err != nil || v.Standing != want || v.Number != number {
		t.Fatalf("Validate: %+v, %v, want %v with %d", v, err, want, number)
	}
}

func renew(t testing.TB, b election.Backend, id string, token election.Token, want election.RenewStatus) {
	t.Helper()
	if r, err := b.Renew(t.Context(), id, token); err != nil || r.Status != want {
		t.Fatalf("Renew: %+v, %v, want %v", r, err, want)
	}
}
