package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
)

// Settings are how a run is made.
type Settings struct {
	// Rounds, and how long a slice is.
	Rounds int
	Slice  time.Duration
	// Progress is told, in a line, what is done; nil means nobody is.
	Progress func(string)
}

// Run measures a scenario on the targets that can take part, the first of which is what
// the others are beside. A scenario that fails ends early and says so in its Failed; the
// error is of ctx alone.
func Run(ctx context.Context, sp *Spec, targets []*Target, o Settings) (bench.Scenario, error) {
	sc := bench.Scenario{
		Name: sp.Name, Title: sp.Title, Wire: sp.Wire, Unit: sp.Unit, Tool: sp.Tool, Open: sp.Open, Clients: sp.Clients,
		LeftOut: map[string]string{}, Histograms: map[string]string{},
	}
	var in []*Target
	for _, t := range targets {
		if why := sp.cannot(t); why != "" {
			sc.LeftOut[t.Name] = why
			continue
		}
		in = append(in, t)
		sc.Targets = append(sc.Targets, t.Name)
	}
	err := run(ctx, sp, in, o, &sc)
	if ctx.Err() != nil {
		return sc, ctx.Err()
	}
	if err != nil {
		sc.Failed = err.Error()
	}
	return sc, nil
}

func run(ctx context.Context, sp *Spec, in []*Target, o Settings, sc *bench.Scenario) error {
	if len(in) == 0 {
		return errors.New("no target can take part")
	}
	tell := func(format string, args ...any) {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf(format, args...))
		}
	}
	rounds := o.Rounds
	if sp.Rounds > 0 {
		rounds = min(rounds, sp.Rounds)
	}
	tell("%s: warming up %d targets", sp.Name, len(in))
	if err := sp.work.prepare(ctx, sp, in, o.Slice); err != nil {
		return err
	}
	sc.Rate = sp.Rate
	all := make([]*bench.Latencies, len(in))
	for round := range rounds {
		for place, i := range bench.Order(len(in), round) {
			out, err := sp.work.slice(ctx, sp, in[i], o.Slice)
			if err != nil {
				return err
			}
			s := out.finish(round, place, in[i].Name)
			sc.Slices = append(sc.Slices, s)
			if out.latencies != nil {
				if all[i] == nil {
					all[i] = bench.NewLatencies()
				}
				all[i].Add(out.latencies)
			}
			tell("%s: round %d of %d, %s: %.0f %s/s", sp.Name, round+1, rounds, in[i].Name, bench.Throughput(&s), sp.Unit)
		}
	}
	for i, l := range all {
		if l == nil {
			continue
		}
		text, err := l.Encode()
		if err != nil {
			return err
		}
		sc.Histograms[in[i].Name] = text
	}
	return nil
}
