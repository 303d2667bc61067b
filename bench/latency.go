package bench

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range of latencies that are told apart, to three digits. A longer one counts as
// the longest.
const (
	shortest = 100 * time.Nanosecond
	longest  = 5 * time.Minute
)

// Latencies counts latencies. It is for one goroutine; Add joins those of several.
type Latencies struct{ h *hdrhistogram.Histogram }

// NewLatencies counts none yet.
func NewLatencies() *Latencies {
	return &Latencies{hdrhistogram.New(int64(shortest), int64(longest), 3)}
}

// Record counts one.
func (l *Latencies) Record(d time.Duration) { l.RecordN(d, 1) }

// RecordN counts n alike.
func (l *Latencies) RecordN(d time.Duration, n int64) {
	if n > 0 {
		// Within the range there is no error.
		_ = l.h.RecordValues(int64(min(max(d, 0), longest)), n)
	}
}

// Add counts those of another, too.
func (l *Latencies) Add(o *Latencies) { l.h.Merge(o.h) }

// Count is how many there are.
func (l *Latencies) Count() int64 { return l.h.TotalCount() }

// At is the latency that so many percent do not exceed.
func (l *Latencies) At(percent float64) time.Duration {
	return time.Duration(l.h.ValueAtPercentile(percent))
}

// Encode is the histogram in the compressed form, V2, that all HdrHistogram libraries read.
func (l *Latencies) Encode() (string, error) {
	b, err := l.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	return string(b), err
}

// DecodeLatencies reads what Encode wrote.
func DecodeLatencies(s string) (*Latencies, error) {
	h, err := hdrhistogram.Decode([]byte(s))
	if err != nil {
		return nil, fmt.Errorf("reading a histogram: %w", err)
	}
	return &Latencies{h}, nil
}

// Latency is a slice's latencies in microseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// Latency sums l up; nil where there are none.
func (l *Latencies) Latency() *Latency {
	if l == nil || l.Count() == 0 {
		return nil
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	return &Latency{
		Count: l.Count(), Mean: l.h.Mean() / 1000,
		P50: us(l.At(50)), P90: us(l.At(90)), P99: us(l.At(99)), P999: us(l.At(99.9)), Max: us(l.At(100)),
	}
}
