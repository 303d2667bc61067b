package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// A Profile says where the proxy's processor time goes in a scenario, and what it asks of
// the kernel. It is of a slice of its own, which counts for nothing else.
type Profile struct {
	// Samples, and the processor time in seconds that they stand for.
	Samples int64   `json:"samples"`
	Seconds float64 `json:"cpu_s"`
	// Top are the functions with the most time of their own.
	Top []Function `json:"top"`
	// Syscalls, Scheduler and Own are shares of the time, from 0 to 1: no sample is in two.
	Syscalls  float64 `json:"syscalls"`
	Scheduler float64 `json:"scheduler"`
	Own       float64 `json:"own"`
	// PerOperation is what an operation (or a byte) takes.
	PerOperation KernelCounts `json:"per_operation"`
}

// A Function and its share of the time, what it calls not counted.
type Function struct {
	Name  string  `json:"name"`
	Share float64 `json:"share"`
}

// KernelCounts are the kernel's own counts of a process: context switches, because it waited
// and because others had to run. (It counts read and write too, but not the calls that are for
// sockets alone, by which loops read and write.)
type KernelCounts struct {
	Voluntary   float64 `json:"voluntary_switches"`
	Involuntary float64 `json:"involuntary_switches"`
}

// topFunctions is how many a Profile has.
const topFunctions = 12

// module is where fenceproxy's own packages are; its command is package main.
const module = "github.com/fenceproxy/fenceproxy"

// syscallPackages are where system calls are made.
var syscallPackages = []string{"internal/runtime/syscall", "syscall", "golang.org/x/sys/unix"}

// schedulerFrames are the functions of the Go runtime that find the next goroutine, or let
// one or a thread wait or go on. All that they call is the scheduler's, its epoll and futex
// too.
var schedulerFrames = map[string]bool{
	"runtime.mcall": true, "runtime.park_m": true, "runtime.schedule": true, "runtime.findRunnable": true, "runtime.netpoll": true,
	"runtime.goready": true, "runtime.ready": true, "runtime.wakep": true, "runtime.startm": true, "runtime.stopm": true,
	"runtime.futex": true, "runtime.netpollunblock": true, "runtime.netpollgoready": true, "runtime.gopark": true, "runtime.sysmon": true,
}

// ParseProfile reads a CPU profile as Go's runtime writes it.
func ParseProfile(b []byte) (*Profile, error) {
	raw, err := profile.ParseData(b)
	if err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	count := slices.IndexFunc(raw.SampleType, func(v *profile.ValueType) bool { return v.Type == "samples" })
	cpu := slices.IndexFunc(raw.SampleType, func(v *profile.ValueType) bool { return v.Type == "cpu" && v.Unit == "nanoseconds" })
	if count < 0 || cpu < 0 {
		return nil, errors.New("reading a profile: it is none of processor time")
	}
	p := new(Profile)
	self := map[string]float64{}
	for _, s := range raw.Sample {
		frames := framesOf(s)
		if len(frames) == 0 {
			continue
		}
		v := float64(s.Value[cpu])
		p.Samples += s.Value[count]
		p.Seconds += v
		self[frames[0]] += v
		switch {
		case slices.ContainsFunc(frames, func(f string) bool { return schedulerFrames[f] }):
			p.Scheduler += v
		case slices.ContainsFunc(syscallPackages, func(pkg string) bool { return within(frames[0], pkg) }):
			p.Syscalls += v
		case within(frames[0], module) || within(frames[0], "main"):
			p.Own += v
		}
	}
	if p.Seconds <= 0 {
		return nil, errors.New("reading a profile: it has no samples")
	}
	for name, v := range self {
		p.Top = append(p.Top, Function{name, v / p.Seconds})
	}
	slices.SortFunc(p.Top, func(a, b Function) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Name, b.Name))
	})
	p.Top = p.Top[:min(len(p.Top), topFunctions)]
	p.Syscalls, p.Scheduler, p.Own = p.Syscalls/p.Seconds, p.Scheduler/p.Seconds, p.Own/p.Seconds
	p.Seconds /= 1e9
	return p, nil
}

// framesOf are the functions of a sample's stack, the one that ran first.
func framesOf(s *profile.Sample) []string {
	var frames []string
	for _, l := range s.Location {
		for _, line := range l.Line { // what was inlined comes before what it is in
			if line.Function != nil {
				frames = append(frames, line.Function.Name)
			}
		}
	}
	return frames
}

// within reports whether a function is of a package, or of one below it.
func within(function, pkg string) bool {
	rest, ok := strings.CutPrefix(function, pkg)
	return ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "/"))
}

// per are the counts for one of what is named, of a scenario with that unit.
func (p *Profile) per(unit string) (k KernelCounts, name string) {
	k = p.PerOperation
	if unit != Bytes {
		return k, strings.TrimSuffix(unit, "s")
	}
	const mb = 1e6
	return KernelCounts{Voluntary: k.Voluntary * mb, Involuntary: k.Involuntary * mb}, "MB"
}

// sentence says it all at once. Unit is the scenario's.
func (p *Profile) sentence(unit string) string {
	k, per := p.per(unit)
	article := "a "
	if strings.HasPrefix(per, "o") {
		article = "an "
	}
	percent := func(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }
	return fmt.Sprintf("%s of the proxy's processor time is in system calls (%s context switches %s), %s in Go's scheduler, %s in fenceproxy's own code, "+
		"and %s in the rest: Go's runtime and libraries.",
		percent(p.Syscalls), short(k.Voluntary+k.Involuntary), article+per, percent(p.Scheduler), percent(p.Own),
		percent(math.Max(0, 1-p.Syscalls-p.Scheduler-p.Own)))
}

// whyID is what the verdict of a row that is not met links to.
func (sc *Scenario) whyID() string { return "why-" + strings.ReplaceAll(sc.Name, "/", "-") }

// writeWhy writes where the proxy's time goes.
func (sc *Scenario) writeWhy(b *strings.Builder) {
	p := sc.Profile
	if p == nil {
		return
	}
	fmt.Fprintf(b, "<a id=\"%s\"></a>\n\n### Why\n\n%s\n\n", sc.whyID(), p.sentence(sc.Unit))
	k, per := p.per(sc.Unit)
	fmt.Fprintf(b, "| per %s | voluntary context switches | involuntary |\n|---|---|---|\n| %s | %s | %s |\n\n",
		per, Fenced, short(k.Voluntary), short(k.Involuntary))
	fmt.Fprintf(b, "| function | its own time |\n|---|---|\n")
	for _, f := range p.Top {
		fmt.Fprintf(b, "| `%s` | %.1f%% |\n", cell(f.Name), 100*f.Share)
	}
	fmt.Fprintf(b, "\n%d samples, %s s of processor time, in a slice of their own.\n\n", p.Samples, short(p.Seconds))
}
