package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

// Exit codes of run beside the common ones, as env and nohup have them.
const (
	exitCannotRun = 126
	exitNotFound  = 127
	exitSignalled = 128 // and the signal's number
)

type runCmd struct {
	Election string `required:"" placeholder:"ELECTION" help:"The election to hold while the command runs."`
	backendFlag
	Owner   string         `placeholder:"NAME" help:"Your name, for people who look; default is the host's name and a random part."`
	TTL     time.Duration  `default:"15s" help:"How long the lease lasts unrenewed: the longest time that nobody leads after a crash."`
	Grace   time.Duration  `help:"How long the command may take to end after SIGTERM, when the lease could not be renewed; default is a sixth of the lease, at most a quarter of it."`
	Wait    *time.Duration `help:"Give up after waiting for the leadership for this long; 0s asks once. Default is to wait for as long as it takes."`
	Once    bool           `help:"End when the leadership is lost, and do not campaign again."`
	HoldOff time.Duration  `help:"Keep everybody from acquiring for this long after the release (redis and valkey only)."`
	Command []string       `arg:"" passthrough:"" help:"The command and its arguments, after --."`
}

// Help has examples.
func (runCmd) Help() string {
	return `Waits for the leadership, runs the command while it holds it, and gives it up when the command and all that it started have ended. The command finds FENCE_ELECTION, FENCE_TOKEN and FENCE_NUMBER in its environment.

When the leadership is lost, the command and all that it started are ended before the lease is over: with SIGTERM, and then SIGKILL. Then run campaigns again. When the command ends by itself, run passes its exit code on. Signals are passed on to the command. Its own exit codes are 3 for a leadership that did not come within --wait or was lost with --once, 4 for a backend out of reach then, 126 and 127 for a command that cannot be run or is not there, and 128 and the signal's number for a signal.

Examples:

  export FENCEPROXY_ELECTIONS=redis://localhost:6379
  fenceproxy run --election orders -- ./worker --fast
  fenceproxy run --election nightly --wait 0s --once -- ./report.sh
  fenceproxy run --election orders -- sh -c 'PGOPTIONS="-c fence.election=$FENCE_ELECTION -c fence.token=$FENCE_TOKEN" exec psql -f job.sql'`
}

// A reign is what run learns from one time of leading.
type reign struct {
	began bool // else it has ended
	term  election.Term
	lost  error // why it ended before the command did; nil when the command ended
	code  int   // the command's exit code
	err   error // why the command could not be run
}

// A runner is a run under way.
type runner struct {
	*runCmd
	s       *streams
	b       election.Backend
	path    string
	reigns  chan reign
	forward chan syscall.Signal
	asked   chan election.Observation // answers to Acquire
	said    string                    // the last trouble told
}

// config is the elector's. The margin is twice the grace: the command is killed when
// half of it is left, so that it is gone before the lease.
func (c *runCmd) config() (election.ElectorConfig, error) {
	switch {
	case c.Grace == 0:
		c.Grace = c.TTL / 6
	case c.Grace < 0 || c.Grace > c.TTL/4:
		return election.ElectorConfig{}, usage("--grace %v: must be at most a quarter of --ttl %v", c.Grace, c.TTL)
	}
	if c.Wait != nil && *c.Wait < 0 {
		return election.ElectorConfig{}, usage("--wait %v: must not be negative", *c.Wait)
	}
	margin := 2 * c.Grace
	return election.ElectorConfig{
		Election: c.Election, Owner: c.Owner, HoldOff: c.HoldOff,
		TTL: c.TTL, Margin: margin, Heartbeat: (c.TTL - margin) / 3,
	}, nil
}

// Run runs the command while it leads. It does not look at its context, which ends with
// the first SIGTERM or SIGINT: signals are the command's to answer.
func (c *runCmd) Run(ctx context.Context, s *streams) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return usage("no command: write it after --")
	}
	path, err := exec.LookPath(c.Command[0])
	if err != nil {
		return cannotRun(err)
	}
	signals := make(chan os.Signal, 32)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGPIPE)
	defer signal.Stop(signals)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	b, err := openElections(ctx, config.NewSecret(c.Backend))
	if err != nil {
		return err
	}
	defer b.Close()
	r := &runner{
		runCmd: c, s: s, b: b, path: path,
		reigns: make(chan reign), forward: make(chan syscall.Signal, cap(signals)), asked: make(chan election.Observation),
	}
	return r.run(ctx, stop, cfg, signals)
}

