package testenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Same checks that what a client printed through the proxy is to the letter what it
// printed without it.
func Same(t testing.TB, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	i := 0
	for i < len(g) && i < len(w) && g[i] == w[i] {
		i++
	}
	from := max(0, i-5)
	t.Errorf("%s: line %d differs\n--- through the proxy\n%s\n--- directly\n%s", what, i+1,
		strings.Join(g[from:min(len(g), i+10)], "\n"), strings.Join(w[from:min(len(w), i+10)], "\n"))
}

// Holds checks that what a client printed shows that it did what it was made for.
func Holds(t testing.TB, what, printed string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(printed, l) {
			t.Errorf("%s: %q is not in it:\n%s", what, l, printed)
		}
	}
}

// Testdata returns the path of a file of the package's testdata that a client program
// reads. Having looked at it, go test notices when it changes.
func Testdata(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Python returns a Python with the modules: the one that FENCEPROXY_PYTHON names, the
// first on PATH, or the system's, which is where Debian's packages go.
func Python(t testing.TB, ctx context.Context, modules ...string) string {
	t.Helper()
	code := "import sys"
	for _, m := range modules {
		code += ", " + m
	}
	bins := []string{"python3", "/usr/bin/python3"}
	if bin := os.Getenv("FENCEPROXY_PYTHON"); bin != "" {
		bins = []string{bin}
	}
	for _, bin := range bins {
		if exec.CommandContext(ctx, bin, "-c", code).Run() == nil {
			return bin
		}
	}
	t.Fatalf("no Python among %v has the modules %v (make deps installs them)", bins, modules)
	return ""
}

// NodeModules returns the directory that .ci/deps put the modules of a lock in: that of
// testdata/<name>/package-lock.json, where name may lead to another package's.
func NodeModules(t testing.TB, name string) string {
	t.Helper()
	lock, err := os.ReadFile(Testdata(t, name+"/package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	caches := []string{"/var/cache"}
	if cache, err := os.UserCacheDir(); err == nil {
		caches = append(caches, cache)
	}
	for _, cache := range caches {
		dir := filepath.Join(cache, "fenceproxy", filepath.Base(name)+"-"+hex.EncodeToString(sum[:6]), "node_modules")
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	t.Fatalf("%s is not in fenceproxy's folder below %v (make deps installs it)", name, caches)
	return ""
}
