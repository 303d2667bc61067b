package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
	"github.com/fenceproxy/fenceproxy/bench/load"
	"github.com/fenceproxy/fenceproxy/bench/rig"
	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/open"
)

// Lines that a worker says.
const (
	saysReady   = "ready"   // it campaigns, and somebody leads
	saysApplied = "applied" // it leads, and its first write is applied
)

// WorkerCommand is the command line of a worker, before its flags: the program that runs
// this package must answer it with RunWorker.
const WorkerCommand = "bench-worker"

// WorkerOptions are what a worker of the failover benchmark is told.
type WorkerOptions struct {
	Elections, Owner, Wire, URL string
	TTL                         time.Duration
}

func (w WorkerOptions) args() []string {
	return []string{WorkerCommand, "--elections", w.Elections, "--owner", w.Owner, "--wire", w.Wire, "--url", w.URL, "--ttl", w.TTL.String()}
}

// RunWorker campaigns with the elector's own defaults, and each time that it leads writes
// once through the proxy and says so. It resigns when ctx is done.
func RunWorker(ctx context.Context, w WorkerOptions, out io.Writer) error {
	b, err := open.Backend(ctx, w.Elections, open.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	e, err := election.NewElector(ctx, b, election.ElectorConfig{Election: rig.Election, Owner: w.Owner, TTL: w.TTL})
	if err != nil {
		return err
	}
	e.OnBecomeLeader(func(ctx context.Context) {
		term, ok := election.TermFrom(ctx)
		if !ok {
			return
		}
		t := &load.Target{Name: bench.Fenced, URL: w.URL, Election: rig.Election, Token: term.Token}
		for load.WriteOnce(ctx, w.Wire, t) != nil {
			if load.Pause(ctx, time.Millisecond) != nil {
				return
			}
		}
		fmt.Fprintln(out, saysApplied)
		<-ctx.Done()
	})
	// It has heard from the backend, and so is a candidate that waits, or leads.
	for !e.Healthy() {
		if load.Pause(ctx, time.Millisecond) != nil {
			return e.Wait()
		}
	}
	fmt.Fprintln(out, saysReady)
	return e.Wait()
}

// A worker is the process of one.
type worker struct {
	cmd  *exec.Cmd
	said chan string   // what it says
	done chan struct{} // closed when it has ended

	applied bool // it was heard to have written
}

func startWorker(self string, w WorkerOptions) (*worker, error) {
	c := &worker{cmd: exec.Command(self, w.args()...), said: make(chan string, 100), done: make(chan struct{})}
	c.cmd.SysProcAttr = dieWithUs()
	var errs strings.Builder
	c.cmd.Stderr = &errs
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	go func() {
		defer close(c.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			select {
			case c.said <- lines.Text():
			default: // nobody listens to so much
			}
		}
		_ = c.cmd.Wait()
		if s := errs.String(); s != "" {
			select {
			case c.said <- "failed: " + s:
			default:
			}
		}
	}()
	return c, nil
}

// end sends a signal and waits for the worker's end.
func (c *worker) end(s syscall.Signal) {
	_ = c.cmd.Process.Signal(s)
	<-c.done
}

// hears waits until the worker says something, for ten minutes at most.
func (c *worker) hears(ctx context.Context, what string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for {
		select {
		case line := <-c.said:
			c.applied = c.applied || line == saysApplied
			if line == what {
				return nil
			}
			if strings.HasPrefix(line, "failed") {
				return errors.New(line)
			}
		case <-c.done:
			return errors.New("a worker ended by itself")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leads reports whether the worker has said that it applied its first write.
func (c *worker) leads() bool {
	for {
		select {
		case line := <-c.said:
			c.applied = c.applied || line == saysApplied
		default:
			return c.applied
		}
	}
}

// failovers measures failover with an election backend and a wire: killed and resigned,
// for each length of lease.
func failovers(ctx context.Context, o Options, e ElectionOptions, name, wire string, report *bench.Report) error {
	s, err := rig.StartBackend(ctx, name, e.Kube)
	if err != nil {
		return err
	}
	defer s.Stop()
	r, err := rig.Start(ctx, rig.Options{Self: e.Self, Wire: wire, Scale: -1, Elections: s.URL, NobodyLeads: true, Templates: e.Templates})
	if err != nil {
		return err
	}
	defer r.Stop()
	for _, ttl := range e.TTLs {
		if ttl == 0 {
			ttl = election.DefaultTTL
		}
		for _, graceful := range []bool{false, true} {
			took, err := failoverRounds(ctx, o, e.Self, WorkerOptions{Elections: s.URL, Wire: wire, URL: r.Target(bench.Fenced).URL, TTL: ttl}, graceful)
			if err != nil {
				return err
			}
			report.Failovers = append(report.Failovers, bench.Failover{
				Backend: name, Wire: wire, Graceful: graceful, TTL: float64(ttl.Milliseconds()), Took: took,
			})
			o.tell("%s, %s, lease %v, graceful %v: %.0f ms", name, wire, ttl, graceful, bench.Summarize(took).Median)
		}
	}
	return nil
}

// failoverRounds has two workers, and ends whichever leads, again and again. The leader
// ends at any point of the time between two renewals, as it would in life.
func failoverRounds(ctx context.Context, o Options, self string, w WorkerOptions, graceful bool) (took []float64, err error) {
	start := func(n int) (*worker, error) {
		w.Owner = fmt.Sprintf("worker-%d", n)
		return startWorker(self, w)
	}
	leader, err := start(0)
	if err != nil {
		return nil, err
	}
	var next *worker
	defer func() {
		var wg sync.WaitGroup
		for _, c := range []*worker{leader, next} {
			if c != nil {
				wg.Go(func() { c.end(syscall.SIGTERM) }) // so that nobody leads after it
			}
		}
		wg.Wait()
	}()
	if err := leader.hears(ctx, saysApplied); err != nil {
		return nil, err
	}
	for n := 1; len(took) < o.Rounds; n++ {
		if n > 3*o.Rounds+3 {
			return nil, errors.New("leaders lose their leases by themselves: this machine is too busy for leases so short")
		}
		if next, err = start(n); err != nil {
			return nil, err
		}
		if err := next.hears(ctx, saysReady); err != nil {
			return nil, err
		}
		if err := load.Pause(ctx, time.Duration(rand.Int64N(int64(w.TTL/3)))); err != nil { //nolint:gosec // no secret
			return nil, err
		}
		if next.leads() { // without having been asked to: that is no failover to measure
			leader.end(syscall.SIGKILL)
			leader, next = next, nil
			continue
		}
		at := time.Now()
		if graceful {
			// It resigns, and ends a little later.
			if err := leader.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				return nil, err
			}
		} else {
			leader.end(syscall.SIGKILL)
		}
		if err := next.hears(ctx, saysApplied); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at).Seconds()*1000)
		if graceful {
			<-leader.done
		}
		leader, next = next, nil
	}
	return took, nil
}
