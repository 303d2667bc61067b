package bench

import (
	"fmt"
	"math"
	"path"
	"slices"
)

// A Goal is something that the proxy is meant to reach.
type Goal struct {
	// Title says what is measured, and where: a pattern of scenarios' names, as package
	// path has them.
	Title, Where string
	// AtLeast is the lowest value that reaches it, AtMost the highest; NaN where there is
	// no such bound.
	AtLeast, AtMost float64
	// Text has the value in words: "x pgbouncer-session".
	Text string

	value func(*Scenario) Value
}

// A Row is a goal at one scenario.
type Row struct {
	Goal     Goal
	Scenario string // empty where nothing was measured
	Value    Value
}

// A Value is what was measured of a goal.
type Value struct {
	Summary
	// Text says what there is where that is no number to hold beside the goal's.
	Text string
	// Better says that it is met all the same.
	Better bool
}

// Measured reports whether there is a value.
func (r Row) Measured() bool { return r.Value.Better || r.Value.N > 0 && !math.IsNaN(r.Value.Median) }

// Met reports whether the median reaches the goal.
func (r Row) Met() bool {
	return r.Measured() && (r.Value.Better || !(r.Value.Median < r.Goal.AtLeast) && !(r.Value.Median > r.Goal.AtMost))
}

// ratio is the value of a's metric beside b's.
func ratio(m Metric, a, b string) func(*Scenario) Value {
	return func(sc *Scenario) Value { return Value{Summary: Summarize(sc.Ratios(m, a, b))} }
}

// added is what a adds to direct's latency, beside what b adds: the ratio of the medians
// of the differences by round. The quartiles are not known. Where b adds nothing, which is
// noise, there is no ratio: a is as good where it adds nothing either, or less than b, and
// the differences are shown.
func added(m Metric, a, b string) func(*Scenario) Value {
	return func(sc *Scenario) Value {
		da := Summarize(sc.Differences(m, a, Direct))
		db := Summarize(sc.Differences(m, b, Direct))
		if da.N == 0 || db.N == 0 {
			return Value{}
		}
		if db.Median <= 0 {
			return Value{
				Text:   fmt.Sprintf("%s adds %s µs, %s %s µs", a, short(da.Median), b, short(db.Median)),
				Better: da.Median <= max(0, db.Median),
			}
		}
		v := da.Median / db.Median
		return Value{Summary: Summary{Median: v, Q1: v, Q3: v, N: min(da.N, db.N)}}
	}
}

// of is the value of a's metric.
func of(m Metric, a string) func(*Scenario) Value {
	return func(sc *Scenario) Value { return Value{Summary: Summarize(sc.Values(m, a))} }
}

// Goals are what the proxy is meant to reach.
func Goals() []Goal {
	nan := math.NaN()
	least := func(title, where string, v float64, text string, value func(*Scenario) Value) Goal {
		return Goal{title, where, v, nan, text, value}
	}
	most := func(title, where string, v float64, text string, value func(*Scenario) Value) Goal {
		return Goal{title, where, nan, v, text, value}
	}
	const pgbench, redis = "postgres/pgbench-*/prepared/*", "redis/benchmark-*/*/*"
	return []Goal{
		least("Postgres throughput, bound session", pgbench, 1, "x "+PgBouncerSession, ratio(Throughput, Fenced, PgBouncerSession)),
		most("Postgres processor time of the proxy a transaction", pgbench, 1.1, "x "+PgBouncerSession, ratio(CPU(Proxy), Fenced, PgBouncerSession)),
		least("Postgres throughput, fenced beside the fence off", pgbench, 0.99, "x "+Reader, ratio(Throughput, Fenced, Reader)),
		least("Redis throughput, bound session", redis, 0.95, "x "+HAProxy, ratio(Throughput, Fenced, HAProxy)),
		least("Redis throughput, bound session", redis, 1, "x "+Twemproxy, ratio(Throughput, Fenced, Twemproxy)),
		most("Added latency at one client, p50", "*/reads/open/1", 1.1, "x "+HAProxy+"'s", added(P50, Fenced, HAProxy)),
		most("Added latency at one client, p99", "*/reads/open/1", 1.1, "x "+HAProxy+"'s", added(P99, Fenced, HAProxy)),
		most("Added latency at one client, p50", "*/writes/open/1", 1.1, "x "+HAProxy+"'s", added(P50, Fenced, HAProxy)),
		most("Added latency at one client, p99", "*/writes/open/1", 1.1, "x "+HAProxy+"'s", added(P99, Fenced, HAProxy)),
		least("COPY and large results", "postgres/copy-*/closed/*", 0.9, "x "+Direct, ratio(Throughput, Fenced, Direct)),
		least("COPY and large results", "*/large/closed/*", 0.9, "x "+Direct, ratio(Throughput, Fenced, Direct)),
		most("Memory of an idle session", "*/idle/*", 20, "KB", of(kilobytes(Proxy), Fenced)),
	}
}

// at is the goal at a scenario, without a value where it is not about that.
func (g Goal) at(sc *Scenario) Row {
	if ok, err := path.Match(g.Where, sc.Name); err != nil || !ok {
		return Row{Goal: g}
	}
	return Row{g, sc.Name, g.value(sc)}
}

// Missed reports whether a goal is measured at the scenario and not met.
func (sc *Scenario) Missed() bool {
	return slices.ContainsFunc(Goals(), func(g Goal) bool { row := g.at(sc); return row.Measured() && !row.Met() })
}

// Rows are the goals at every scenario that each is about. A goal without one has one row,
// which is not measured.
func (r *Report) Rows() []Row {
	var rows []Row
	for _, g := range Goals() {
		before := len(rows)
		for i := range r.Scenarios {
			if row := g.at(&r.Scenarios[i]); row.Measured() || row.Value.Text != "" {
				rows = append(rows, row)
			}
		}
		if len(rows) == before {
			rows = append(rows, Row{Goal: g})
		}
	}
	return rows
}

// AtMost is how many calls of the election backend there are meant to be: one a refresh and
// proxy, however many sessions there are. Where the first is due is chance, so that there may be
// one more.
func (f Refresh) AtMost() float64 {
	return float64(f.Proxies) * (math.Floor(f.Seconds/f.Every) + 1)
}

// Met reports whether there were as few as there are meant to be, and some: permits that
// nobody asks for run out.
func (f Refresh) Met() bool { return f.Calls > 0 && f.Calls <= f.AtMost() }

// AtMost is how long a failover is meant to take at the median, in milliseconds: the lease
// and a quarter of a second, or after a resignation a twentieth.
func (f Failover) AtMost() float64 {
	if f.Graceful {
		return 50
	}
	return f.TTL + 250
}

// Met reports whether the median is as it is meant to be.
func (f Failover) Met() bool { return len(f.Took) > 0 && Summarize(f.Took).Median <= f.AtMost() }
