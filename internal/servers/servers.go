// Package servers runs real Postgres and Redis servers as child processes, for
// tests and for the demo: each in a directory of its own below a temporary one,
// on a free loopback port, ended with whoever started it.
//
// It never touches a system service or another process's data. It does not
// install anything: a missing program is an error that says what to install.
package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// ErrNotInstalled means that the machine lacks a server's program.
var ErrNotInstalled = errors.New("not installed")

// nobody is whom servers run as when we are root: Postgres refuses root.
const nobody = 65534

// A Process is one running server.
type Process struct {
	// Name says which program it is, for messages.
	Name string
	// Addr is the host:port that it listens on.
	Addr string
	// Dir is its directory; removed by Stop.
	Dir string
	// Version is what the program says of itself.
	Version string

	cmd  *exec.Cmd
	log  *tail
	done chan struct{} // closed when the process has ended
	stop syscall.Signal
	keep bool     // Dir belongs to somebody else
	self bool     // run as whoever we are, root too
	env  []string // added to our own environment
}

// Host and Port are the two halves of Addr.
func (p *Process) Host() string { h, _, _ := net.SplitHostPort(p.Addr); return h }

// Port is the port of Addr.
func (p *Process) Port() int {
	_, s, _ := net.SplitHostPort(p.Addr)
	n, _ := strconv.Atoi(s)
	return n
}

// Log returns the last lines that the server printed.
func (p *Process) Log() string { return p.log.String() }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the server's main process.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the server with SIGKILL and waits for it; its directory stays.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop ends the server, waits for it and removes its directory.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Signal(p.stop)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
	if !p.keep {
		_ = os.RemoveAll(p.Dir)
	}
}

// start runs the program and waits until ready says so.
func (p *Process) start(ctx context.Context, bin string, args []string, ready func(context.Context) error) error {
	cmd := exec.Command(bin, args...)
	cmd.Dir = p.Dir
	cmd.Env = append(append(os.Environ(), "LC_ALL=C", "TZ=UTC"), p.env...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	// The server ends with its parent even where that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: p.stop, Setpgid: true}
	if !p.self {
		cmd.SysProcAttr.Credential = credential()
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	p.cmd, p.done = cmd, make(chan struct{})
	go func() { _ = cmd.Wait(); close(p.done) }()

	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended while starting: %s", p.Name, p.Log())
		case <-ctx.Done():
			p.Kill()
			return fmt.Errorf("%s did not become ready (%w): %s", p.Name, err, p.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: false}
}

// NewDir makes a directory that a server may use, below the system's temporary one.
func NewDir(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", "fenceproxy-"+pattern+"-")
	if err != nil {
		return "", err
	}
	if os.Geteuid() == 0 {
		err = os.Chown(dir, nobody, nobody)
	}
	return dir, err
}

// lookup finds a program in the named directory, on PATH or below one of the globs.
func lookup(dir, name string, globs ...string) (string, error) {
	if dir != "" {
		bin := filepath.Join(dir, name)
		if _, err := os.Stat(bin); err != nil {
			return "", fmt.Errorf("%s in %s: %w", name, dir, ErrNotInstalled)
		}
		return bin, nil
	}
	for _, g := range globs {
		found, _ := filepath.Glob(filepath.Join(g, name))
		sort.Slice(found, func(i, j int) bool { // the newest version first
			return len(found[i]) > len(found[j]) || len(found[i]) == len(found[j]) && found[i] > found[j]
		})
		if len(found) > 0 {
			return found[0], nil
		}
	}
	if bin, err := exec.LookPath(name); err == nil {
		return bin, nil
	}
	return "", fmt.Errorf("%s: %w", name, ErrNotInstalled)
}

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailSize = 64 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if over := t.buf.Len() - tailSize; over > tailSize {
		t.buf.Next(over)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
