package kubernetes

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"k8s.io/client-go/rest"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
)

const twoContexts = `apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: c1, cluster: {server: "https://one.example:6443"}}
- {name: c2, cluster: {server: "https://two.example"}}
users:
- {name: u, user: {token: secret-token-of-u}}
contexts:
- {name: one, context: {cluster: c1, user: u}}
- {name: two, context: {cluster: c2, user: u, namespace: of-two}}
`

func TestURL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(twoContexts), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", path)
	for raw, want := range map[string][2]string{
		"kubernetes:///elections?kubeconfig=" + path:                         {"https://one.example:6443", "elections"},
		"kubernetes:///elections?context=two&kubeconfig=" + path:             {"https://two.example", "elections"},
		"kubernetes:///?context=two&kubeconfig=" + path:                      {"https://two.example", "of-two"},
		"kubernetes:///?kubeconfig=" + path:                                  {"https://one.example:6443", "default"},
		"kubernetes:///elections":                                            {"https://one.example:6443", "elections"},
		"kubernetes:///elections?context=two":                                {"https://two.example", "elections"},
		"kubernetes:///":                                                     {"https://one.example:6443", "default"},
		"kubernetes:":                                                        {"https://one.example:6443", "default"},
		"KUBERNETES:///elections":                                            {"https://one.example:6443", "elections"},
		"kubernetes:///a?kubeconfig=" + strings.ReplaceAll(path, "/", "%2F"): {"https://one.example:6443", "a"},
	} {
		config, namespace, err := parseURL(raw, podAccount)
		if err != nil || config.Host != want[0] || namespace != want[1] {
			t.Errorf("%s: %v %q %v, want %v", raw, config, namespace, err, want)
		}
		b, err := OpenURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		} else if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, raw := range []string{
		"", "kubernetes", "redis:///x", "kubernetes://namespace", "kubernetes://user@/x", "kubernetes:x",
		"kubernetes:///a/b", "kubernetes:///a#b", "kubernetes:///a?kubeconfig=", "kubernetes:///a?context=",
		"kubernetes:///a?context=one&context=two", "kubernetes:///a?ttl=5", "kubernetes:///a?x;y", "kubernetes:///%zz",
	} {
		if b, err := OpenURL(raw); !errors.Is(err, connurl.ErrInvalid) || b != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for _, raw := range []string{
		"kubernetes:///A_b?kubeconfig=" + path, "kubernetes:///a?context=three&kubeconfig=" + path,
		"kubernetes:///a?kubeconfig=/does/not/exist",
	} {
		if b, err := OpenURL(raw); err == nil || b != nil {
			t.Errorf("%s opens", raw)
		} else if strings.Contains(err.Error(), "secret-token") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// The manifest gives each account what its work needs, and no more; what is lacking is
// a clear error.
func TestRBAC(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	s.apply(t, "../../deploy/kubernetes/rbac.yaml")
	s.namespace = "fenceproxy"
	account := func(name string) *Backend {
		return s.open(t, s.as("system:serviceaccount:fenceproxy:"+name, "system:serviceaccounts", "system:authenticated"))
	}
	candidate, proxy, nobody := account("fenceproxy-candidate"), account("fenceproxy"), account("default")
	s.ask(t, http.MethodDelete, s.leases("e"), nil) // of an earlier run on the same server

	// A candidate does all five.
	g := win(t, candidate, "e", election.AcquireOptions{})
	renew(t, candidate, "e", g.Token, election.Renewed)
	standing(t, candidate, "e", g.Token, election.StandingCurrent, g.Number)
	// A proxy asks, and that is all.
	standing(t, proxy, "e", g.Token, election.StandingCurrent, g.Number)
	if st, err := proxy.Status(t.Context(), "e"); err != nil || st.Status != election.Held {
		t.Errorf("%+v, %v", st, err)
	}
	refused := func(what, verb string, err error) {
		t.Helper()
		if !errors.Is(err, election.ErrUnavailable) || !strings.Contains(err.Error(), "cannot "+verb+" resource") ||
			!strings.Contains(err.Error(), "get and, to hold elections, create and update") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := proxy.Renew(t.Context(), "e", g.Token)
	refused("a proxy renews", "update", err)
	_, err = proxy.Resign(t.Context(), "e", g.Token, election.ResignOptions{})
	refused("a proxy resigns", "update", err)
	_, err = proxy.Acquire(t.Context(), "other", election.AcquireOptions{})
	refused("a proxy acquires", "create", err)
	standing(t, candidate, "e", g.Token, election.StandingCurrent, g.Number)
	if r, err := candidate.Resign(t.Context(), "e", g.Token, election.ResignOptions{}); err != nil || r.Status != election.Released {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = proxy.Acquire(t.Context(), "e", election.AcquireOptions{})
	refused("a proxy acquires", "update", err)
	if st, err := candidate.Status(t.Context(), "e"); err != nil || st.Status != election.Vacant || st.Number != g.Number {
		t.Errorf("%+v, %v", st, err)
	}

	// Others nothing; and nobody anything in another namespace.
	_, err = nobody.Validate(t.Context(), "e", g.Token)
	refused("nobody validates", "get", err)
	elsewhere, err := Open(s.as("system:serviceaccount:fenceproxy:fenceproxy-candidate"), "default")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	_, err = elsewhere.Validate(t.Context(), "e", g.Token)
	refused("a candidate elsewhere", "get", err)

	// Wrong credentials.
	c := rest.CopyConfig(s.config)
	c.BearerToken, c.BearerTokenFile = "wrong-token-of-nobody", ""
	_, err = s.open(t, c).Validate(t.Context(), "e", g.Token)
	if !errors.Is(err, election.ErrUnavailable) || !strings.Contains(err.Error(), "credentials") || strings.Contains(err.Error(), "wrong-token") {
		t.Errorf("wrong credentials: %v", err)
	}
}

// apply creates what a manifest describes.
func (s *site) apply(t testing.TB, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var o struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		body, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		url := "/apis/" + o.APIVersion
		if o.APIVersion == "v1" {
			url = "/api/v1"
		}
		if o.Metadata.Namespace != "" {
			url += "/namespaces/" + o.Metadata.Namespace
		}
		url += "/" + strings.ToLower(o.Kind) + "s"
		status, answer := s.ask(t, http.MethodPost, url, json.RawMessage(body))
		if status != http.StatusCreated && status != http.StatusConflict {
			t.Fatalf("%s %s: %d: %s", o.Kind, o.Metadata.Name, status, answer)
		}
	}
}
