package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"
)

// Schema is the version of the JSON of a Report.
const Schema = 1

// Names of targets that reports give a meaning to; the others are their user's own.
const (
	Direct           = "direct"
	Fenced           = "fenceproxy"        // a bound session
	Reader           = "fenceproxy-reader" // the same proxy, a session without a token
	PgBouncerSession = "pgbouncer-session"
	PgBouncerTx      = "pgbouncer-transaction"
	HAProxy          = "haproxy"
	Twemproxy        = "twemproxy"
)

// Processes whose processor time and memory are measured.
const (
	Server = "server" // with all its children
	Proxy  = "proxy"  // the target's own; none when direct
	Load   = "load"   // who made the load
)

// Sessions is the unit of a scenario whose sessions do nothing, and Bytes that of one that
// moves much.
const (
	Sessions = "sessions"
	Bytes    = "bytes"
)

// A Report is what one run measured, in full.
type Report struct {
	Schema  int       `json:"schema"`
	Name    string    `json:"name"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	Machine Machine   `json:"machine"`
	// Versions are the programs' own words about themselves.
	Versions map[string]string `json:"versions"`
	// Notes are what a reader has to know about the run.
	Notes     []string   `json:"notes,omitempty"`
	Scenarios []Scenario `json:"scenarios,omitempty"`
	Calls     []Call     `json:"calls,omitempty"`
	Failovers []Failover `json:"failovers,omitempty"`
	Severs    []Sever    `json:"severs,omitempty"`
	Refreshes []Refresh  `json:"refreshes,omitempty"`
}

// A Scenario is one kind of load on all targets.
type Scenario struct {
	// Name tells it from all others of the run: wire/load/variant.
	Name  string `json:"name"`
	Title string `json:"title"`
	Wire  string `json:"wire"`
	// Unit is what is counted: operations, bytes, connections.
	Unit string `json:"unit"`
	// Tool made the load: pgbench, redis-benchmark or fenceproxy.
	Tool string `json:"tool"`
	// Open says that the loop is open, at Rate operations a second, all connections together.
	Open    bool    `json:"open,omitempty"`
	Rate    float64 `json:"rate,omitempty"`
	Clients int     `json:"clients"`
	// Targets in the order of even rounds; the first is what ratios are to, if nothing else
	// is said.
	Targets []string `json:"targets"`
	// LeftOut says why targets of the run are not in it.
	LeftOut map[string]string `json:"left_out,omitempty"`
	// Failed says why the scenario ended early; empty when it did not.
	Failed string  `json:"failed,omitempty"`
	Slices []Slice `json:"slices"`
	// Profile says where the proxy's time goes, where a goal is not met.
	Profile *Profile `json:"profile,omitempty"`
	// Histograms are all latencies of a target, as Latencies.Encode writes them.
	Histograms map[string]string `json:"histograms,omitempty"`
}

// A Slice is one target's part of one round.
type Slice struct {
	Round  int    `json:"round"`
	Place  int    `json:"place"` // in the round
	Target string `json:"target"`
	// Seconds measured, and the Operations (or bytes) done in them.
	Seconds    float64  `json:"seconds"`
	Operations float64  `json:"operations"`
	Latency    *Latency `json:"latency_us,omitempty"`
	// Unsent is how many requests of an open loop were due and not sent by the end.
	Unsent int64 `json:"unsent,omitempty"`
	// CPU is processor time in seconds, by process.
	CPU map[string]float64 `json:"cpu_s,omitempty"`
	// Memory is bytes a connection, by process.
	Memory map[string]float64 `json:"memory,omitempty"`
}

// A Call is one call of an election backend.
type Call struct {
	Backend string  `json:"backend"`
	Call    string  `json:"call"`
	Latency Latency `json:"latency_us"`
}

// A Failover is how long it took from a leader's end to the next leader's first applied
// write, in milliseconds, a value a round.
type Failover struct {
	Backend string `json:"backend"`
	Wire    string `json:"wire"`
	// Graceful says that the leader was asked to end, and resigned; else it was killed.
	Graceful bool      `json:"graceful"`
	TTL      float64   `json:"ttl_ms"`
	Took     []float64 `json:"took_ms"`
}

// A Sever is how long a takeover took, in milliseconds, from the new leader's connect to
// its first applied write, with so many sessions bound to the term before.
type Sever struct {
	Wire     string    `json:"wire"`
	Sessions int       `json:"sessions"`
	Took     []float64 `json:"took_ms"`
}

// A Refresh is what the permits of so many sessions of one token ask of the election
// backend.
type Refresh struct {
	Sessions int `json:"sessions"`
	// Proxies is how many processes have the sessions, as evenly as can be: each has a guard,
	// and asks for itself.
	Proxies int     `json:"proxies"`
	Seconds float64 `json:"seconds"`
	// Calls is how often the backend was asked, and Every how often the guard means to.
	Calls float64 `json:"calls"`
	Every float64 `json:"every_s"`
}

// Scenario finds one by name.
func (r *Report) Scenario(name string) *Scenario {
	for i := range r.Scenarios {
		if r.Scenarios[i].Name == name {
			return &r.Scenarios[i]
		}
	}
	return nil
}

// A Metric is a number of a slice; NaN where the slice has none.
type Metric func(*Slice) float64

// Throughput is operations a second.
func Throughput(s *Slice) float64 {
	if s.Seconds <= 0 {
		return math.NaN()
	}
	return s.Operations / s.Seconds
}

// CPU is processor time an operation in a process, in microseconds.
func CPU(process string) Metric {
	return func(s *Slice) float64 {
		t, ok := s.CPU[process]
		if !ok || s.Operations <= 0 {
			return math.NaN()
		}
		return t / s.Operations * 1e6
	}
}

// Memory is bytes a connection in a process.
func Memory(process string) Metric {
	return func(s *Slice) float64 {
		if m, ok := s.Memory[process]; ok {
			return m
		}
		return math.NaN()
	}
}

// kilobytes is Memory in KB.
func kilobytes(process string) Metric {
	bytes := Memory(process)
	return func(s *Slice) float64 { return bytes(s) / (1 << 10) }
}

// P50 is the median latency in microseconds.
func P50(s *Slice) float64 {
	if s.Latency == nil {
		return math.NaN()
	}
	return s.Latency.P50
}

// P99 is the latency in microseconds that one in a hundred exceeds.
func P99(s *Slice) float64 {
	if s.Latency == nil {
		return math.NaN()
	}
	return s.Latency.P99
}

// Values are a metric of a target's slices, in the order of rounds.
func (sc *Scenario) Values(m Metric, target string) []float64 {
	var vs []float64
	for i := range sc.Slices {
		if s := &sc.Slices[i]; s.Target == target {
			if v := m(s); !math.IsNaN(v) {
				vs = append(vs, v)
			}
		}
	}
	return vs
}

// pairs calls f with the metric of two targets in each round that has both.
func (sc *Scenario) pairs(m Metric, a, b string, f func(a, b float64)) {
	of := map[int]float64{}
	for i := range sc.Slices {
		if s := &sc.Slices[i]; s.Target == b {
			of[s.Round] = m(s)
		}
	}
	for i := range sc.Slices {
		s := &sc.Slices[i]
		vb, ok := of[s.Round]
		if va := m(s); s.Target == a && ok && !math.IsNaN(va) && !math.IsNaN(vb) {
			f(va, vb)
		}
	}
}

// Ratios are a's metric over b's, by round. A round where b has nothing is not in it.
func (sc *Scenario) Ratios(m Metric, a, b string) []float64 {
	var rs []float64
	sc.pairs(m, a, b, func(va, vb float64) {
		if vb != 0 {
			rs = append(rs, va/vb)
		}
	})
	return rs
}

// Differences are a's metric less b's, by round.
func (sc *Scenario) Differences(m Metric, a, b string) []float64 {
	var ds []float64
	sc.pairs(m, a, b, func(va, vb float64) { ds = append(ds, va-vb) })
	return ds
}

// ReportFile is the name of a report's JSON in its directory.
const ReportFile = "report.json"

// LoadReport reads a report: a file, or the directory that Save made.
func LoadReport(path string) (*Report, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, ReportFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a report: %w", err)
	}
	r := new(Report)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("reading %s: it has version %d, and this program knows %d", path, r.Schema, Schema)
	}
	return r, nil
}

// Save writes the report into a directory, which it makes: JSON, Markdown and plots.
func (r *Report) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a report is for everybody
		return fmt.Errorf("saving a report: %w", err)
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("saving a report: %w", err)
	}
	files := map[string]string{ReportFile: string(b) + "\n"}
	plots := r.Plots()
	for _, p := range plots {
		files[p.File] = p.SVG
	}
	files["README.md"] = r.Markdown(plots)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // as above
			return fmt.Errorf("saving a report: %w", err)
		}
	}
	return nil
}

// ErrNoReport means that a directory holds no report.
var ErrNoReport = errors.New("no report")

// Last finds the last report with the name below a directory of reports: that of the
// highest date.
func Last(dir, name string) (*Report, string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*", ReportFile))
	if err != nil {
		return nil, "", err
	}
	var last *Report
	var at string
	for _, file := range found {
		r, err := LoadReport(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if r.Name == name && (last == nil || r.Started.After(last.Started)) {
			last, at = r, file
		}
	}
	if last == nil {
		return nil, "", fmt.Errorf("%w of %q below %s: make one first", ErrNoReport, name, dir)
	}
	return last, at, nil
}
