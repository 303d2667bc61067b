package pgfence

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
	p, err := lookAt(uint32(child.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if p.parent != os.Getpid() {
		t.Errorf("parent %d", p.parent)
	}
	const tick = 50 * time.Millisecond
	if p.start.Before(before.Add(-tick)) || p.start.After(time.Now().Add(tick)) {
		t.Errorf("started %v before the test", before.Sub(p.start))
	}
	in.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := lookAt(uint32(child.Process.Pid)); err == nil {
		t.Error("a process that has ended")
	}
}
