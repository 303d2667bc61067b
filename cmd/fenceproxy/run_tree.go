package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// A tree is all that a command started, directly or not. This process adopts what loses
// its parent, so that all of it stays below us, whatever group or session it moves to.
type tree struct {
	self   int
	leader int // the command's process, which somebody else waits for; zero when it has ended
}

// prSetChildSubreaper makes a process the parent of its descendants' orphans.
const prSetChildSubreaper = 36

// adopt makes this process the one that orphans below it go to.
func adopt() (*tree, error) {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return nil, fmt.Errorf("becoming the reaper of the command's orphans: %w", errno)
	}
	t := &tree{self: os.Getpid()}
	if _, err := descendants(t.self); err != nil {
		return nil, fmt.Errorf("looking for what a command starts: %w", err)
	}
	return t, nil
}

// end ends all of the tree, with SIGTERM and then SIGKILL, and returns when nothing is
// left. exited tells of the command's own end, nil when it has ended; died wakes.
func (t *tree) end(ctx context.Context, grace time.Duration, exited <-chan struct{}, died <-chan os.Signal) {
	asked := time.Now()
	done := ctx.Done()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	told := make(map[int]bool)
	for {
		left, none := t.reap()
		if none && t.leader == 0 {
			return
		}
		kill := !time.Now().Before(killAt(ctx, asked, grace))
		for _, pid := range left {
			// A descendant's number cannot have become another's since the list was made
			// but by a turn of all numbers within microseconds.
			if kill {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			} else if !told[pid] {
				told[pid] = true
				_ = syscall.Kill(pid, syscall.SIGTERM)
				_ = syscall.Kill(pid, syscall.SIGCONT) // one that is stopped would not hear of it
			}
		}
		select {
		case <-exited:
			t.leader, exited = 0, nil
		case <-done:
			done = nil
		case <-died:
		case <-tick.C:
		}
	}
}

// reap takes leave of the adopted who have ended, and returns who has not. It reports
// none when it saw nobody at all, not even ended: one who has ended may, while we
// looked, have left a child that the look missed; the next look sees it.
func (t *tree) reap() (left []int, none bool) {
	all, err := descendants(t.self)
	for _, p := range all {
		switch {
		case !p.ended:
			left = append(left, p.pid)
		case p.parent == t.self && p.pid != t.leader:
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
	return left, err == nil && len(all) == 0
}

// A process is a line of the process table.
type process struct {
	pid, parent int
	ended       bool
}

// descendants are the processes below root, itself not among them.
func descendants(root int) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	if _, ok := readProcess(root); !ok {
		return nil, fmt.Errorf("/proc does not show process %d", root)
	}
	children := make(map[int][]process)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var found []process
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			found = append(found, p)
			next = append(next, p.pid)
		}
	}
	return found, nil
}

// readProcess reads /proc/PID/stat: number, name in parentheses, state, parent, and more.
// The name may hold anything, parentheses too.
func readProcess(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return process{}, false
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 18 {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(f[1]))
	// Its first thread may have ended and others go on.
	threads, _ := strconv.Atoi(string(f[17]))
	return process{pid: pid, parent: parent, ended: f[0][0] == 'Z' && threads <= 1}, err == nil
}
