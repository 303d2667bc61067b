package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The tests that docs/elections/cases.md names are there.
func TestNamedCasesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "elections", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, dir := range []string{"election", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			b, err := os.ReadFile(path)
			code.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := regexp.MustCompile("`(Test\\w+|E\\d+_\\w+|Loss|Calls|LostReply)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 50 {
		t.Fatalf("found %d names", len(named))
	}
	for _, m := range named {
		want := `"` + m[1] + `"`
		if strings.HasPrefix(m[1], "Test") {
			want = "func " + m[1] + "("
		}
		if !strings.Contains(code.String(), want) {
			t.Errorf("no test %s", m[1])
		}
	}
	for n := 1; n <= 16; n++ {
		if !regexp.MustCompile(`(?m)^\| \*\*E` + strconv.Itoa(n) + `\*\* `).Match(text) {
			t.Errorf("no row for E%d", n)
		}
	}
}

// The cases that docs/postgres-cases.md names are there.
func TestPostgresCasesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "postgres-cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 18; n++ {
		row := regexp.MustCompile(`(?m)^\| \*\*P` + strconv.Itoa(n) + `\*\* .*\| (.+) \|$`).FindSubmatch(text)
		if row == nil {
			t.Errorf("no row for P%d", n)
			continue
		}
		files := regexp.MustCompile("`([a-z]\\w*)`").FindAllSubmatch(row[1], -1)
		if len(files) == 0 && n != 14 {
			t.Errorf("P%d has no file", n)
		}
		for _, f := range files {
			if _, err := os.Stat(filepath.Join(root, "integration", "pgdiff", "testdata", string(f[1])+".pg")); err != nil {
				t.Error(err)
			}
		}
	}
}
