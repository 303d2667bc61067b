package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Freeze stops the server and every process below it with SIGSTOP: it keeps its
// connections and says nothing. (A Postgres is one process a connection, and each is in a
// process group of its own.) It returns when every thread of them stands: on a busy
// machine they go on for a while after the signal. Thaw lets them go on.
func (p *Process) Freeze() error {
	if err := p.signalAll(syscall.SIGSTOP); err != nil {
		return err
	}
	below, err := processesBelow(p.PID())
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		if !slices.ContainsFunc(append(below, p.PID()), runs) {
			return nil
		}
		if time.Since(began) > time.Minute {
			return fmt.Errorf("%s: still runs a minute after SIGSTOP", p.Name)
		}
	}
}

// runs reports whether some thread of a process is not stopped.
func runs(pid int) bool {
	stats, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	return slices.ContainsFunc(stats, func(path string) bool {
		text, err := os.ReadFile(path)
		if err != nil {
			return false // it has ended
		}
		fields := afterName(text)
		return len(fields) > 0 && !strings.Contains("TtZX", fields[0])
	})
}

// afterName returns the fields of a stat file after the name: state, parent and so on. The
// name may hold anything.
func afterName(stat []byte) []string {
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

// Thaw undoes Freeze.
func (p *Process) Thaw() error { return p.signalAll(syscall.SIGCONT) }

func (p *Process) signalAll(s syscall.Signal) error {
	// The parent first: it starts no more of them once it is stopped.
	if err := p.Signal(s); err != nil {
		return fmt.Errorf("%s: sending %v: %w", p.Name, s, err)
	}
	below, err := processesBelow(p.PID())
	if err != nil {
		return err
	}
	for _, pid := range below {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("%s: sending %v to process %d: %w", p.Name, s, pid, err)
		}
	}
	return nil
}

// processesBelow returns the descendants of a process.
func processesBelow(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := afterName(text)
		child, err1 := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) < 2 || err1 != nil {
			continue
		}
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	var below []int
	for next := children[pid]; len(next) > 0; next = next[1:] {
		below = append(below, next[0])
		next = append(next, children[next[0]]...)
	}
	return below, nil
}
