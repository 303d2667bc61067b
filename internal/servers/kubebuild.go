package servers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// KubePrograms are the programs of a Kubernetes API server.
type KubePrograms struct {
	// APIServer is the path of kube-apiserver.
	APIServer string
	// Etcd is the path of etcd; empty when APIServer has one inside.
	Etcd string
	// Version is that of Kubernetes; empty when it is not known.
	Version string
}

// FindKube returns the programs in the directory that KUBEBUILDER_ASSETS names, or
// ErrNotInstalled when it is not set.
func FindKube() (KubePrograms, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		return KubePrograms{}, fmt.Errorf("kube-apiserver: KUBEBUILDER_ASSETS is not set: %w", ErrNotInstalled)
	}
	api, err := lookup(dir, "kube-apiserver")
	if err != nil {
		return KubePrograms{}, err
	}
	etcd, err := lookup(dir, "etcd")
	return KubePrograms{APIServer: api, Etcd: etcd}, err
}

// BuildKube builds the API server, with an etcd inside, from the Go module in the
// directory src, and keeps it in the user's cache directory, where later calls of any
// process find it. The first build takes minutes, which it says on log.
func BuildKube(ctx context.Context, src string, log io.Writer) (KubePrograms, error) {
	p, err := buildKube(ctx, src, log)
	if err != nil {
		return KubePrograms{}, fmt.Errorf("building kube-apiserver: %w", err)
	}
	return p, nil
}

func buildKube(ctx context.Context, src string, log io.Writer) (KubePrograms, error) {
	version, err := output(ctx, src, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return KubePrograms{}, err
	}
	key, err := sourceKey(src)
	if err != nil {
		return KubePrograms{}, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return KubePrograms{}, err
	}
	dir := filepath.Join(cache, "fenceproxy", "kubeapi-"+version+"-"+key)
	p := KubePrograms{APIServer: filepath.Join(dir, "kubeapi"), Version: version}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return KubePrograms{}, err
	}
	// One process builds; the others wait for it.
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return KubePrograms{}, err
	}
	defer unlock()
	if _, err := os.Stat(p.APIServer); err == nil {
		return p, nil
	}
	fmt.Fprintf(log, "building kube-apiserver %s into %s: once, ten minutes or so where nothing of it is cached\n", version, dir)
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const v = " -X k8s.io/component-base/version."
	// The server reads its own version and does not start without one.
	flags := "-s -w" + v + "gitVersion=" + version + v + "gitMajor=" + major + v + "gitMinor=" + minor
	fresh := p.APIServer + ".new"
	if _, err := output(ctx, src, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", fresh, "."); err != nil {
		return KubePrograms{}, err
	}
	return p, os.Rename(fresh, p.APIServer)
}

// sourceKey tells apart builds of different sources and Go versions.
func sourceKey(src string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, name, len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:6]), nil
}

// output runs a program in dir and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "PWD="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// lockFile locks a file, made if need be, against everybody else who does.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		_ = f.Close()
		return nil, err
	}
}
