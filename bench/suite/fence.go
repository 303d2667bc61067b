package suite

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/bench/load"
	"github.com/fenceproxy/fenceproxy/bench/rig"
	"github.com/fenceproxy/fenceproxy/guard"
)

// FenceOptions say how the fence's own costs are measured.
type FenceOptions struct {
	// Sessions are how many are bound when a takeover severs them, by wire.
	Sessions map[string][]int
	// Refreshed are how many sessions of one token are held while the calls of the election
	// backend are counted, for RefreshFor each.
	Refreshed  []int
	RefreshFor time.Duration
	// PerProxy is how many of those one proxy has at most: it has two files open for each, and
	// a process may not have any number. As many proxies are started as that takes, and each asks
	// for itself. Zero means no bound.
	PerProxy int
}

// Fence measures what takeovers and the refresh of permits cost.
func Fence(ctx context.Context, o Options, f FenceOptions, ro rig.Options) (*bench.Report, error) {
	report := NewReport(o.Name)
	for _, wire := range o.Wires {
		most := 0
		for _, n := range f.Sessions[wire] {
			most = max(most, n)
		}
		ro.Wire, ro.Peers, ro.Scale, ro.Connections = wire, false, -1, most+50
		if err := fenceOn(ctx, o, f, ro, report); err != nil {
			return nil, err
		}
	}
	return finish(report)
}

func fenceOn(ctx context.Context, o Options, f FenceOptions, ro rig.Options, report *bench.Report) error {
	r, err := rig.Start(ctx, ro)
	if err != nil {
		return err
	}
	defer r.Stop()
	introduce(report, r, ro.Wire)
	for _, n := range f.Sessions[ro.Wire] {
		s := bench.Sever{Wire: ro.Wire, Sessions: n}
		for round := range o.Rounds {
			took, err := sever(ctx, r, ro.Wire, n)
			if err != nil {
				return fmt.Errorf("a takeover of %d sessions: %w", n, err)
			}
			s.Took = append(s.Took, took.Seconds()*1000)
			o.tell("%s: round %d of %d, a takeover of %d sessions: %v", ro.Wire, round+1, o.Rounds, n, took.Round(10*time.Microsecond))
		}
		report.Severs = append(report.Severs, s)
	}
	if ro.Wire != load.Redis {
		return nil
	}
	for _, n := range f.Refreshed {
		c, err := refresh(ctx, r, spread(n, f.PerProxy), f.RefreshFor)
		if err != nil {
			return fmt.Errorf("%d sessions of one token: %w", n, err)
		}
		o.tell("%d sessions of one token, proxies: %d: %g calls of the election backend in %v", n, c.Proxies, c.Calls, f.RefreshFor)
		report.Refreshes = append(report.Refreshes, c)
	}
	return nil
}

func (o *Options) tell(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// sever binds n sessions, gives the leadership to a new term, and measures from the new
// leader's connect to its first applied write.
func sever(ctx context.Context, r *rig.Rig, wire string, n int) (time.Duration, error) {
	t := r.Target(bench.Fenced)
	held, err := load.Hold(ctx, wire, t, n)
	if err != nil {
		return 0, err
	}
	defer held.Close()
	if t.Token, err = r.Hand(ctx, t.Token); err != nil {
		return 0, err
	}
	start := time.Now()
	err = load.WriteOnce(ctx, wire, t)
	return time.Since(start), err
}

// evals are the calls of scripts in INFO commandstats: each call of the Redis backend is
// one.
var evals = regexp.MustCompile(`(?m)^cmdstat_eval(?:sha)?(?:_ro)?:calls=(\d+)`)

// countEvals is how many there were.
func countEvals(info string) float64 {
	total := 0.0
	for _, m := range evals.FindAllStringSubmatch(info, -1) {
		if n, err := strconv.ParseFloat(m[1], 64); err == nil {
			total += n
		}
	}
	return total
}

// spread shares n sessions out among as few proxies as will have them, as evenly as can be.
func spread(n, perProxy int) []int {
	proxies := 1
	if perProxy > 0 {
		proxies = max(1, (n+perProxy-1)/perProxy)
	}
	all := make([]int, proxies)
	for i := range all {
		all[i] = (n + i) / proxies
	}
	return all
}

// refresh counts how often the election backend is asked while sessions of one token are
// held, so many at each of several proxies.
func refresh(ctx context.Context, r *rig.Rig, at []int, d time.Duration) (bench.Refresh, error) {
	o, err := redis.ParseURL(r.Elections)
	if err != nil {
		return bench.Refresh{}, err
	}
	c := redis.NewClient(o)
	defer c.Close()
	total := 0
	for i, n := range at {
		t := r.Target(bench.Fenced)
		if i > 0 {
			p, another, err := r.Another(ctx)
			if err != nil {
				return bench.Refresh{}, err
			}
			defer p.Stop()
			t = another
		}
		held, err := load.Hold(ctx, load.Redis, t, n)
		if err != nil {
			return bench.Refresh{}, err
		}
		defer held.Close()
		total += n
	}
	before, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		return bench.Refresh{}, err
	}
	start := time.Now()
	if err := load.Pause(ctx, d); err != nil {
		return bench.Refresh{}, err
	}
	took := time.Since(start)
	after, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		return bench.Refresh{}, err
	}
	return bench.Refresh{Sessions: total, Proxies: len(at), Seconds: took.Seconds(), Calls: countEvals(after) - countEvals(before), Every: guard.DefaultValidateEvery.Seconds()}, nil
}
