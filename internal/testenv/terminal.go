package testenv

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/creack/pty"
)

// A Terminal is a client program that somebody types into.
type Terminal struct {
	t   testing.TB
	cmd *exec.Cmd
	pty *os.File
	wg  sync.WaitGroup

	mu   sync.Mutex
	said bytes.Buffer
	read int // how much of it Await has passed
}

// OpenTerminal runs a program in a terminal until the test ends.
func OpenTerminal(t testing.TB, cmd *exec.Cmd) *Terminal {
	t.Helper()
	f, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	x := &Terminal{t: t, cmd: cmd, pty: f}
	x.wg.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := f.Read(b)
			x.mu.Lock()
			x.said.Write(bytes.ReplaceAll(b[:n], []byte("\r"), nil))
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		_ = x.cmd.Wait()
		f.Close()
		x.wg.Wait()
		if t.Failed() {
			t.Logf("the terminal showed:\n%s", x.said.String())
		}
	})
	return x
}

// Await waits for a text and returns what was said up to it.
func (x *Terminal) Await(text string) (said string) {
	x.t.Helper()
	Eventually(x.t, "the program says "+text, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		rest := x.said.Bytes()[x.read:]
		i := bytes.Index(rest, []byte(text))
		if i < 0 {
			return false
		}
		said = string(rest[:i])
		x.read += i + len(text)
		return true
	})
	return said
}

// CtrlC is what the key types.
const CtrlC = "\x03"

// Type types a text.
func (x *Terminal) Type(text string) {
	x.t.Helper()
	if _, err := x.pty.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// Leave waits until the program ends by itself, and returns all that it said up to what
// was typed last.
func (x *Terminal) Leave(typing string) string {
	x.t.Helper()
	x.mu.Lock()
	said := x.said.String()
	x.mu.Unlock()
	x.Type(typing)
	if err := x.cmd.Wait(); err != nil {
		x.t.Error(err)
	}
	return said
}
