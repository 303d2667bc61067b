package testenv

import (
	"testing"
	"time"
)

// Eventually waits until something is so, and fails the test after a minute.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	Within(t, time.Minute, what, so)
}

// Within waits until something is so that has no other sign, and fails the test when it
// takes longer.
func Within(t testing.TB, most time.Duration, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(most)
	defer late.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("%s: did not happen within %v", what, most)
		}
	}
}
