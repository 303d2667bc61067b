package resp

import (
	"testing"
	"testing/synctest"
	"time"
)

// What happens to many clients is told at once, then once a second with a count, and its
// end once.
func TestOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o often
		want := func(what string, got, want int) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %d, want %d", what, got, want)
			}
		}
		if _, happened := o.over(); happened {
			t.Error("over before it began")
		}
		want("first", o.happened(), 1)
		want("at once", o.happened(), 0)
		time.Sleep(logEvery)
		want("a second later", o.happened(), 2)
		want("at once", o.happened(), 0)
		untold, happened := o.over()
		if want("untold", untold, 1); !happened {
			t.Error("it happened")
		}
		if _, happened = o.over(); happened {
			t.Error("over twice")
		}
		want("anew", o.happened(), 1)
	})
}
