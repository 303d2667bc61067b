package openapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/internal/electionapi"
	"github.com/fenceproxy/fenceproxy/internal/gateapi"
)

type object = map[string]any

func load(t *testing.T) object {
	t.Helper()
	res := httptest.NewRecorder()
	Handler().ServeHTTP(res, httptest.NewRequestWithContext(t.Context(), http.MethodGet, Path, nil))
	b, _ := io.ReadAll(res.Body)
	var doc object
	if err := json.Unmarshal(b, &doc); err != nil || res.Header().Get("Content-Type") != "application/json" {
		t.Fatal(err, res.Header())
	}
	return doc
}

// at is what a path of keys leads to.
func at(v any, keys ...string) any {
	for _, k := range keys {
		o, _ := v.(object)
		v = o[k]
	}
	return v
}

// operations are the document's, as http.ServeMux writes them.
func operations(doc object) map[string]object {
	ops := make(map[string]object)
	for path, item := range at(doc, "paths").(object) {
		for method, op := range item.(object) {
			if method != "parameters" {
				ops[strings.ToUpper(method)+" "+path] = op.(object)
			}
		}
	}
	return ops
}

// The document has every route of the API, and no other.
func TestRoutes(t *testing.T) {
	ops := operations(load(t))
	want := append(gateapi.Patterns(), "GET "+Path)
	for _, r := range electionapi.New(memory.New(), electionapi.Config{}).Routes() {
		want = append(want, r.Pattern)
	}
	for _, p := range want {
		if ops[p] == nil {
			t.Errorf("%s is not described", p)
		}
	}
	for p := range ops {
		if !slices.Contains(want, p) {
			t.Errorf("%s is described, and not there", p)
		}
	}
}

// What the document refers to is in it; each operation has a name of its own, says what it
// answers, and takes the parameters of its path.
func TestDocument(t *testing.T) {
	doc := load(t)
	if doc["openapi"] != "3.1.0" || at(doc, "info", "title") == nil || at(doc, "info", "version") == nil {
		t.Error("no OpenAPI 3.1 document")
	}
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case object:
			if ref, ok := v["$ref"].(string); ok {
				if !strings.HasPrefix(ref, "#/") || at(doc, strings.Split(ref[2:], "/")...) == nil {
					t.Errorf("%s: %s is not there", where, ref)
				}
			}
			if req, ok := v["required"].([]any); ok {
				for _, name := range req {
					if at(v, "properties", name.(string)) == nil {
						t.Errorf("%s: %v is required and not described", where, name)
					}
				}
			}
			for k, x := range v {
				walk(where+"/"+k, x)
			}
		case []any:
			for i, x := range v {
				walk(fmt.Sprintf("%s/%d", where, i), x)
			}
		}
	}
	walk("", doc)
	ids := make(map[string]bool)
	for name, op := range operations(doc) {
		id, _ := op["operationId"].(string)
		if id == "" || ids[id] {
			t.Errorf("%s: the operationId %q is missing or given twice", name, id)
		}
		ids[id] = true
		responses, _ := op["responses"].(object)
		if responses["200"] == nil || op["security"] == nil && (responses["401"] == nil || responses["403"] == nil) {
			t.Errorf("%s: it does not say what it answers", name)
		}
		_, path, _ := strings.Cut(name, " ")
		params, _ := at(doc, "paths", path, "parameters").([]any)
		for seg := range strings.SplitSeq(path, "/") {
			if inner, ok := strings.CutPrefix(seg, "{"); ok {
				inner = strings.TrimSuffix(inner, "}")
				if !slices.ContainsFunc(params, func(p any) bool {
					if ref, ok := at(p, "$ref").(string); ok {
						p = at(doc, strings.Split(ref[2:], "/")...)
					}
					return at(p, "name") == inner && at(p, "in") == "path" && at(p, "required") == true
				}) {
					t.Errorf("%s: the parameter %s is not described", name, inner)
				}
			}
		}
	}
}

// noteCodes notes the codes that an operation is described to answer with, by their status.
func noteCodes(doc, op object, described map[string]bool) {
	for status, r := range op["responses"].(object) {
		if ref, ok := at(r, "$ref").(string); ok {
			r = at(doc, strings.Split(ref[2:], "/")...)
		}
		all, _ := at(r, "content", "application/json", "schema", "allOf").([]any)
		for _, s := range all {
			codes, _ := at(s, "properties", "error", "properties", "code", "enum").([]any)
			for _, c := range codes {
				described[fmt.Sprint(status, " ", c)] = true
			}
		}
	}
}

