package peer

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// What /proc says of a process: its parent, and when it started by today's clock.
func TestLookAtAProcess(t *testing.T) {
	before := time.Now()
	child := exec.CommandContext(t.Context(), "cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Look(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if p.Parent != os.Getpid() {
		t.Errorf("parent %d", p.Parent)
	}
	const tick = 50 * time.Millisecond
	if p.Started.Before(before.Add(-tick)) || p.Started.After(time.Now().Add(tick)) {
		t.Errorf("started %v before the test", before.Sub(p.Started))
	}
	in.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := Look(child.Process.Pid); err == nil {
		t.Error("a process that has ended")
	}
}
