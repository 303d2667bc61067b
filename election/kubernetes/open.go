package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/fenceproxy/fenceproxy/election/internal/connurl"
)

// Open returns a backend that keeps elections in a namespace of the API server that
// config leads to. It asks the server nothing. The config is copied; its rate limit is
// off unless it sets one, and retries are off: the caller knows best what to do about
// an error.
func Open(config *rest.Config, namespace string) (*Backend, error) {
	b, err := open(config, namespace)
	if err != nil {
		return nil, fmt.Errorf("kubernetes election backend: %w", err)
	}
	return b, nil
}

func open(config *rest.Config, namespace string) (*Backend, error) {
	if bad := validation.IsDNS1123Label(namespace); len(bad) > 0 {
		return nil, fmt.Errorf("namespace %q: %s", namespace, bad[0])
	}
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})

	c := rest.CopyConfig(config)
	c.APIPath = "/apis"
	c.GroupVersion = &coordinationv1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if c.QPS == 0 && c.RateLimiter == nil {
		c.QPS = -1
	}
	// One connection for each question at a time. In HTTP/2 all share one, and when
	// that one falls silent, new questions go on waiting on it for most of a minute.
	if len(c.NextProtos) == 0 {
		c.NextProtos = []string{"http/1.1"}
	}
	conns := newConns(c.Dial)
	c.Dial = conns.dial
	c.WrapTransport = transport.Wrappers(func(next http.RoundTripper) http.RoundTripper {
		conns.pool = next
		return dated{next}
	}, c.WrapTransport)
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, err
	}
	return &Backend{
		client: client, namespace: namespace, conns: conns, seen: newSeen(seenMax), wall: time.Now,
		ends: make(map[*call]context.CancelCauseFunc),
	}, nil
}

// OpenURL is Open with a URL:
//
//	kubernetes:///namespace?kubeconfig=/path&context=name
//
// All but the scheme may be left out: kubernetes:/// works too. With a kubeconfig or a
// context, the API server is that of the kubeconfig (by default what $KUBECONFIG or
// ~/.kube/config say) and the context (by default the current one). With neither, it is
// the pod's own inside a cluster, and that of the default kubeconfig elsewhere. The
// namespace is by default the pod's or the context's.
func OpenURL(rawURL string) (*Backend, error) {
	config, namespace, err := parseURL(rawURL, podAccount)
	if err != nil {
		return nil, fmt.Errorf("kubernetes election backend: %w", err)
	}
	return Open(config, namespace)
}

func parseURL(rawURL string, pod account) (*rest.Config, string, error) {
	// What does not have the form is not quoted: it may be another backend's URL, with a
	// password in it.
	scheme, after, _ := strings.Cut(rawURL, ":")
	switch {
	case !strings.EqualFold(scheme, "kubernetes"):
		return nil, "", fmt.Errorf("%w: its scheme must be kubernetes", connurl.ErrInvalid)
	case !strings.HasSuffix(rawURL, ":") && !strings.HasPrefix(after, "///"), strings.ContainsAny(after, "@#"):
		return nil, "", fmt.Errorf("%w: write it as kubernetes:///namespace?kubeconfig=…&context=…, with three slashes", connurl.ErrInvalid)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", connurl.ErrInvalid, err)
	}
	namespace := strings.TrimPrefix(u.Path, "/")
	switch {
	case strings.Contains(namespace, "/"):
		return nil, "", fmt.Errorf("%w: its path %q must be one namespace", connurl.ErrInvalid, u.Path)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", connurl.ErrInvalid, err)
	}
	for k, v := range q {
		if k != "kubeconfig" && k != "context" || len(v) != 1 || v[0] == "" {
			return nil, "", fmt.Errorf("%w: parameter %q: only kubeconfig and context are known, each once and not empty", connurl.ErrInvalid, k)
		}
	}
	if len(q) == 0 {
		config, ns, err := pod.config(namespace)
		if !errors.Is(err, rest.ErrNotInCluster) {
			return config, ns, err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = q.Get("kubeconfig")
	rules.WarnIfAllMissing = false
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: q.Get("context")})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
		}
	}
	return config, namespace, nil
}
