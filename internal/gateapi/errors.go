package gateapi

import (
	"errors"
	"net/http"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/admin"
)

// codes are the stable codes of what a gate refuses, and their statuses.
var codes = map[guard.Reason]struct {
	code   string
	status int
}{
	guard.InvalidCredential: {"invalid-token", http.StatusBadRequest},
	guard.InvalidPartition:  {"invalid-partition", http.StatusBadRequest},
	guard.Stale:             {"stale", http.StatusConflict},
	guard.LeaseVacant:       {"vacant", http.StatusConflict},
	guard.Occupied:          {"occupied", http.StatusConflict},
	guard.FenceRegressed:    {"regressed", http.StatusConflict},
	guard.FenceConflict:     {"conflict", http.StatusConflict},
	guard.BindingLost:       {"binding-lost", http.StatusConflict},
	guard.TooMany:           {"too-many", http.StatusServiceUnavailable},
	guard.BackendUnknown:    {"unavailable", http.StatusServiceUnavailable},
}

// Codes are the codes of refusals with their statuses.
func Codes() map[string]int {
	m := make(map[string]int)
	for _, c := range codes {
		m[c.code] = c.status
	}
	m[invalidArgument] = http.StatusBadRequest
	return m
}

// invalidArgument is the code of what is refused before a gate is asked.
const invalidArgument = "invalid-argument"

func invalid(message string) *admin.Error {
	return &admin.Error{Code: invalidArgument, Message: message}
}

// hint says what a consumer is to do. The guard's own hints are for sessions that write.
func hint(r *guard.Refusal) string {
	switch r.Reason {
	case guard.Stale:
		return hintStop
	case guard.LeaseVacant:
		return hintStop + " If the lease is live, the gate asks another election backend than the one it was acquired on."
	case guard.BackendUnknown:
		return "Do not work on the partition; bind again when the proxy reaches the election backend."
	}
	return r.Hint()
}

const hintStop = "Stop working on the partition; acquire the election again, and bind with the new token."

// errorOf is a refusal as an answer. What lies beneath it is for the log: it may name what
// is not the caller's business.
func errorOf(err error) *admin.Error {
	var r *guard.Refusal
	if !errors.As(err, &r) {
		return &admin.Error{Status: http.StatusServiceUnavailable, Code: "unavailable", Message: "the gate is closing"}
	}
	e := &admin.Error{Status: http.StatusInternalServerError, Code: "internal", Message: r.Message(), Hint: hint(r), Fields: map[string]any{}}
	if c, ok := codes[r.Reason]; ok {
		e.Code, e.Status = c.code, c.status
	}
	if r.Leader != "" {
		e.Message += `, held by "` + r.Leader + `"`
		e.Fields["owner"] = r.Leader
	}
	if r.Detail != "" {
		e.Message += ": " + r.Detail
	}
	if r.Election != "" {
		e.Fields["election"] = r.Election
	}
	if r.Held != 0 {
		e.Fields["held"] = r.Held
	}
	if r.Rules != 0 {
		e.Fields["number"] = r.Rules
	}
	return e
}
