package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
)

// A session makes requests, one after the other.
type session interface {
	// do makes one request and returns when all of it is answered.
	do() error
	// interrupt ends a do that goes on; another goroutine may call it.
	interrupt()
	close()
}

// openSessions opens n sessions, several at a time. After an error none is left open.
func openSessions(ctx context.Context, n int, open func(ctx context.Context, i int) (session, error)) ([]session, error) {
	all := make([]session, n)
	errs := make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, 16) {
		wg.Go(func() {
			for i := range next {
				all[i], errs[i] = open(ctx, i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			closeSessions(all)
			return nil, fmt.Errorf("opening %d sessions: %w", n, err)
		}
	}
	return all, nil
}

func closeSessions(all []session) {
	for _, s := range all {
		if s != nil {
			s.close()
		}
	}
}

// runSessions runs f for each session on a thread of its own, and returns when all have returned.
// At the end of ctx the sessions are interrupted.
func runSessions(ctx context.Context, all []session, f func(i int, s session) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	stop := context.AfterFunc(ctx, func() {
		for _, s := range all {
			s.interrupt()
		}
	})
	defer stop()
	for i, s := range all {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			errs[i] = f(i, s)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// closedLoop lets each session make its next request when it has the last one's answer, for
// the time d, and at least one: on a busy machine a short d may be over before a session begins.
func closedLoop(ctx context.Context, all []session, d time.Duration) (outcome, error) {
	each := make([]*bench.Latencies, len(all))
	start := time.Now()
	end := start.Add(d)
	ends := make([]time.Time, len(all))
	err := runSessions(ctx, all, func(i int, s session) error {
		l := bench.NewLatencies()
		each[i] = l
		for now := time.Now(); ; {
			if err := s.do(); err != nil {
				return err
			}
			after := time.Now()
			l.Record(after.Sub(now))
			if now = after; !now.Before(end) {
				ends[i] = now
				return nil
			}
		}
	})
	if err != nil {
		return outcome{}, err
	}
	o := joined(each)
	// The last requests may take longer than d, and count with the time that they took.
	last := end
	for _, t := range ends {
		if t.After(last) {
			last = t
		}
	}
	o.seconds = last.Sub(start).Seconds()
	return o, nil
}

// openLoop makes requests at a rate, all sessions together, for the time d, whatever the
// answers take. A session that is late sends at once, and each latency counts from when
// its request was due. What a session could not send within another d is counted with
// the time that it had waited by then.
func openLoop(ctx context.Context, all []session, d time.Duration, rate float64) (outcome, error) {
	each := make([]*bench.Latencies, len(all))
	unsent := make([]int64, len(all))
	interval := time.Duration(float64(len(all)) / rate * float64(time.Second))
	if interval <= 0 {
		return outcome{}, fmt.Errorf("a rate of %g a second cannot be made", rate)
	}
	start := time.Now().Add(5 * time.Millisecond) // when all threads run
	end, giveUp := start.Add(d), start.Add(2*d)
	err := runSessions(ctx, all, func(i int, s session) error {
		sharpen()
		l := bench.NewLatencies()
		each[i] = l
		// The sessions' requests lie evenly between each other's.
		due := start.Add(interval * time.Duration(i) / time.Duration(len(all)))
		for ; due.Before(end); due = due.Add(interval) {
			waitUntil(due)
			if now := time.Now(); now.After(giveUp) {
				for ; due.Before(end); due = due.Add(interval) {
					l.Record(now.Sub(due))
					unsent[i]++
				}
				return nil
			}
			if err := s.do(); err != nil {
				return err
			}
			l.Record(time.Since(due))
		}
		return nil
	})
	if err != nil {
		return outcome{}, err
	}
	o := joined(each)
	o.seconds = max(d.Seconds(), time.Since(start).Seconds())
	for _, n := range unsent {
		o.unsent += n
	}
	o.operations -= float64(o.unsent)
	return o, nil
}

func joined(each []*bench.Latencies) outcome {
	o := outcome{latencies: bench.NewLatencies()}
	for _, l := range each {
		o.latencies.Add(l)
	}
	o.operations = float64(o.latencies.Count())
	return o
}
