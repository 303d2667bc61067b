package bench

import (
	"fmt"
	"slices"
)

// DefaultTolerance is how much worse a ratio may be than in the last report.
const DefaultTolerance = 0.10

// A Regression is a ratio that is worse than it was.
type Regression struct {
	Scenario string
	// Ratio is "a / b", the targets.
	Ratio, Metric string
	Was, Is       Summary
}

// String says it in a line.
func (g Regression) String() string {
	return fmt.Sprintf("%s: %s, %s: was %.3f and is %.3f (quartiles %.3f to %.3f)",
		g.Scenario, g.Metric, g.Ratio, g.Was.Median, g.Is.Median, g.Is.Q1, g.Is.Q3)
}

// A comparedMetric is one whose ratios are compared, and whether more of it is better.
type comparedMetric struct {
	name   string
	of     Metric
	better bool
}

var compared = []comparedMetric{
	{"throughput", Throughput, true},
	{"processor time of the proxy an operation", CPU(Proxy), false},
}

// A Comparison is two reports, side by side.
type Comparison struct {
	// Compared is how many ratios both reports have.
	Compared    int
	Regressions []Regression
}

// Compare finds the ratios of the proxy's own targets that are worse in a new report than
// in an old one: by more than the tolerance at the median, and not explained by the spread
// of the rounds (the better quartile now is worse than the worse one then). Times are not
// compared: machines and days differ. A peer that became faster is none either: what counts
// is worse beside most of the targets of its scenario.
//
// Each of the proxy's own targets is put beside every other target of the scenario, in
// throughput and in the proxy's processor time an operation. Open loops have a given
// throughput, and are left out.
func Compare(old, new *Report, tolerance float64) Comparison {
	var c Comparison
	for i := range new.Scenarios {
		is := &new.Scenarios[i]
		was := old.Scenario(is.Name)
		if was == nil || is.Open || is.Unit != was.Unit {
			continue
		}
		for _, own := range []string{Fenced, Reader} {
			if !slices.Contains(is.Targets, own) {
				continue
			}
			for _, m := range compared {
				n, found := m.beside(was, is, own, tolerance)
				c.Compared += n
				if 2*len(found) > n {
					c.Regressions = append(c.Regressions, found...)
				}
			}
		}
	}
	return c
}

// beside puts one of the proxy's own targets beside every other target of a scenario, and
// returns with how many that could be done and where it is worse.
func (m comparedMetric) beside(was, is *Scenario, own string, tolerance float64) (n int, worse []Regression) {
	for _, other := range is.Targets {
		if other == own || own == Reader && other == Fenced {
			continue
		}
		a, b := Summarize(was.Ratios(m.of, own, other)), Summarize(is.Ratios(m.of, own, other))
		if a.N == 0 || b.N == 0 {
			continue
		}
		n++
		if m.worse(a, b, tolerance) {
			worse = append(worse, Regression{is.Name, own + " / " + other, m.name, a, b})
		}
	}
	return n, worse
}

// Confirm leaves of the regressions those that a second run of their scenarios found too,
// with the second run's numbers: what another process does for some seconds, or where the
// kernel happens to place what runs, looks like a regression in one run.
func (c Comparison) Confirm(again Comparison) Comparison {
	found := make(map[Regression]Regression, len(again.Regressions))
	for _, g := range again.Regressions {
		found[g.key()] = g
	}
	confirmed := Comparison{Compared: c.Compared}
	for _, g := range c.Regressions {
		if g, ok := found[g.key()]; ok {
			confirmed.Regressions = append(confirmed.Regressions, g)
		}
	}
	return confirmed
}

func (g Regression) key() Regression {
	return Regression{Scenario: g.Scenario, Ratio: g.Ratio, Metric: g.Metric}
}

// Scenarios are the names of those with regressions, each once.
func (c Comparison) Scenarios() []string {
	var names []string
	for _, g := range c.Regressions {
		if !slices.Contains(names, g.Scenario) {
			names = append(names, g.Scenario)
		}
	}
	return names
}

func (m comparedMetric) worse(was, is Summary, tolerance float64) bool {
	if m.better {
		return is.Median < was.Median*(1-tolerance) && is.Q3 < was.Q1
	}
	return is.Median > was.Median*(1+tolerance) && is.Q1 > was.Q3
}
