package load

import (
	"os"
	"testing"
	"time"
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
	time.Sleep(time.Millisecond)
	after, err := kernelCounts(os.Getpid())
	if err != nil || after.Voluntary <= before.Voluntary {
		t.Errorf("%+v and then %+v, %v", before, after, err)
	}
	if _, err := kernelCounts(-1); err == nil {
		t.Error("the counts of no process")
	}
}