// Every code of the elections that HTTP can answer with is described, with its status.
func TestCodes(t *testing.T) {
	doc := load(t)
	described := make(map[string]bool)
	for _, op := range operations(doc) {
		noteCodes(doc, op, described)
	}
	for _, m := range electionapi.Meanings {
		if m.Status != 0 && !described[fmt.Sprint(m.Status, " ", m.Code)] {
			t.Errorf("%d %s is not described", m.Status, m.Code)
		}
	}
}

// What the elections answer has the fields that the document describes, all that it
// requires, and no other.
func TestAnswers(t *testing.T) {
	doc := load(t)
	mux := http.NewServeMux()
	for _, r := range electionapi.New(memory.New(), electionapi.Config{}).Routes() {
		mux.Handle(r.Pattern, r.Handler)
	}
	const token = `{"token":"a-token-of-this-test"}`
	for _, c := range []struct{ op, query, body, outcome string }{
		{"GET /v1/elections/{election}", "", "", "vacant"},
		{"POST /v1/elections/{election}/validate", "", token, "vacant"},
		{"POST /v1/elections/{election}/acquire", "", `{"owner":"me","ttl_ms":60000,"token":"a-token-of-this-test","min_fencing":1}`, "acquired"},
		{"POST /v1/elections/{election}/acquire", "", "", "busy"},
		{"GET /v1/elections/{election}", "", "", "held"},
		{"POST /v1/elections/{election}/renew", "", token, "renewed"},
		{"POST /v1/elections/{election}/validate", "", token, "current"},
		{"POST /v1/elections/{election}/validate", "", `{"token":"another-token-of-this-test"}`, "stale"},
		{"POST /v1/elections/{election}/renew", "", `{"token":"another-token-of-this-test"}`, "lost"},
		{"GET /v1/elections/{election}/watch", "?number=0&timeout_ms=1", "", "held"},
		{"POST /v1/elections/{election}/resign", "", `{"token":"a-token-of-this-test","hold_off_ms":60000}`, "released"},
		{"POST /v1/elections/{election}/acquire", "", "{}", "busy"},
		{"POST /v1/elections/{election}/resign", "", token, "not-owner"},
		{"GET /v1/elections/{election}/watch", "?timeout_ms=0", "", "vacant"},
	} {
		method, path, _ := strings.Cut(c.op, " ")
		req := httptest.NewRequestWithContext(t.Context(), method, strings.Replace(path, "{election}", "a%2Fb", 1)+c.query, strings.NewReader(c.body))
		req.Header.Set("Content-Type", "application/json")
		res := httptest.NewRecorder()
		mux.ServeHTTP(res, req)
		var got object
		if err := json.Unmarshal(res.Body.Bytes(), &got); err != nil || res.Code != http.StatusOK || got["outcome"] != c.outcome || got["election"] != "a/b" {
			t.Errorf("%s: %d %s, want %s", c.op, res.Code, res.Body, c.outcome)
			continue
		}
		ref := at(operations(doc)[c.op], "responses", "200", "content", "application/json", "schema", "$ref").(string)
		schema := at(doc, strings.Split(ref[2:], "/")...)
		for name := range got {
			if at(schema, "properties", name) == nil {
				t.Errorf("%s: the field %s is not described", c.op, name)
			}
		}
		for _, name := range at(schema, "required").([]any) {
			if got[name.(string)] == nil {
				t.Errorf("%s: the field %s is missing: %s", c.op, name, res.Body)
			}
		}
		if outcomes := at(schema, "properties", "outcome", "enum").([]any); !slices.Contains(outcomes, any(c.outcome)) {
			t.Errorf("%s: the outcome %s is not described", c.op, c.outcome)
		}
		if c.body != "" {
			var sent object
			_ = json.Unmarshal([]byte(c.body), &sent)
			for name := range sent {
				if at(operations(doc)[c.op], "requestBody", "content", "application/json", "schema", "properties", name) == nil {
					t.Errorf("%s: the field %s of the body is not described", c.op, name)
				}
			}
		}
	}
}
