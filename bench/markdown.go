package bench

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Markdown is the report for people, with the plots that lie beside it.
func (r *Report) Markdown(plots []Plot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmark %s, %s\n\n", r.Name, r.Started.UTC().Format("2006-01-02 15:04 MST"))
	b.WriteString("Made by `fenceproxy bench`; the numbers are in `" + ReportFile + "`. Ratios are medians of pairs of slices of the same round, with their quartiles; " +
		"times are of this machine on this day alone. The method is described in package bench.\n\n")
	r.writeMachine(&b)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n")
	}
	if r.Scenarios != nil {
		r.writeGoals(&b)
	}
	for _, p := range plots {
		fmt.Fprintf(&b, "![%s](%s)\n\n", p.Title, p.File)
	}
	for i := range r.Scenarios {
		r.Scenarios[i].write(&b)
	}
	r.writeOwn(&b)
	return b.String()
}

func (r *Report) writeMachine(b *strings.Builder) {
	m := r.Machine
	b.WriteString("| | |\n|---|---|\n")
	row := func(k, v string) {
		if v != "" {
			fmt.Fprintf(b, "| %s | %s |\n", k, cell(v))
		}
	}
	row("machine", fmt.Sprintf("%s, %d cores, %.1f GB, %s", m.CPU, m.Cores, float64(m.Memory)/(1<<30), m.Arch))
	row("system", strings.TrimSpace(m.System+", Linux "+m.Kernel))
	row("load before", fmt.Sprintf("%.2f", m.LoadBefore))
	row("took", r.Ended.Sub(r.Started).Round(time.Second).String())
	row("Go", m.Go)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		row(name, r.Versions[name])
	}
	b.WriteString("\n")
}

func (r *Report) writeGoals(b *strings.Builder) {
	b.WriteString("## Targets\n\n| measure | scenario | target | measured | |\n|---|---|---|---|---|\n")
	for _, row := range r.Rows() {
		bound := fmt.Sprintf("at least %s %s", short(row.Goal.AtLeast), row.Goal.Text)
		if math.IsNaN(row.Goal.AtLeast) {
			bound = fmt.Sprintf("at most %s %s", short(row.Goal.AtMost), row.Goal.Text)
		}
		measured, verdict := "-", "not measured"
		if row.Measured() {
			measured, verdict = spread(row.Value.Summary), "**not met**"
			if sc := r.Scenario(row.Scenario); sc != nil && sc.Profile != nil {
				verdict = fmt.Sprintf("[**not met**](#%s)", sc.whyID())
			}
			if row.Met() {
				verdict = "met"
			}
		}
		if row.Value.Text != "" {
			measured = row.Value.Text
		}
		scenario := row.Scenario
		if scenario == "" {
			scenario = row.Goal.Where
		}
		fmt.Fprintf(b, "| %s | `%s` | %s | %s | %s |\n", row.Goal.Title, scenario, bound, measured, verdict)
	}
	b.WriteString("\n")
}

