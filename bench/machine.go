package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// A Machine is where a run was made.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	System string `json:"system"`
	Arch   string `json:"arch"`
	Go     string `json:"go"`
	// LoadBefore is the load average of the last minute before the run: what else ran.
	LoadBefore float64 `json:"load_before"`
}

// ThisMachine describes this one, as far as it can be told.
func ThisMachine() Machine {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			return ""
		}
		return string(b)
	}
	load, _, _ := strings.Cut(read("/proc/loadavg"), " ")
	before, err := strconv.ParseFloat(load, 64)
	if err != nil {
		before = -1
	}
	m := Machine{
		CPU:    field(read("/proc/cpuinfo"), "model name"),
		Cores:  runtime.NumCPU(),
		Kernel: strings.TrimSpace(read("/proc/sys/kernel/osrelease")),
		System: strings.Trim(assignment(read("/etc/os-release"), "PRETTY_NAME"), `"`),
		Arch:   runtime.GOARCH, Go: runtime.Version(), LoadBefore: before,
	}
	kb, _, _ := strings.Cut(field(read("/proc/meminfo"), "MemTotal"), " ")
	if n, err := strconv.ParseInt(kb, 10, 64); err == nil {
		m.Memory = n << 10
	}
	return m
}

// field is the value of the first line "name : value".
func field(text, name string) string { return valueOf(text, name, ":") }

// assignment is the value of the first line "name=value".
func assignment(text, name string) string { return valueOf(text, name, "=") }

func valueOf(text, name, sep string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, sep); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
