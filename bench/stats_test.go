package bench

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		q    float64
		want float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{1, 2}, 0.5, 1.5},
		{[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{1, 2, 3, 4}, 0.25, 1.75},
		{[]float64{1, 2, 3, 4}, 1, 4},
		{[]float64{1, 2, 3, 4}, 0, 1},
	} {
		if got := Quantile(c.of, c.q); got != c.want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", c.of, c.q, got, c.want)
		}
	}
	if !math.IsNaN(Quantile(nil, 0.5)) {
		t.Error("there is a median of nothing")
	}
}

func TestSummarize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vs := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 1, 50).Draw(t, "values")
		before := slices.Clone(vs)
		s := Summarize(vs)
		if s.N != len(vs) || s.Q1 > s.Median || s.Median > s.Q3 || s.Q1 < slices.Min(vs) || s.Q3 > slices.Max(vs) {
			t.Fatalf("%+v of %v", s, vs)
		}
		if !slices.Equal(vs, before) {
			t.Fatal("the values were sorted in place")
		}
	})
}

// Over any two rounds each target stands, in all, at the same place: what drifts falls on
// all alike.
func TestOrderIsFair(t *testing.T) {
	for n := 1; n < 9; n++ {
		places := make([]int, n)
		for round := range 2 {
			o := Order(n, round)
			if s := slices.Sorted(slices.Values(o)); s[0] != 0 || s[n-1] != n-1 || len(slices.Compact(s)) != n {
				t.Fatalf("round %d of %d: %v", round, n, o)
			}
			for place, i := range o {
				places[i] += place
			}
		}
		for _, p := range places {
			if p != n-1 {
				t.Errorf("%d targets: places %v", n, places)
			}
		}
	}
}

func TestLatencies(t *testing.T) {
	l := NewLatencies()
	if l.Latency() != nil {
		t.Error("there are latencies of nothing")
	}
	for i := 1; i <= 1000; i++ {
		l.Record(time.Duration(i) * time.Microsecond)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/500 {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	s := l.Latency()
	near("count", float64(s.Count), 1000)
	near("mean", s.Mean, 500.5)
	near("p50", s.P50, 500)
	near("p90", s.P90, 900)
	near("p99", s.P99, 990)
	near("p99.9", s.P999, 999)
	near("max", s.Max, 1000)

	text, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeLatencies(text)
	if err != nil {
		t.Fatal(err)
	}
	if *back.Latency() != *s {
		t.Errorf("written and read again: %+v, was %+v", back.Latency(), s)
	}
	o := NewLatencies()
	o.RecordN(-time.Second, 1)   // a clock that is not monotonic
	o.RecordN(24*time.Hour, 999) // longer than is told apart
	back.Add(o)
	if back.Count() != 2000 || back.At(100) < 4*time.Minute || back.At(0) > 100*time.Nanosecond {
		t.Errorf("%d from %v to %v", back.Count(), back.At(0), back.At(100))
	}
	if _, err := DecodeLatencies("nonsense"); err == nil {
		t.Error("nonsense was read")
	}
}
