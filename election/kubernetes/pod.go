package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
)

// An account is the directory in which a pod finds its service account: its token, who
// vouches for the API server, and the pod's namespace.
type account string

const podAccount account = "/var/run/secrets/kubernetes.io/serviceaccount"

// OpenInCluster is Open for a program that runs in a pod, with the pod's service
// account. An empty namespace means the pod's.
func OpenInCluster(namespace string) (*Backend, error) {
	config, namespace, err := podAccount.config(namespace)
	if err != nil {
		return nil, fmt.Errorf("kubernetes election backend: %w", err)
	}
	return Open(config, namespace)
}

// config is the config of a program in a pod, as rest.InClusterConfig makes it, and the
// namespace. The token is read again from time to time, for it is replaced while the pod
// runs. Outside a cluster the error is rest.ErrNotInCluster.
func (a account) config(namespace string) (*rest.Config, string, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, "", rest.ErrNotInCluster
	}
	token, err := a.read("token")
	if err != nil {
		return nil, "", fmt.Errorf("finding the pod's token: %w", err)
	}
	c := &rest.Config{
		Host:            "https://" + net.JoinHostPort(host, port),
		BearerToken:     token,
		BearerTokenFile: a.file("token"),
	}
	switch _, err := os.Stat(a.file("ca.crt")); {
	case err == nil:
		c.CAFile = a.file("ca.crt")
	case !errors.Is(err, fs.ErrNotExist): // without one, the machine's are asked
		return nil, "", fmt.Errorf("finding who vouches for the API server: %w", err)
	}
	if namespace == "" {
		if namespace, err = a.read("namespace"); err != nil {
			return nil, "", fmt.Errorf("finding the pod's namespace: %w", err)
		}
	}
	return c, namespace, nil
}

func (a account) file(name string) string { return filepath.Join(string(a), name) }

func (a account) read(name string) (string, error) {
	b, err := os.ReadFile(a.file(name))
	return strings.TrimSpace(string(b)), err
}
