package openapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/gateapi"
)

// The document has every route of the gates and no other, and every code that they answer.
func TestGates(t *testing.T) {
	doc := load(t)
	ops, want := operations(doc), gateapi.Patterns()
	for _, p := range want {
		if ops[p] == nil {
			t.Errorf("%s is not described", p)
		}
	}
	described := make(map[string]bool)
	for p, op := range ops {
		if !strings.Contains(p, "/v1/gates") {
			continue
		}
		if !slices.Contains(want, p) {
			t.Errorf("%s is described, and not there", p)
		}
		noteCodes(doc, op, described)
	}
	for code, status := range gateapi.Codes() {
		if !described[fmt.Sprint(status, " ", code)] {
			t.Errorf("%d %s is not described", status, code)
		}
	}
}