func (sc *Scenario) write(b *strings.Builder) {
	fmt.Fprintf(b, "## %s\n\n`%s`, by %s", sc.Title, sc.Name, sc.Tool)
	if sc.Open {
		fmt.Fprintf(b, ", open loop at %s %s a second", short(sc.Rate), sc.Unit)
	}
	b.WriteString(".\n\n")
	if sc.Failed != "" {
		fmt.Fprintf(b, "**Ended early:** %s\n\n", sc.Failed)
	}
	cols := sc.columns()
	head, rule := "| |", "|---|"
	for _, c := range cols {
		head, rule = head+" "+c.title+" |", rule+"---|"
	}
	fmt.Fprintf(b, "%s\n%s\n", head, rule)
	for _, t := range sc.Targets {
		fmt.Fprintf(b, "| %s |", t)
		for _, c := range cols {
			fmt.Fprintf(b, " %s |", c.text(t))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, t := range slices.Sorted(maps.Keys(sc.LeftOut)) {
		fmt.Fprintf(b, "Without %s: %s.\n\n", t, sc.LeftOut[t])
	}
	sc.writeWhy(b)
}

// A column of a scenario's table.
type column struct {
	title string
	text  func(target string) string
}

// columns are those for which some target has a value.
func (sc *Scenario) columns() []column {
	if len(sc.Targets) == 0 {
		return nil
	}
	base := sc.Targets[0]
	value := func(title string, m Metric) column {
		return column{title, func(t string) string { return short(Summarize(sc.Values(m, t)).Median) }}
	}
	beside := func(m Metric, other string) column {
		return column{"x " + other, func(t string) string {
			if t == other {
				return "1"
			}
			return spread(Summarize(sc.Ratios(m, t, other)))
		}}
	}
	var all []column
	switch {
	case sc.Unit == Bytes:
		all = append(all, column{"MB/s", func(t string) string {
			return short(Summarize(sc.Values(Throughput, t)).Median / 1e6)
		}})
	case sc.Open || sc.Unit == Sessions:
	default:
		all = append(all, value(sc.Unit+"/s", Throughput))
	}
	if !sc.Open && sc.Unit != Sessions {
		all = append(all, beside(Throughput, base))
		if slices.Contains(sc.Targets, PgBouncerSession) {
			all = append(all, beside(Throughput, PgBouncerSession))
		}
		if slices.Contains(sc.Targets, HAProxy) {
			all = append(all, beside(Throughput, HAProxy))
		}
	}
	all = append(all, value("p50 µs", P50), value("p99 µs", P99))
	if sc.Open {
		all = append(all,
			column{"p50 more than " + base, func(t string) string { return spread(Summarize(sc.Differences(P50, t, base))) }},
			column{"p99 more than " + base, func(t string) string { return spread(Summarize(sc.Differences(P99, t, base))) }})
	}
	per := "op"
	if sc.Unit == Bytes {
		per = "MB"
	}
	for _, p := range []string{Proxy, Server, Load} {
		all = append(all, column{p + " CPU µs/" + per, func(t string) string {
			v := Summarize(sc.Values(CPU(p), t)).Median
			if sc.Unit == Bytes {
				v *= 1e6
			}
			return short(v)
		}})
	}
	for _, p := range []string{Proxy, Server} {
		all = append(all, value(p+" KB/session", kilobytes(p)))
	}
	return slices.DeleteFunc(all, func(c column) bool {
		return !slices.ContainsFunc(sc.Targets, func(t string) bool { s := c.text(t); return s != "-" && s != "1" })
	})
}

// writeOwn writes what elections and the fence cost.
func (r *Report) writeOwn(b *strings.Builder) {
	if len(r.Calls) > 0 {
		b.WriteString("## Calls of the election backends\n\n| backend | call | p50 µs | p99 µs | max µs | calls |\n|---|---|---|---|---|---|\n")
		for _, c := range r.Calls {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %d |\n", c.Backend, c.Call, short(c.Latency.P50), short(c.Latency.P99), short(c.Latency.Max), c.Latency.Count)
		}
		b.WriteString("\n")
	}
	if len(r.Failovers) > 0 {
		b.WriteString("## Failover\n\nFrom the leader's end to the next leader's first applied write.\n\n| backend | wire | the leader | lease ms | took ms, median | quartiles | rounds | target | |\n|---|---|---|---|---|---|---|---|---|\n")
		for _, f := range r.Failovers {
			s, how, verdict := Summarize(f.Took), "was killed", "**not met**"
			if f.Graceful {
				how = "resigned"
			}
			if f.Met() {
				verdict = "met"
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s to %s | %d | at most %s | %s |\n",
				f.Backend, f.Wire, how, short(f.TTL), short(s.Median), short(s.Q1), short(s.Q3), s.N, short(f.AtMost()), verdict)
		}
		b.WriteString("\n")
	}
	if len(r.Severs) > 0 {
		b.WriteString("## Takeover by sessions bound before\n\nFrom the new leader's connect to its first applied write.\n\n| wire | sessions | took ms, median | quartiles | rounds |\n|---|---|---|---|---|\n")
		for _, v := range r.Severs {
			s := Summarize(v.Took)
			fmt.Fprintf(b, "| %s | %d | %s | %s to %s | %d |\n", v.Wire, v.Sessions, short(s.Median), short(s.Q1), short(s.Q3), s.N)
		}
		b.WriteString("\n")
	}
	if len(r.Refreshes) > 0 {
		b.WriteString("## Refresh of permits\n\nCalls of the election backend, as its server counts them, while sessions of one token are held. The sessions of a proxy share its guard's calls; " +
			"several proxies share none.\n\n| sessions of one token | proxies | seconds | calls | each proxy, one every | target | |\n|---|---|---|---|---|---|---|\n")
		for _, f := range r.Refreshes {
			every, verdict := "-", "**not met**"
			if f.Calls > 0 {
				every = short(f.Seconds*float64(f.Proxies)/f.Calls) + " s"
			}
			if f.Met() {
				verdict = "met"
			}
			fmt.Fprintf(b, "| %d | %d | %s | %s | %s (set: %s s) | at most %s | %s |\n",
				f.Sessions, f.Proxies, short(f.Seconds), short(f.Calls), every, short(f.Every), short(f.AtMost()), verdict)
		}
		b.WriteString("\n")
	}
}

// spread is a median with its quartiles.
func spread(s Summary) string {
	switch {
	case s.N == 0 || math.IsNaN(s.Median):
		return "-"
	case s.N == 1:
		return ratioText(s.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", ratioText(s.Median), ratioText(s.Q1), ratioText(s.Q3))
}

// ratioText writes a ratio with enough digits to tell 0.99 from 1.
func ratioText(v float64) string {
	if math.Abs(v) < 10 {
		return fmt.Sprintf("%.3f", v)
	}
	return short(v)
}

// cell keeps a text within a cell of a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|")
}
