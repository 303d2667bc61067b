package load

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
)

// Profile runs one more slice of a scenario that Run has prepared, on one target, while
// take takes a CPU profile of its proxy. What the slice did is not measured.
func Profile(ctx context.Context, sp *Spec, t *Target, d time.Duration, take func(context.Context) ([]byte, error)) (*bench.Profile, error) {
	pid := t.Processes[bench.Proxy]
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var raw []byte
	taken := make(chan error, 1)
	go func() {
		var err error
		raw, err = take(ctx)
		taken <- err
	}()
	counts, failed := profiledSlice(ctx, sp, t, d, pid)
	if failed != nil {
		cancel()
	}
	err := <-taken
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	p, err := bench.ParseProfile(raw)
	if err != nil {
		return nil, err
	}
	p.PerOperation = counts
	return p, nil
}

// profiledSlice is what a process asked of the kernel for an operation of a slice.
func profiledSlice(ctx context.Context, sp *Spec, t *Target, d time.Duration, pid int) (bench.KernelCounts, error) {
	before, err := kernelCounts(pid)
	if err != nil {
		return before, err
	}
	o, err := sp.work.slice(ctx, sp, t, d)
	if err != nil {
		return before, err
	}
	after, err := kernelCounts(pid)
	if err != nil {
		return before, err
	}
	// A thread that has ended took its switches with it.
	per := func(after, before float64) float64 { return max(0, after-before) / max(1, o.all, o.operations) }
	return bench.KernelCounts{
		Voluntary: per(after.Voluntary, before.Voluntary), Involuntary: per(after.Involuntary, before.Involuntary),
	}, nil
}

// kernelCounts are those of a process since it began.
func kernelCounts(pid int) (bench.KernelCounts, error) {
	var k bench.KernelCounts
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err == nil && len(threads) == 0 {
		err = fmt.Errorf("process %d is not there", pid)
	}
	if err != nil {
		return k, fmt.Errorf("counting context switches: %w", err)
	}
	for _, file := range threads {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		k.Voluntary += countIn(string(b), "voluntary_ctxt_switches:")
		k.Involuntary += countIn(string(b), "nonvoluntary_ctxt_switches:")
	}
	return k, nil
}

// countIn is a count in a file of /proc; 0 without it.
func countIn(text, name string) float64 {
	n, _ := numberIn(text, name)
	return n
}
