// Package openapi describes the API of the admin listener in an OpenAPI document, which the
// listener serves. It promises that the document has every route and no other; what a handler
// answers is that handler's to keep true.
package openapi

import (
	_ "embed"
	"net/http"
	"time"
)

// Path is where the document is served.
const Path = "/v1/openapi.json"

// writeTimeout is how long a caller may take to read it.
const writeTimeout = 10 * time.Second

//go:embed openapi.json
var document []byte

// Handler serves the document.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
}
