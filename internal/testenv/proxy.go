package testenv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// program builds the command once a process and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := sharedDir()
	if err != nil {
		return "", err
	}
	if err := Sources("cmd", "election", "guard", "internal", "policy", "protocols"); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "fenceproxy")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/fenceproxy/fenceproxy/cmd/fenceproxy").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return bin, nil
})

// Sources tells the go command that the test depends on what is in directories of the module.
// It knows the packages that a test imports, not those of a program that the test builds and
// runs, and would show an older result as if it were the new program's.
func Sources(dirs ...string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		above := filepath.Dir(root)
		if above == root {
			return errors.New("no go.mod in this directory or above")
		}
		root = above
	}
	for _, dir := range dirs {
		// It keeps the names, sizes and times of what is in a directory that is read.
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == "testdata" {
				return fs.SkipDir
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("looking at the sources: %w", err)
		}
	}
	return nil
}

// SharedDir makes a directory that lasts as long as the shared servers.
func SharedDir(t testing.TB) string {
	t.Helper()
	dir, err := sharedDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func sharedDir() (string, error) {
	dir, err := os.MkdirTemp("", "fenceproxy-test-")
	if err != nil {
		return "", err
	}
	shared.Lock()
	defer shared.Unlock()
	shared.all = append(shared.all, folder(dir))
	return dir, nil
}

// A folder is removed with the shared servers.
type folder string

// Stop removes it.
func (f folder) Stop() { _ = os.RemoveAll(string(f)) }

// Program returns the path of the fenceproxy command, which is built once a process.
func Program(t testing.TB) string {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// A Proxy is a fenceproxy serve of its own.
type Proxy struct {
	// Addr is the first listener's address, kept when the proxy starts again.
	Addr string

	config string
	cmd    *exec.Cmd
	ended  chan struct{}
}

// StartProxy runs fenceproxy serve with one listener until the test ends. elections is
// the URL of the election backend; listener holds the listener's settings but for the
// address; sections are other sections of the configuration. It returns when the proxy
// accepts connections.
func StartProxy(t testing.TB, elections, listener string, sections ...string) *Proxy {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	return StartProxyOf(t, addr, fmt.Sprintf("elections:\n  backend: %s\nlisteners:\n  - listen: %s\n    %s\n", elections, addr,
		strings.ReplaceAll(strings.TrimSpace(listener), "\n", "\n    "))+strings.Join(sections, "\n")+"\n")
}

// StartProxyOf runs fenceproxy serve with a whole configuration until the test ends. It
// returns when the proxy accepts connections at addr, the address of one of its listeners.
func StartProxyOf(t testing.TB, addr, text string) *Proxy {
	t.Helper()
	p := &Proxy{Addr: addr, config: filepath.Join(t.TempDir(), "fenceproxy.yaml")}
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Start(t)
	t.Cleanup(func() {
		p.Signal(syscall.SIGCONT)
		p.Kill()
	})
	return p
}

// Check is what fenceproxy check says of the proxy's configuration.
func (p *Proxy) Check(t testing.TB) string {
	t.Helper()
	bin := Program(t)
	out, err := exec.CommandContext(Context(t), bin, "check", "-c", p.config, "--timeout", "5s").CombinedOutput()
	if len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

// Start runs the proxy again after Kill, with the same configuration and address.
func (p *Proxy) Start(t testing.TB) {
	t.Helper()
	cmd := exec.Command(Program(t), "serve", "-c", p.config)
	cmd.Stdout, cmd.Stderr = io.Discard, t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	p.cmd, p.ended = cmd, ended
	Eventually(t, "the proxy accepts connections", func() bool {
		select {
		case <-ended:
			t.Fatal("the proxy ended while starting")
		default:
		}
		c, err := net.Dial("tcp", p.Addr)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// PID is the proxy's process id.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

// Signal sends the proxy a signal.
func (p *Proxy) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Pause stops the proxy with SIGSTOP, and returns when every thread of it stands.
func (p *Proxy) Pause(t testing.TB) { Pause(t, p.PID()) }

// Pause stops a process with SIGSTOP, and returns when every thread of it stands.
func Pause(t testing.TB, pid int) {
	t.Helper()
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	Eventually(t, "the process stands", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatal("the threads of the process cannot be seen")
		}
		for _, name := range threads {
			stat, err := os.ReadFile(name)
			if err != nil {
				continue // a thread that ended
			}
			_, state, _ := strings.Cut(string(stat), ") ")
			if !strings.HasPrefix(state, "T") {
				return false
			}
		}
		return true
	})
}

// Kill ends the proxy with SIGKILL.
func (p *Proxy) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.ended
}
