package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policy"
)

// clientTexts are what common clients send to look around. Most of it was taken from a
// server's log; what is found to be refused belongs here, or into the refusals.
func clientTexts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/sql/clients/*.sql")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	var texts []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, strings.Split(string(b), "\n%%\n")...)
	}
	return texts
}

func TestSQLClientsMayRead(t *testing.T) {
	s := policy.NewSQL(0)
	for _, text := range clientTexts(t) {
		if got := said(s.Inspect([]byte(text))); got != "read" {
			t.Errorf("%s\n\t%s", text, got)
		}
	}
}

// clientsLeaveNoTrace: nothing of what clients send is a write to the server.
func (l *lab) clientsLeaveNoTrace(texts []string) {
	seen := ""
	for range 3 { // background work of the server is not seen every time
		if seen = l.all(texts); seen == "" {
			return
		}
	}
	l.t.Error("they leave traces:", seen)
}

// all runs texts one after the other as a reader's, and says which traces they leave. A
// transaction number, which some ask for, is none.
func (l *lab) all(texts []string) string {
	l.t.Helper()
	r := l.reader("postgres")
	before := l.look()
	for _, text := range texts {
		if sqlstate(r, text) == "25006" {
			l.t.Errorf("%s\n\tis let through, and the server says that it writes", text)
		}
		if strings.Contains(text, "txid_current") {
			before = l.look()
		}
	}
	_ = r.Close(l.t.Context())
	if effects := changed(before, l.look()); len(effects) > 0 {
		return outcome{"", effects}.String()
	}
	return ""
}
