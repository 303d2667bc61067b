package election

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// An ElectorConfig says what an Elector campaigns for, and how. The zero value is
// useful but for Election.
type ElectorConfig struct {
	// Election is the election's id.
	Election string
	// Owner names this candidate to humans; empty means one DefaultOwner() for the
	// elector's life.
	Owner string
	// TTL is how long the lease lasts unrenewed; zero means DefaultTTL.
	TTL time.Duration
	// Heartbeat is how often the lease is renewed; zero means a third of TTL. It is at
	// most half of TTL - Margin, so that one failure leaves time for another attempt.
	Heartbeat time.Duration
	// Margin is how long before the lease's end the trust in it ends, and how long
	// callbacks may take to return once it has; zero means a tenth of TTL. It also
	// covers the difference between this clock's speed and the backend's. It is at
	// most half of TTL.
	Margin time.Duration
	// Retry is the longest wait between two attempts to acquire; zero means Heartbeat,
	// but at most five seconds. A backend's hints (Hinter) shorten it, to 50 ms at least.
	Retry time.Duration
	// CallTimeout bounds each call of the backend; zero means half of Heartbeat, but
	// at least a second and at most five. It is never longer than TTL - Margin.
	CallTimeout time.Duration
	// ReleaseTimeout bounds the release of the leadership, with all its attempts; zero
	// means five seconds.
	ReleaseTimeout time.Duration
	// WindDown is how long the lease is renewed for callbacks that have not returned
	// after the elector's context ended, or after another callback's panic; zero means
	// for as long as they take. The lease of one that takes longer runs out, and
	// Overstay tells of it.
	WindDown time.Duration
	// HoldOff keeps the election unclaimable for this long after a release; zero means
	// not at all. A backend that cannot enforce it ends the elector with
	// ErrUnsupportedOption, before it has led.
	HoldOff time.Duration
	// MinFencing is a floor for the fencing numbers. The elector raises it by itself
	// above every number that it sees.
	MinFencing int64

	// OnError is told of every call that failed, of each loss, and of panics, and as a
	// *HintsError of hints that fail; nil means nobody is. Calls may overlap, and renewal
	// waits for them: it must return soon.
	OnError func(error)
	// Overstay is told, once for each term, of callbacks that still run when the lease
	// may have ended, though their context ended a Margin or more before: another may
	// lead by now. It may end the process, and where nothing else refuses a stale
	// leader's work it should. Nil means that OnError is told instead. The elector does
	// not campaign while such a callback runs.
	Overstay func(*OverstayError)
}

// Bounds of the defaults of an ElectorConfig.
const (
	minCallTimeout        = time.Second
	maxCallTimeout        = 5 * time.Second
	maxRetry              = 5 * time.Second
	defaultReleaseTimeout = 5 * time.Second
)

// Check says what is wrong with c, as NewElector would.
func (c ElectorConfig) Check() error {
	_, err := c.normalize()
	return err
}

// normalize fills in the defaults of c and checks it.
func (c ElectorConfig) normalize() (ElectorConfig, error) {
	o, err := AcquireOptions{Owner: c.Owner, TTL: c.TTL, MinFencing: c.MinFencing}.Normalize(c.Election)
	if err != nil {
		return c, err
	}
	c.Owner, c.TTL = o.Owner, o.TTL
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"heartbeat", &c.Heartbeat, c.TTL / 3},
		{"margin", &c.Margin, c.TTL / 10},
		{"wait between attempts", &c.Retry, 0},
		{"call timeout", &c.CallTimeout, 0},
		{"release timeout", &c.ReleaseTimeout, defaultReleaseTimeout},
		{"wind-down", &c.WindDown, 0},
		{"hold-off", &c.HoldOff, 0},
	} {
		if *d.value < 0 || *d.value > MaxTTL {
			return c, fmt.Errorf("%w: %s %v, must be 0 to %v", ErrInvalidTTL, d.name, *d.value, MaxTTL)
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if c.Margin > c.TTL/2 {
		return c, fmt.Errorf("%w: margin %v, must be at most half of the TTL %v", ErrInvalidTTL, c.Margin, c.TTL)
	}
	trust := c.TTL - c.Margin
	if c.Heartbeat > trust/2 {
		return c, &HeartbeatError{Heartbeat: c.Heartbeat, Most: trust / 2, TTL: c.TTL, Margin: c.Margin}
	}
	if c.Retry == 0 {
		c.Retry = min(c.Heartbeat, maxRetry)
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = min(max(c.Heartbeat/2, minCallTimeout), maxCallTimeout)
	}
	c.CallTimeout = min(c.CallTimeout, trust)
	return c, nil
}

// A HeartbeatError is the ErrInvalidTTL of a Heartbeat above Most: one failure would leave no
// time for another attempt.
type HeartbeatError struct{ Heartbeat, Most, TTL, Margin time.Duration }

// Error says what is wrong.
func (e *HeartbeatError) Error() string { return e.Say("heartbeat") }

// Say is Error where the heartbeat has another name.
func (e *HeartbeatError) Say(name string) string {
	return fmt.Sprintf("%v: %s %v, must be at most %v, half of the TTL %v less the margin %v", ErrInvalidTTL, name, e.Heartbeat, e.Most, e.TTL, e.Margin)
}

// Unwrap returns ErrInvalidTTL.
func (e *HeartbeatError) Unwrap() error { return ErrInvalidTTL }

// busyPause is how long to wait after a busy answer: until the lease in the way may
// have ended, but no longer than Retry. Chance keeps candidates apart.
func (e *Elector) busyPause(remaining time.Duration) time.Duration {
	retry := e.c.Retry
	if remaining >= retry {
		return retry - upTo(retry/5)
	}
	return min(retry, max(remaining, retry/20)+upTo(retry/8))
}

// backOff is how long to wait after the n-th failure in a row: from an eighth of the
// longest wait, doubled each time, less up to a half by chance.
func backOff(n int, longest time.Duration) time.Duration {
	d := longest >> max(0, 4-n)
	return d - upTo(d/2)
}

// upTo returns a random duration from 0 to d.
func upTo(d time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(d) + 1)) //nolint:gosec // no secret
}

// sleep waits for d and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
