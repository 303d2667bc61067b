package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/bench/rig"
	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
)

// ElectionOptions say what is measured of elections.
type ElectionOptions struct {
	// Backends are some of rig.BackendNames. Kube is StartBackend's.
	Backends []string
	Kube     string
	// Calls is how often each call is made.
	Calls int
	// Failovers are the backends and wires of which failover is measured, with leases of TTLs:
	// zero means the default.
	Failovers []string
	Wires     []string
	TTLs      []time.Duration
	// Self is the path of fenceproxy, Templates rig.Options'.
	Self, Templates string
}

// Elections measures the calls of election backends, and failover.
func Elections(ctx context.Context, o Options, e ElectionOptions) (*bench.Report, error) {
	report := NewReport(o.Name)
	if err := calls(ctx, o, e, report); err != nil {
		return nil, err
	}
	for _, name := range e.Failovers {
		for _, wire := range e.Wires {
			if err := failovers(ctx, o, e, name, wire, report); err != nil {
				return nil, fmt.Errorf("failover, %s, %s: %w", name, wire, err)
			}
		}
	}
	return finish(report)
}

// callNames are in the order in which they are made.
var callNames = []string{"acquire", "renew", "validate", "status", "resign"}

// calls measures each call of each backend, by turns: one term of each backend after the
// other's.
func calls(ctx context.Context, o Options, e ElectionOptions, report *bench.Report) error {
	var all []election.Backend
	for _, name := range e.Backends {
		o.tell("starting %s", name)
		s, err := rig.StartBackend(ctx, name, e.Kube)
		if err != nil {
			return fmt.Errorf("election backend %s: %w", name, err)
		}
		defer s.Stop()
		if s.Version != "" {
			report.Versions[name] = s.Version
		}
		b, err := open.Backend(ctx, s.URL, open.Options{})
		if err != nil {
			return err
		}
		defer b.Close()
		all = append(all, b)
	}
	took := make([]map[string]*bench.Latencies, len(all))
	for i := range took {
		took[i] = map[string]*bench.Latencies{}
		for _, c := range callNames {
			took[i][c] = bench.NewLatencies()
		}
	}
	const warm = 5
	for n := range e.Calls + warm {
		for _, i := range bench.Order(len(all), n) {
			into := took[i]
			if n < warm {
				into = nil
			}
			if err := oneTerm(ctx, all[i], into); err != nil {
				return fmt.Errorf("election backend %s: %w", e.Backends[i], err)
			}
		}
	}
	for i, name := range e.Backends {
		for _, c := range callNames {
			if l := took[i][c].Latency(); l != nil {
				report.Calls = append(report.Calls, bench.Call{Backend: name, Call: c, Latency: *l})
				o.tell("%s %s: p50 %.0f µs", name, c, l.P50)
			}
		}
	}
	return nil
}

var errOutcome = errors.New("another outcome than that of a lone candidate")

// oneTerm makes each call once, and counts it where into is not nil.
func oneTerm(ctx context.Context, b election.Backend, into map[string]*bench.Latencies) error {
	var g election.AcquireResult
	for _, name := range callNames {
		start := time.Now()
		ok, err := oneCall(ctx, b, name, &g)
		took := time.Since(start)
		if err == nil && !ok {
			err = errOutcome
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if into != nil {
			into[name].Record(took)
		}
	}
	return nil
}

// oneCall makes a call and reports whether its outcome is that of a lone candidate.
func oneCall(ctx context.Context, b election.Backend, name string, g *election.AcquireResult) (ok bool, err error) {
	switch name {
	case "acquire":
		*g, err = b.Acquire(ctx, rig.Election, election.AcquireOptions{Owner: "bench", TTL: time.Minute})
		return g.Status == election.Acquired, err
	case "renew":
		r, err := b.Renew(ctx, rig.Election, g.Token)
		return r.Status == election.Renewed, err
	case "validate":
		r, err := b.Validate(ctx, rig.Election, g.Token)
		return r.Standing == election.StandingCurrent, err
	case "status":
		r, err := b.Status(ctx, rig.Election)
		return r.Status == election.Held, err
	}
	r, err := b.Resign(ctx, rig.Election, g.Token, election.ResignOptions{})
	return r.Status == election.Released, err
}