// run campaigns until the command has ended, or until there is a reason not to.
func (r *runner) run(ctx context.Context, stop func(), cfg election.ElectorConfig, signals <-chan os.Signal) error {
	troubles := make(chan error)
	ended := make(chan struct{})
	defer close(ended)
	cfg.OnError = func(err error) {
		select {
		case troubles <- err:
		case <-ended:
		}
	}
	e, err := election.NewElector(ctx, election.Observe(r.b, "run", r.observe(ended)), cfg)
	if err != nil {
		return err
	}
	over := make(chan error, 1)
	go func() { over <- e.Wait() }()
	defer func() { stop(); _ = e.Wait() }()
	e.OnBecomeLeader(r.lead)

	var (
		leading bool
		waiting bool  // has been said
		result  error // what run returns, once it has stopped
		trouble error // the last call's
		sig     syscall.Signal
	)
	patience := r.patience()
	for {
		select {
		case g := <-r.reigns:
			leading = g.began
			switch {
			case result != nil: // ending already
			case g.began:
				patience, waiting = nil, false
				r.said = ""
				r.say("leading %s with number %d", r.Election, g.term.Number)
			case g.err != nil:
				result = cannotRun(g.err)
				stop()
			case g.lost == nil:
				result = &exitError{code: g.code}
				stop()
			case sig != 0:
				result = &exitError{code: exitSignalled + int(sig)}
				stop()
			case r.Once:
				result = &exitError{exitNo, fmt.Errorf("%s, number %d: %w", r.Election, g.term.Number, g.lost)}
				stop()
			default:
				r.say("stopped the command: %v; campaigning again", g.lost)
				patience = r.patience()
			}
		case s := <-signals:
			switch s, _ := s.(syscall.Signal); { // as all signals on unix
			case s == syscall.SIGTSTP || s == syscall.SIGPIPE:
				// A leader is not put to sleep by a key, nor ended by a reader of its messages.
			case leading:
				if terminal(s) {
					sig = s
				}
				r.pass(s)
			case terminal(s) && result == nil:
				result = &exitError{code: exitSignalled + int(s)}
				stop()
			}
		case o := <-r.asked:
			if o.Failed {
				break // why, comes as a trouble
			}
			trouble = nil
			switch {
			case o.Status == election.Acquired.String() || leading || result != nil:
			case r.once():
				result = r.gaveUp(ctx, nil)
				stop()
			case !waiting:
				waiting = true
				r.say("waiting for the leadership of %s", r.Election)
			}
		case <-patience:
			result = r.gaveUp(ctx, trouble)
			patience = nil
			stop()
		case err := <-troubles:
			var hints *election.HintsError
			if errors.Is(err, election.ErrLost) || errors.Is(err, election.ErrTrustEnded) || errors.As(err, &hints) {
				break // the reign's end has told of it; without hints all goes on
			}
			trouble = err
			if text := err.Error(); text != r.said {
				r.said = text
				r.say("%v", err)
			}
			if r.once() && !leading && result == nil {
				result = r.gaveUp(ctx, trouble)
				stop()
			}
		case err := <-over:
			if result == nil {
				return err
			}
			if err != nil {
				r.say("%v; the lease ends by itself within %v", err, r.TTL)
			}
			var own *exitError
			if errors.As(result, &own) && own.code == exitOK {
				return nil
			}
			return result
		}
	}
}

// observe tells the loop of every answer to Acquire.
func (r *runner) observe(ended <-chan struct{}) func(election.Observation) {
	return func(o election.Observation) {
		if o.Operation != election.OpAcquire {
			return
		}
		select {
		case r.asked <- o:
		case <-ended:
		}
	}
}

// patience ends when --wait does; nil is for ever, and for asking once.
func (r *runner) patience() <-chan time.Time {
	if r.Wait == nil || *r.Wait == 0 {
		return nil
	}
	return time.After(*r.Wait)
}

// once reports whether the first answer decides.
func (r *runner) once() bool { return r.Wait != nil && *r.Wait == 0 }

// gaveUp is the error of a leadership that did not come.
func (r *runner) gaveUp(ctx context.Context, trouble error) error {
	if trouble != nil {
		return &exitError{exitUnavailable, fmt.Errorf("gave up waiting for %s: %w", r.Election, trouble)}
	}
	ctx, cancel := context.WithTimeout(ctx, r.TTL)
	defer cancel()
	st, err := r.b.Status(ctx, r.Election)
	if err != nil || st.Status != election.Held {
		return &exitError{exitNo, fmt.Errorf("busy: %s did not become free in time", r.Election)}
	}
	return &exitError{exitNo, fmt.Errorf("busy: %s leads %s with number %d, for another %v", st.Owner, r.Election, st.Number, short(st.Remaining))}
}

// pass has a signal sent to the command; one too many is dropped.
func (r *runner) pass(s syscall.Signal) {
	select {
	case r.forward <- s:
	default:
	}
}

func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.s.err, "fenceproxy: "+format+"\n", args...)
}

// terminal reports whether a signal asks a program to end.
func terminal(s syscall.Signal) bool {
	return s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP || s == syscall.SIGQUIT
}

// cannotRun is the error of a command that does not start.
func cannotRun(err error) error {
	code := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitNotFound
	}
	return &exitError{code, fmt.Errorf("running the command: %w", err)}
}
