package election

import (
	"fmt"
	"testing"
)

func TestOutcomeNames(t *testing.T) {
	got := fmt.Sprint(Acquired, Busy, BusyHeld, BusyHoldOff, Renewed, Lost, Released, NotOwner, Vacant, Held,
		StandingCurrent, StandingStale, StandingVacant, AcquireStatus(0), Standing(9))
	want := "acquired busy held hold-off renewed lost released not-owner vacant held current stale vacant none none"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
