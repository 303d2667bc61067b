package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Plots are the pictures of a report: ratios of throughput and what proxies cost by wire, the latencies of each
// open loop, and the fence's and elections' own.
func (r *Report) Plots() []Plot {
	var plots []Plot
	for _, wire := range r.wires() {
		if all := r.throughputs(wire); len(all) > 0 {
			title := wireTitle(wire) + ": throughput beside direct"
			plots = append(plots, Plot{wire + "-throughput.svg", title,
				bars(title, "x direct (median of pairs; the line across a bar is the quartiles)", 1, all)})
		}
	}
	for _, wire := range r.wires() {
		if all := r.costs(wire, CPU(Proxy), func(sc *Scenario) bool { return sc.Tool == "pgbench" || sc.Tool == "redis-benchmark" }); len(all) > 0 {
			title := wireTitle(wire) + ": processor time of the proxy an operation"
			plots = append(plots, Plot{wire + "-cpu.svg", title, bars(title, "µs (median and quartiles)", 0, all)})
		}
		if all := r.costs(wire, kilobytes(Proxy), func(sc *Scenario) bool { return sc.Unit == Sessions }); len(all) > 0 {
			title := wireTitle(wire) + ": memory of the proxy for an idle session"
			plots = append(plots, Plot{wire + "-memory.svg", title, bars(title, "KB", 0, all)})
		}
	}
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		if cs := latencyCurves(sc); sc.Open && len(cs) > 0 {
			title := fmt.Sprintf("%s, %s operations a second", sc.Title, short(sc.Rate))
			plots = append(plots, Plot{strings.ReplaceAll(sc.Name, "/", "-") + ".svg", title,
				lines(title, percentAxis, axis{label: "µs since the request was due", log: true}, cs)})
		}
	}
	if cs := r.severCurves(); len(cs) > 0 {
		const title = "A takeover: from the new leader's connect to its first applied write"
		plots = append(plots, Plot{"sever.svg", title,
			lines(title, axis{label: "sessions bound to the term before", log: true}, axis{label: "ms", log: true}, cs)})
	}
	if all := r.failoverBars(); len(all) > 0 {
		const title = "Failover: from the leader's end to the next leader's first applied write"
		plots = append(plots, Plot{"failover.svg", title, bars(title, "ms (median and quartiles)", 0, all)})
	}
	return plots
}

func (r *Report) wires() []string {
	var ws []string
	for i := range r.Scenarios {
		if w := r.Scenarios[i].Wire; !slices.Contains(ws, w) {
			ws = append(ws, w)
		}
	}
	return ws
}

func wireTitle(wire string) string {
	switch wire {
	case "postgres":
		return "Postgres"
	case "redis":
		return "Redis"
	}
	return wire
}

// barsOf are a value of all targets that have it but the first, in the scenarios of a wire
// that are wanted.
func (r *Report) barsOf(wire string, wanted func(*Scenario) bool, value func(sc *Scenario, target string) []float64) []bar {
	var all []bar
	for i := range r.Scenarios {
		sc := &r.Scenarios[i]
		if sc.Wire != wire || !wanted(sc) || len(sc.Targets) == 0 {
			continue
		}
		for _, t := range sc.Targets[1:] {
			if s := Summarize(value(sc, t)); s.N > 0 {
				all = append(all, bar{t, colourOf(t), strings.TrimPrefix(sc.Title, wireTitle(wire)+": "), s})
			}
		}
	}
	return all
}

func (r *Report) throughputs(wire string) []bar {
	return r.barsOf(wire, func(sc *Scenario) bool { return !sc.Open && sc.Unit != Sessions },
		func(sc *Scenario, t string) []float64 { return sc.Ratios(Throughput, t, sc.Targets[0]) })
}

func (r *Report) costs(wire string, m Metric, wanted func(*Scenario) bool) []bar {
	return r.barsOf(wire, wanted, func(sc *Scenario, t string) []float64 { return sc.Values(m, t) })
}

// Percentiles of a plot of latencies, as far apart as they are rare.
var (
	plotPercents = []float64{0, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92.5, 95, 97, 98, 99, 99.5, 99.7, 99.9, 99.95, 99.97, 99.99}
	percentAxis  = axis{label: "percent of requests that took no longer", log: true,
		ticks: []float64{1, 10, 100, 1000, 10000}, texts: []string{"0", "90", "99", "99.9", "99.99"}}
)

func latencyCurves(sc *Scenario) []curve {
	var cs []curve
	for _, t := range sc.Targets {
		h, err := DecodeLatencies(sc.Histograms[t])
		if err != nil || h.Count() == 0 {
			continue
		}
		c := curve{label: t, colour: colourOf(t)}
		for _, p := range plotPercents {
			rare := 100 / (100 - p)
			if rare > float64(h.Count()) {
				break
			}
			c.x = append(c.x, rare)
			c.y = append(c.y, max(0.1, float64(h.At(p).Nanoseconds())/1000))
		}
		cs = append(cs, c)
	}
	return cs
}

func (r *Report) severCurves() []curve {
	var cs []curve
	for _, s := range r.Severs {
		m := Summarize(s.Took)
		if m.N == 0 || s.Sessions <= 0 || m.Median <= 0 {
			continue
		}
		i := slices.IndexFunc(cs, func(c curve) bool { return c.label == wireTitle(s.Wire) })
		if i < 0 {
			i = len(cs)
			cs = append(cs, curve{label: wireTitle(s.Wire), colour: colours[i%len(colours)]})
		}
		cs[i].x = append(cs[i].x, float64(s.Sessions))
		cs[i].y = append(cs[i].y, m.Median)
	}
	return cs
}

func (r *Report) failoverBars() []bar {
	var all []bar
	for _, f := range r.Failovers {
		m := Summarize(f.Took)
		if m.N == 0 || math.IsNaN(m.Median) {
			continue
		}
		group, colour := fmt.Sprintf("killed, lease of %s ms", short(f.TTL)), colours[1]
		if f.Graceful {
			group, colour = fmt.Sprintf("resigned, lease of %s ms", short(f.TTL)), colours[2]
		}
		all = append(all, bar{f.Backend + ", " + wireTitle(f.Wire), colour, group, m})
	}
	return all
}
