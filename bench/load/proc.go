package load

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/bench"
)

// ticks a second of /proc/PID/stat: the kernel's own unit for programs, on all of Linux's
// architectures that Go knows.
const ticksPerSecond = 100

// procStat is what /proc/PID/stat tells of a process.
type procStat struct {
	parent int
	// ticks of it and of its children that have ended and were waited for.
	ticks int64
}

// parseStat reads a line of /proc/PID/stat. The name, in parentheses, may hold anything.
func parseStat(line string) (procStat, error) {
	_, rest, ok := cutLast(line, ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 15 {
		return procStat{}, fmt.Errorf("a process's stat has %d fields", len(f))
	}
	var s procStat
	var err error
	if s.parent, err = strconv.Atoi(f[1]); err != nil {
		return s, err
	}
	for _, v := range f[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return s, err
		}
		s.ticks += n
	}
	return s, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// A tree finds the processes below others.
type tree struct{ all map[int]procStat }

// readTree reads all processes there are. Those that end meanwhile are not in it.
func readTree() (tree, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return tree{}, err
	}
	t := tree{map[int]procStat{}}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue
		}
		if s, err := parseStat(string(b)); err == nil {
			t.all[pid] = s
		}
	}
	return t, nil
}

// below are a process and all below it.
func (t tree) below(pid int) []int {
	if _, ok := t.all[pid]; !ok {
		return nil
	}
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		for p, s := range t.all {
			if s.parent == pids[i] {
				pids = append(pids, p)
			}
		}
	}
	return pids
}

// cpuOf is the processor time in seconds of each of the processes, children included, and
// of this one and those that it waited for (bench.Load).
func cpuOf(processes map[string]int) (map[string]float64, error) {
	cpu := map[string]float64{bench.Load: ownCPU()}
	if len(processes) == 0 {
		return cpu, nil
	}
	t, err := readTree()
	if err != nil {
		return nil, err
	}
	for name, pid := range processes {
		pids := t.below(pid)
		if len(pids) == 0 {
			return nil, fmt.Errorf("the %s, process %d, is not there", name, pid)
		}
		for _, p := range pids {
			cpu[name] += float64(t.all[p].ticks) / ticksPerSecond
		}
	}
	return cpu, nil
}

// memoryOf is the proportional set size in bytes of each of the processes, children
// included.
func memoryOf(processes map[string]int) (map[string]float64, error) {
	m := map[string]float64{}
	if len(processes) == 0 {
		return m, nil
	}
	t, err := readTree()
	if err != nil {
		return nil, err
	}
	for name, pid := range processes {
		for _, p := range t.below(pid) {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p))
			if err != nil {
				if p == pid {
					return nil, fmt.Errorf("the memory of the %s: %w", name, err)
				}
				continue // a child that has ended
			}
			size, err := parseRollup(string(b))
			if err != nil {
				continue // so has this one
			}
			m[name] += size
		}
	}
	return m, nil
}

// parseRollup is the Pss of a smaps_rollup in bytes.
func parseRollup(text string) (float64, error) {
	kb, ok := numberIn(text, "Pss:")
	if !ok {
		return 0, fmt.Errorf("no Pss in %q", text)
	}
	return kb * 1024, nil
}

// numberIn is the number in the line of a file of /proc that begins with a name, without its
// unit.
func numberIn(text, name string) (float64, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return n, err == nil
		}
	}
	return 0, false
}

// less is what a has grown over b, by name.
func less(a, b map[string]float64) map[string]float64 {
	d := map[string]float64{}
	for name, v := range a {
		d[name] = v - b[name]
	}
	return d
}
