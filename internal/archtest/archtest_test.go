// Package archtest checks that imports point one way:
// cmd -> protocols/{pg,resp} -> {guard, policy} -> election. The linter says the
// same; this test holds without it.
package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	pathpkg "path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/fenceproxy/fenceproxy"

// may reports whether the shipped code of package from may import package to; both
// are paths below the module, and neither is a test.
func may(from, to string) bool {
	f, t := room(from), room(to)
	switch f {
	case "cmd", "integration", "bench", "examples":
		return t != "cmd" || strings.HasPrefix(to, from)
	case "internal":
		// The servers of the tests know nothing of the proxy; the rest of internal may
		// look at everything but a command.
		if from == "internal/servers" || from == "internal/testenv" {
			return t == "internal"
		}
		return t != "cmd"
	case "election":
		// The conformance suite is test support.
		return t == "election" || from == "election/electiontest" && t == "internal"
	case "policy":
		return t == "policy"
	case "guard":
		return t == "guard" || t == "policy" || t == "election" || from == "guard/guardtest" && t == "internal"
	case "protocols":
		switch t {
		case "guard", "policy", "election":
			return true
		case "protocols":
			return wire(from) == wire(to) || wire(to) == ""
		}
	}
	return false
}

// room is the first element of a package's path below the module.
func room(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// wire is the protocol that a package below protocols belongs to.
func wire(path string) string {
	rest, _ := strings.CutPrefix(path, "protocols")
	w, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if w == "tlsconf" || w == "loops" {
		return "" // both wires'
	}
	return w
}

// TestImportsPointOneWay reads the sources themselves, not go list, so that go test
// notices when they change.
func TestImportsPointOneWay(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		seen++
		if strings.HasSuffix(path, "_test.go") {
			checkSleep(t, path, f)
		}
		for _, spec := range f.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			checkImport(t, filepath.ToSlash(rel), imp)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Fatalf("found %d Go files below %s", seen, root)
	}
}

// checkSleep holds that a test sleeps in a synctest bubble only, where that costs no
// time and waits for everything; elsewhere it waits for the event itself.
func checkSleep(t *testing.T, path string, f *ast.File) {
	t.Helper()
	for _, spec := range f.Imports {
		if spec.Path.Value == `"testing/synctest"` {
			return
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("time"+".Sleep(")) {
		t.Errorf("%s sleeps outside testing/synctest: wait for the event itself", path)
	}
}

func checkImport(t *testing.T, file, imp string) {
	t.Helper()
	from := pathpkg.Dir(file)
	to, own := strings.CutPrefix(imp, module+"/")
	isTest := strings.HasSuffix(file, "_test.go")
	switch {
	case !own && !isTest && imp == "github.com/jackc/pgproto3/v2":
		t.Errorf("%s imports %s, which is for tests only", file, imp)
	case !own:
	case isTest:
		// Tests may use whatever they like, but the wires stay strangers.
		if room(from) == "protocols" && room(to) == "protocols" && wire(to) != "" && wire(to) != wire(from) {
			t.Errorf("%s must not import %s", file, to)
		}
	case !may(from, to):
		t.Errorf("%s must not import %s", file, to)
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"cmd/fenceproxy", "protocols/pg", true},
		{"cmd/fenceproxy", "internal/config", true},
		{"protocols/pg", "protocols", true},
		{"protocols/pg", "guard/pgfence", true},
		{"protocols/pg", "policy", true},
		{"protocols/pg/internal/x", "protocols/pg", true},
		{"protocols/pg", "protocols/resp", false},
		{"protocols/resp", "protocols/pg", false},
		{"protocols", "protocols/pg", false},
		{"protocols/resp", "internal/config", false},
		{"guard/pgfence", "guard", true},
		{"guard", "protocols", false},
		{"guard", "election", true},
		{"election", "guard", false},
		{"election/redis", "election", true},
		{"election/redis", "policy", false},
		{"election/redis", "internal/servers", false},
		{"policy", "election", false},
		{"internal/servers", "election", false},
		{"internal/demo", "election/memory", true},
		{"internal/demo", "cmd/fenceproxy", false},
	} {
		if got := may(c.from, c.to); got != c.want {
			t.Errorf("may %s import %s? got %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
