package examples

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A worker is one process of an example.
type worker struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *testenv.Buffer
	from int // where in out to look next
}

// start starts a worker. line is its command line as it stands in the example's README;
// args is the same with the paths and the lease of the test.
func (s *stage) start(t *testing.T, ctx context.Context, name, line string, env []string, args ...string) *worker {
	t.Helper()
	if !strings.Contains(s.readme, "\n"+line+"\n") {
		t.Errorf("not in the README: %s", line)
	}
	w := &worker{name: name, cmd: exec.CommandContext(ctx, args[0], args[1:]...), out: &testenv.Buffer{}}
	w.cmd.Dir, w.cmd.Stdout, w.cmd.Stderr = s.dir, w.out, w.out
	w.cmd.Env = append(os.Environ(), env...)
	// Whatever it starts ends with it, also when the test fails.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL)
		_ = w.cmd.Wait()
		if t.Failed() || testing.Verbose() {
			t.Logf("%s said:\n%s", name, w.out)
		}
	})
	return w
}

// await waits until the worker says something more, and goes on behind it.
func (w *worker) await(t *testing.T, text string) {
	t.Helper()
	testenv.Eventually(t, w.name+" says "+text, func() bool {
		said := w.out.String()[w.from:]
		i := strings.Index(said, text)
		if i < 0 {
			return false
		}
		w.from += i + len(text)
		return true
	})
}

func (w *worker) signal(s syscall.Signal) { _ = w.cmd.Process.Signal(s) }

// end ends the worker as a service manager does.
func (w *worker) end(t *testing.T) {
	t.Helper()
	w.signal(syscall.SIGTERM)
	// Java's code after SIGTERM is always this, however orderly it went.
	const java = 128 + int(syscall.SIGTERM)
	if err := w.cmd.Wait(); err != nil && w.cmd.ProcessState.ExitCode() != java {
		t.Errorf("%s: %v", w.name, err)
	}
}

// An entry is one piece of work that was written.
type entry struct {
	Worker string
	Number int64
}

// A takeover is what all examples are run to.
type takeover struct {
	start   func(name string) *worker
	refused string // what a stale leader says
	// midway says whether a worker that stands does so in the middle of its work; nil where
	// it has said all.
	midway func() bool
	// While it is stopped: what was stopped is not what writes.
	early bool
}

// run runs it: a leads, is stopped in the middle of its work, b takes over, a goes on
// and is refused; b ends, and a leads again.
func (x takeover) run(t *testing.T) {
	t.Helper()
	a := x.start("a")
	a.await(t, "a leads with number")
	a.await(t, "a wrote")
	for a.await(t, "a begins"); ; a.await(t, "a begins") {
		testenv.Pause(t, a.cmd.Process.Pid)
		wrote := strings.Contains(a.out.String()[a.from:], "wrote")
		if x.early || !wrote && (x.midway == nil || x.midway()) {
			break
		}
		a.signal(syscall.SIGCONT) // it was quicker
	}
	b := x.start("b")
	b.await(t, "b leads with number")
	b.await(t, "b wrote")
	if x.early {
		a.await(t, x.refused)
	}
	a.signal(syscall.SIGCONT)
	if !x.early {
		a.await(t, x.refused)
	}
	b.await(t, "b wrote")
	b.end(t)
	a.await(t, "a leads with number")
	a.await(t, "a wrote")
	a.end(t)
}

// inOrder checks what was written: by these workers in this order, each with a higher
// number than the one before, and nothing of a term that was over.
func inOrder(t *testing.T, all []entry, order string) {
	t.Helper()
	var terms []entry
	for _, e := range all {
		if len(terms) == 0 || terms[len(terms)-1] != e {
			terms = append(terms, e)
		}
	}
	var workers string
	for i, e := range terms {
		workers += e.Worker
		if i > 0 && e.Number <= terms[i-1].Number {
			t.Errorf("number %d after %d", e.Number, terms[i-1].Number)
		}
	}
	if workers != order {
		t.Errorf("terms %v, want %s", terms, order)
	}
}
