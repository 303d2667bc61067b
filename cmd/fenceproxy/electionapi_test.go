package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// TestElectionsOverHTTPDocument does what the document says with curl, and gets the answers
// that it shows but for tokens, numbers and times.
func TestElectionsOverHTTPDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "elections", "api.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindStringSubmatch(string(text))
	if block == nil {
		t.Fatal("no shell in the document")
	}
	server := testenv.SharedRedis(t)
	addr, admin := freeAddr(t), freeAddr(t)
	file := configFile(t, `elections: {backend: "redis://%s"}
listeners:
  - {protocol: redis, listen: "%s", upstream: "%s", control: "redis://%s"}
admin: {listen: "%s"}
`, server.Addr, addr, server.Addr, server.Addr, admin)
	proxy := serve(t, file, addr, "listener=admin")
	id := testenv.Name(t, "doc")
	script := strings.NewReplacer("127.0.0.1:9180", admin, "orders", id).Replace(block[1])
	out, err := exec.CommandContext(testenv.Context(t), "bash", "-euo", "pipefail", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	same := func(s string) string {
		s = regexp.MustCompile(`("token":)"[^"]*"`).ReplaceAllString(strings.ReplaceAll(s, id, "orders"), "$1…")
		return regexp.MustCompile(`("(number|remaining_ms)":)\d+`).ReplaceAllString(s, "$1…")
	}
	var shown strings.Builder
	for line := range strings.Lines(block[1]) {
		if answer, ok := strings.CutPrefix(line, "# "); ok {
			shown.WriteString(answer)
		}
	}
	if got, want := same(string(out)), same(shown.String()); got != want || !strings.Contains(want, "released") {
		t.Errorf("got:\n%s\nthe document shows:\n%s", got, want)
	}
	for _, token := range regexp.MustCompile(`"token":"([^"]*)"`).FindAllStringSubmatch(string(out), -1) {
		if log := proxy.log.String(); strings.Contains(log, token[1]) {
			t.Errorf("a token in the log:\n%s", log)
		}
	}
	// The description is open to all, and the same as in the sources.
	got, err := exec.CommandContext(testenv.Context(t), "curl", "-sf", fmt.Sprintf("http://%s/v1/openapi.json", admin)).Output()
	if want, werr := os.ReadFile(filepath.Join("..", "..", "internal", "openapi", "openapi.json")); err != nil || werr != nil || string(got) != string(want) {
		t.Errorf("the description: %v %v, %d bytes", err, werr, len(got))
	}
}
