package kubernetes

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/fenceproxy/fenceproxy/election"
)

func TestInCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if b, err := OpenInCluster("x"); !errors.Is(err, rest.ErrNotInCluster) || b != nil {
		t.Errorf("outside: %v", err)
	}
	if _, err := os.Stat(podAccount.file("token")); err == nil {
		return // these tests run in a pod
	}
	// In a cluster, the pod's own server is meant, even if it cannot be used.
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	for _, raw := range []string{"kubernetes:///", "kubernetes:///x"} {
		if b, err := OpenURL(raw); !errors.Is(err, os.ErrNotExist) || b != nil {
			t.Errorf("a pod without a service account: %v", err)
		}
	}
}

// mounted is what a pod with a service account finds: a token that the API server gave
// out, and the API server's certificates.
func (s *site) mounted(t *testing.T, name string) account {
	t.Helper()
	var answer struct{ Status struct{ Token string } }
	body := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}}
	if err := json.Unmarshal(s.must(t, http.MethodPost, "/api/v1/namespaces/"+s.namespace+"/serviceaccounts/"+name+"/token",
		body, http.StatusCreated), &answer); err != nil || answer.Status.Token == "" {
		t.Fatal(err)
	}
	ca := s.config.CAData
	if len(ca) == 0 {
		var err error
		if ca, err = os.ReadFile(s.config.CAFile); err != nil {
			t.Fatal(err)
		}
	}
	a := account(t.TempDir())
	for file, content := range map[string]string{"token": answer.Status.Token + "\n", "ca.crt": string(ca), "namespace": s.namespace} {
		if err := os.WriteFile(a.file(file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(s.host(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	return a
}

// A candidate and a proxy in pods, each with the service account that the manifest makes,
// and with what a pod is given.
func TestInPod(t *testing.T) {
	s := sharedSite(t)
	s.apply(t, "../../deploy/kubernetes/rbac.yaml")
	s.namespace = "fenceproxy"
	s.ask(t, http.MethodDelete, s.leases("pod"), nil) // of an earlier run on the same server
	open := func(a account, raw string) *Backend {
		t.Helper()
		config, namespace, err := parseURL(raw, a)
		if err != nil || namespace != "fenceproxy" {
			t.Fatal(namespace, err)
		}
		b, err := Open(config, namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	a := s.mounted(t, "fenceproxy-candidate")
	candidate, proxy := open(a, "kubernetes:///"), open(s.mounted(t, "fenceproxy"), "kubernetes:///fenceproxy")
	g := win(t, candidate, "pod", election.AcquireOptions{})
	renew(t, candidate, "pod", g.Token, election.Renewed)
	standing(t, proxy, "pod", g.Token, election.StandingCurrent, g.Number)
	if r, err := proxy.Renew(t.Context(), "pod", g.Token); !errors.Is(err, election.ErrUnavailable) || !apierrors.IsForbidden(err) {
		t.Errorf("a proxy renews: %+v, %v", r, err)
	}
	for b, want := range map[*Backend]error{candidate: context.Canceled, proxy: election.ErrUnavailable} {
		ctx, cancel := context.WithCancel(t.Context())
		if err := b.Hints(ctx, "pod", cancel); !errors.Is(err, want) || apierrors.IsForbidden(err) != (b == proxy) {
			t.Errorf("hints: %v, want %v", err, want)
		}
	}
	if r, err := candidate.Resign(t.Context(), "pod", g.Token, election.ResignOptions{}); err != nil || r.Status != election.Released {
		t.Errorf("%+v, %v", r, err)
	}

	// What is missing, or is not what it should be.
	for _, file := range []string{"token", "namespace"} {
		b, err := os.ReadFile(a.file(file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(a.file(file)); err != nil {
			t.Fatal(err)
		}
		var missing *os.PathError
		if _, _, err := parseURL("kubernetes:///", a); !errors.Is(err, os.ErrNotExist) || !errors.As(err, &missing) || missing.Path != a.file(file) {
			t.Errorf("without its %s: %v", file, err)
		}
		if err := os.WriteFile(a.file(file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := account(filepath.Join(t.TempDir(), "other"))
	if err := os.CopyFS(string(other), os.DirFS(string(a))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(other.file("ca.crt")); err != nil {
		t.Fatal(err)
	}
	_, err := open(other, "kubernetes:///").Status(t.Context(), "pod")
	var untrusted *tls.CertificateVerificationError
	if !errors.Is(err, election.ErrUnavailable) || !errors.As(err, &untrusted) {
		t.Errorf("nobody vouches for the server: %v", err)
	}
	if err := os.WriteFile(other.file("ca.crt"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, namespace, err := parseURL("kubernetes:///", other)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Open(config, namespace); err == nil || b != nil {
		t.Errorf("certificates that are none: %v", err)
	}
}
