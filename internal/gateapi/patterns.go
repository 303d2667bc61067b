package gateapi

import "slices"

// Patterns are the API's routes, as http.ServeMux reads them.
func Patterns() []string {
	var patterns []string
	for p := range new(API).routes() {
		patterns = append(patterns, p)
	}
	slices.Sort(patterns)
	return patterns
}
