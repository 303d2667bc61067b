package bench

import (
	"math"
	"slices"
)

// A Summary is what rounds amount to.
type Summary struct {
	// Median and the quartiles around it.
	Median, Q1, Q3 float64
	// N is the number of rounds; zero means that nothing was measured.
	N int
}

// Summarize says what values amount to. It leaves them as they are.
func Summarize(values []float64) Summary {
	s := slices.Sorted(slices.Values(values))
	return Summary{Median: Quantile(s, 0.5), Q1: Quantile(s, 0.25), Q3: Quantile(s, 0.75), N: len(s)}
}

// Quantile is the value at q, from 0 to 1, of sorted values, between two of them where
// it falls there; NaN where there are none.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Order is the order in which the targets have their slices in a round: 0 to n-1, and
// backwards in every second round.
func Order(n, round int) []int {
	o := make([]int, n)
	for i := range o {
		o[i] = i
		if round%2 == 1 {
			o[i] = n - 1 - i
		}
	}
	return o
}
