package suite

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/bench/load"
	"github.com/fenceproxy/fenceproxy/bench/rig"
)

// A profiler explains a scenario that was measured.
type profiler func(ctx context.Context, sp *load.Spec, sc *bench.Scenario) error

// leastProfiled is the shortest slice of a profile: there are a hundred samples in a second
// of processor time.
const leastProfiled = 2 * time.Second

// profileOn profiles the bound sessions' proxy of a rig where a target is not met, in a
// slice more, which the report does not count.
func profileOn(r *rig.Rig, slice time.Duration, progress func(string)) profiler {
	slice = max(slice, leastProfiled)
	return func(ctx context.Context, sp *load.Spec, sc *bench.Scenario) error {
		// Where memory goes, processor time does not say.
		if sc.Failed != "" || sc.Unit == bench.Sessions || !slices.Contains(sc.Targets, bench.Fenced) || !sc.Missed() {
			return nil
		}
		if progress != nil {
			progress(sc.Name + ": a target is not met, taking a profile")
		}
		// A second more for tools to begin: without load there are no samples.
		seconds := min(60, int(math.Ceil(slice.Seconds()))+1)
		var err error
		sc.Profile, err = load.Profile(ctx, sp, r.Target(bench.Fenced), slice, func(ctx context.Context) ([]byte, error) { return r.Profile(ctx, seconds) })
		return err
	}
}
