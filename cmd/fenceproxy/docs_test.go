package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// TestGettingStarted does what the document says, word for word but for the ports.
func TestGettingStarted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "getting-started.md"))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "\n## ")
	for name, c := range map[string]struct {
		part, port, proxyPort string
		server                func() *servers.Process
		refusals              int
	}{
		"postgres": {parts[1], "5432", "6432", func() *servers.Process { return testenv.Postgres(t, servers.PostgresOptions{}) }, 2},
		"redis":    {parts[2], "6379", "6380", func() *servers.Process { return testenv.Redis(t) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.server()
			addr := freeAddr(t)
			_, proxyPort, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			part := strings.NewReplacer(c.port, strconv.Itoa(p.Port()), c.proxyPort, proxyPort).Replace(c.part)
			dir := t.TempDir()
			tour := newTour(t, dir)
			for _, block := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(part, -1) {
				switch lang, code := block[1], block[2]; {
				case lang == "yaml":
					if err := os.WriteFile(filepath.Join(dir, "fenceproxy.yaml"), []byte(code), 0o600); err != nil {
						t.Fatal(err)
					}
				case strings.HasPrefix(code, "fenceproxy serve "):
					serve(t, filepath.Join(dir, "fenceproxy.yaml"), addr)
				case lang == "sh":
					tour.script.WriteString(code)
					tour.run(code)
				}
			}
			if n := strings.Count(tour.out, "refused, as it should be"); n != c.refusals {
				t.Errorf("%d refusals, want %d:\n%s", n, c.refusals, tour.out)
			}
		})
	}
}

// A tour runs the blocks of a document, one after the other, in one shell's environment.
type tour struct {
	t      *testing.T
	dir    string
	env    []string
	script strings.Builder // what has been run
	out    string
}

func newTour(t *testing.T, dir string) *tour {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "fenceproxy")); err != nil {
		t.Fatal(err)
	}
	return &tour{t: t, dir: dir, env: append(os.Environ(), beFenceproxy+"=1", "PATH="+bin+":"+os.Getenv("PATH"))}
}

// run runs a block with the variables that earlier ones exported.
func (r *tour) run(block string) {
	r.t.Helper()
	var exports strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(r.script.String(), block)) {
		if strings.HasPrefix(line, "export ") {
			exports.WriteString(line)
		}
	}
	cmd := exec.CommandContext(testenv.Context(r.t), "bash", "-euo", "pipefail", "-c", exports.String()+block)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	r.out += string(out)
	if err != nil {
		r.t.Fatalf("%v\n%s\n%s", err, block, out)
	}
}

// TestLibraryDocument: what the document shows of Go is in the example, which compiles.
func TestLibraryDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "library.md"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join("..", "..", "examples", "go", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Error("no Go in the document")
	}
	for _, b := range blocks {
		if !strings.Contains(string(program), b[1]) {
			t.Errorf("not in the example:\n%s", b[1])
		}
	}
}

// TestRedisRulesDocument: the rules in the document are those that the code needs.
func TestRedisRulesDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "redis.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rules := range []string{redisfence.Rules, redisfence.ClusterRules} {
		if !strings.Contains(string(text), "\nACL SETUSER fenceproxy on >PASSWORD "+rules+"\n") {
			t.Errorf("not in the document: %s", rules)
		}
	}
}
