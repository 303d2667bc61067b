// Package openapi describes the API of the admin listener in an OpenAPI document, which the
// listener serves. It promises that the document has every route and no other; what a handler
// answers is that handler's to keep true.
package openapi

import (
	_ "embed"
	"net/http"
)

// Path is where the document is served.
const Path = "/v1/openapi.json"

//go:embed openapi.json
var document []byte

// Handler serves the document.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
}
