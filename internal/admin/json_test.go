package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What is wrong with a body is said in words, and without its values.
func TestBadJSON(t *testing.T) {
	for body, want := range map[string]string{
		`{"ttl_ms": "secret"}`:           "the field ttl_ms must be a whole number",
		`{"ttl_ms": 1.5}`:                "the field ttl_ms must be a whole number",
		`{"token": 1}`:                   "the field token must be a text",
		`{"token": "secret", "TOKEN":1}`: "the field token must be a text",
		`{"ttl_ms": 1, "ttl_ms": 2}`:     "the body has a field twice",
	} {
		var v struct {
			Token string `json:"token"`
			TTL   *int64 `json:"ttl_ms"`
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if e := readJSON(httptest.NewRecorder(), r, &v); e == nil || !strings.EqualFold(e.Message, want) {
			t.Errorf("%s: %+v", body, e)
		}
	}
}
