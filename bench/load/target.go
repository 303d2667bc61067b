// Package load makes load on servers and proxies and measures what they do with it: the
// targets and scenarios of package bench.
//
// It promises that a target that is to be fenced is bound before it is measured, and that
// an operation that failed fails its scenario: no error counts as work done. It writes
// into a server only what Prepare made there.
package load

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/election"
)

// The wires.
const (
	Postgres = "postgres"
	Redis    = "redis"
)

// A Target is one way to a server.
type Target struct {
	// Name is that of the report.
	Name string
	// URL is postgres://… or redis://…, without a token.
	URL string
	// Election and Token are what sessions present; the zero Token means none.
	Election string
	Token    election.Token
	// Cannot says why the target cannot take part in scenarios that need something.
	Cannot map[Need]string
	// Processes are those whose processor time and memory count, by bench.Server and
	// bench.Proxy: the ids of their first processes.
	Processes map[string]int
}

// A Need is something that not every target can do.
type Need string

// What scenarios need.
const (
	Writes   Need = "writes"
	Prepared Need = "prepared statements"
	Blocking Need = "blocking commands, notifications"
)

// Fenced reports whether sessions of the target present a token.
func (t *Target) Fenced() bool { return !t.Token.IsZero() }

// A Spec is a scenario that can be run.
type Spec struct {
	// Name, Title, Wire, Unit, Tool, Clients and Open are as in bench.Scenario.
	Name, Title, Wire, Unit, Tool string
	Clients                       int
	Open                          bool
	// Rate is that of an open loop, operations a second; zero means half of what the
	// slowest target does in a closed loop.
	Rate  float64
	Needs []Need
	// Rounds is how many rounds it has at most; zero means as many as the run has.
	Rounds int

	work work
}

// work is how a scenario's slices are made.
type work interface {
	// prepare is called once before the first round, and warms all targets up.
	prepare(ctx context.Context, sp *Spec, targets []*Target, slice time.Duration) error
	// slice runs one slice.
	slice(ctx context.Context, sp *Spec, t *Target, d time.Duration) (outcome, error)
}

// An outcome is what a slice did.
type outcome struct {
	seconds, operations float64
	all                 float64          // operations with those that do not count; zero means that all do
	latencies           *bench.Latencies // nil where the tool tells none
	latency             *bench.Latency   // of a tool that tells some numbers only
	unsent              int64
	cpu                 map[string]float64 // nil means that the runner measures it
	memory              map[string]float64
}

// cannot says why a target cannot take part, empty where it can.
func (sp *Spec) cannot(t *Target) string {
	for _, n := range sp.Needs {
		if why := t.Cannot[n]; why != "" {
			return why
		}
	}
	return ""
}

// A refused error is a server's own.
type refusedError struct{ text string }

// Error is the server's text.
func (e *refusedError) Error() string { return fmt.Sprintf("the server answered: %s", e.text) }
