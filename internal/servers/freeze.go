package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Freeze stops the server and every process below it with SIGSTOP: it keeps its
// connections and says nothing. (A Postgres is one process a connection, and each is in a
// process group of its own.) Thaw lets it go on.
func (p *Process) Freeze() error { return p.signalAll(syscall.SIGSTOP) }

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
		// pid (name) state ppid …; the name may hold anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
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
