package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A child is a process of the demo's own: the proxy or a worker. It ends with the
// demo, however that ends.
type child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	said *said
}

// startChild starts this program again with other arguments. Its standard output is
// read by out, which returns at its end.
func startChild(name, self string, args []string, out func(*bufio.Scanner)) (*child, error) {
	c := &child{name: name, cmd: exec.Command(self, args...), done: make(chan struct{}), said: new(said)}
	c.cmd.Stderr = c.said
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(c.done)
		out(bufio.NewScanner(stdout))
		_ = c.cmd.Wait()
	}()
	return c, nil
}

// stop sends SIGSTOP and returns when the process does not run any more.
func (c *child) stop(ctx context.Context) error {
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stopping %s: %w", c.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil {
			return fmt.Errorf("stopping %s: %w", c.name, err)
		}
		// The state follows the name, which stands in parentheses.
		if i := bytes.LastIndexByte(stat, ')'); i > 0 && i+2 < len(stat) && stat[i+2] == 'T' {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stopping %s: %w", c.name, ctx.Err())
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// resume sends SIGCONT.
func (c *child) resume() error {
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("continuing %s: %w", c.name, err)
	}
	return nil
}

// kill ends the process and waits for it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// terminate asks the process to end, and waits for it.
func (c *child) terminate() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(10 * time.Second)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		c.kill()
	}
}

// ended is the error of a process that has ended by itself.
func (c *child) ended() error {
	return fmt.Errorf("%s ended by itself (%v): %s", c.name, c.cmd.ProcessState, strings.TrimSpace(c.said.String()))
}

// A report is an event and whose it is.
type report struct {
	from string
	Event
}

// startWorker starts a worker whose events go to reports, until quit is closed.
func startWorker(name, self string, args []string, reports chan<- report, quit <-chan struct{}) (*child, error) {
	return startChild("worker "+name, self, args, func(lines *bufio.Scanner) {
		for lines.Scan() {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = Event{Kind: Failed, Error: "unreadable event: " + err.Error()}
			}
			select {
			case reports <- report{name, e}:
			case <-quit:
			}
		}
	})
}

var errInterrupted = errors.New("the demo was interrupted")

// said keeps the end of what a process printed on standard error.
type said struct {
	mu  sync.Mutex
	buf []byte
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = append(s.buf, b...)
	if over := len(s.buf) - 16<<10; over > 0 {
		s.buf = append([]byte(nil), s.buf[over:]...)
	}
	return len(b), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.buf)
}
