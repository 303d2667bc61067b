package load

import (
	"os"
	"os/exec"
	"testing"
)

func TestKernelCounts(t *testing.T) {
	const status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"
	if v, n := countIn(status, "voluntary_ctxt_switches:"), countIn(status, "nonvoluntary_ctxt_switches:"); v != 12 || n != 3 {
		t.Errorf("%v and %v", v, n)
	}
	if countIn(status, "other:") != 0 {
		t.Error("a line that is not there")
	}
	// However busy it is, it has waited by now, and waits again.
	before, err := kernelCounts(os.Getpid())
	if err != nil || before.Voluntary == 0 {
		t.Fatal(before, err)
	}
	if err := exec.Command(os.Args[0], "-test.run", "^$").Run(); err != nil {
		t.Fatal(err)
	}
	after, err := kernelCounts(os.Getpid())
	if err != nil || after.Voluntary <= before.Voluntary {
		t.Errorf("%+v and then %+v, %v", before, after, err)
	}
	if _, err := kernelCounts(-1); err == nil {
		t.Error("the counts of no process")
	}
}
