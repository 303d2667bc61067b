package servers

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// KubeOptions are the options of StartKube.
type KubeOptions struct {
	// Programs are what FindKube or BuildKube returned.
	Programs KubePrograms
	// Port is the port to use; zero means a free one.
	Port int
	// Dir is the directory of an earlier server, to be used and left behind: its
	// data, certificate and token stay as they were. Empty means a fresh one.
	Dir string
}

// A Kube is a Kubernetes API server with an etcd of its own. Its one user is an
// administrator, who may impersonate others.
type Kube struct {
	*Process
	etcd *Process // nil when it runs inside the API server's process
}

// StartKube starts a Kubernetes API server with an etcd of its own: no nodes, no
// controllers but the API server's own.
func StartKube(ctx context.Context, o KubeOptions) (*Kube, error) {
	dir := o.Dir
	if dir == "" {
		var err error
		if dir, err = NewDir("kube"); err != nil {
			return nil, err
		}
	}
	k, err := startKube(ctx, dir, o)
	if err != nil && o.Dir == "" {
		_ = os.RemoveAll(dir)
	}
	return k, err
}

func startKube(ctx context.Context, dir string, o KubeOptions) (*Kube, error) {
	k := &Kube{Process: &Process{
		Name: "kube-apiserver", log: new(tail), stop: syscall.SIGTERM, Dir: dir, keep: o.Dir != "",
		// The program may lie in a folder that only we can read.
		self: true,
	}}
	if err := k.prepare(); err != nil {
		return nil, fmt.Errorf("preparing kube-apiserver: %w", err)
	}
	client, peer := "unix://"+filepath.Join(dir, "etcd.sock"), "unix://"+filepath.Join(dir, "peer.sock")
	for _, s := range []string{"etcd.sock", "peer.sock"} { // a killed server leaves them
		_ = os.Remove(filepath.Join(dir, s))
	}
	if o.Programs.Etcd == "" {
		k.env = []string{"KUBEAPI_ETCD_DIR=" + k.EtcdDir(), "KUBEAPI_ETCD_CLIENT=" + client, "KUBEAPI_ETCD_PEER=" + peer}
	} else if err := k.startEtcd(ctx, o.Programs.Etcd, client, peer); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		port := o.Port
		if port == 0 {
			var err error
			if port, err = FreePort(); err != nil {
				k.stopEtcd()
				return nil, err
			}
		}
		k.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		err := k.start(ctx, o.Programs.APIServer, []string{
			"--etcd-servers=" + client,
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
			"--cert-dir=" + filepath.Join(dir, "pki"),
			"--token-auth-file=" + k.file("tokens.csv"), "--authorization-mode=RBAC",
			"--service-account-issuer=https://kube.test",
			"--service-account-key-file=" + k.file("service.key"),
			"--service-account-signing-key-file=" + k.file("service.key"),
			"--service-cluster-ip-range=10.0.0.0/24",
			"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none",
		}, k.answers)
		if err == nil {
			k.Version = o.Programs.Version
			return k, nil
		}
		if o.Port != 0 || try == 4 {
			k.stopEtcd()
			return nil, err
		}
	}
}

func (k *Kube) startEtcd(ctx context.Context, bin, client, peer string) error {
	k.etcd = &Process{Name: "etcd", log: new(tail), stop: syscall.SIGTERM, Dir: k.Dir, keep: true, self: true}
	return k.etcd.start(ctx, bin, []string{
		"--data-dir=" + k.EtcdDir(), "--unsafe-no-fsync", "--log-level=error", "--name=default",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
	}, func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(client, "unix://"))
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

// prepare makes the files that the server reads, unless they are there.
func (k *Kube) prepare() error {
	if _, err := os.Stat(k.file("tokens.csv")); err == nil {
		return nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(k.file("service.key"), block, 0o600); err != nil {
		return err
	}
	token := rand.Text()
	if err := os.WriteFile(k.file("token"), []byte(token), 0o600); err != nil {
		return err
	}
	return os.WriteFile(k.file("tokens.csv"), []byte(token+`,admin,1,"system:masters"`+"\n"), 0o600)
}

func (k *Kube) file(name string) string { return filepath.Join(k.Dir, name) }

// EtcdDir is where etcd keeps its data; removing it while the server is down makes
// the server forget everything.
func (k *Kube) EtcdDir() string { return k.file("etcd") }

// Kubeconfig writes a kubeconfig for the administrator, with a context named
// "test", and returns its path.
func (k *Kube) Kubeconfig() (string, error) {
	path := k.file("kubeconfig")
	// Written aside and renamed: somebody may be reading an earlier one.
	f, err := os.CreateTemp(k.Dir, "kubeconfig-")
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(f, `apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority: %q}}]
users: [{name: admin, user: {tokenFile: %q}}]
contexts: [{name: test, context: {cluster: test, user: admin, namespace: default}}]
`, k.Addr, k.ca(), k.file("token"))
	return path, errors.Join(err, f.Close(), os.Rename(f.Name(), path))
}

// ca is the certificate that the server signed itself at its first start.
func (k *Kube) ca() string { return filepath.Join(k.Dir, "pki", "apiserver.crt") }

// answers reports whether the server says that it is ready.
func (k *Kube) answers(ctx context.Context) error {
	cert, err := os.ReadFile(k.ca())
	if err != nil {
		return err
	}
	token, err := os.ReadFile(k.file("token"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+k.Addr+"/readyz", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+string(token))
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("readyz: %s: %s", resp.Status, body)
	}
	return err
}

// Kill ends the API server and its etcd with SIGKILL and waits for them; their
// directory stays.
func (k *Kube) Kill() {
	k.Process.Kill()
	if k.etcd != nil {
		k.etcd.Kill()
	}
}

// Stop ends the API server and its etcd, waits for them and removes their directory.
func (k *Kube) Stop() {
	// Nothing in it is worth the many seconds that a graceful end takes.
	k.Process.Kill()
	k.stopEtcd()
	k.Process.Stop()
}

func (k *Kube) stopEtcd() {
	if k.etcd != nil {
		k.etcd.Kill()
	}
}
