package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// Names of the variables that tell a command of its term, beside tokenEnv.
const (
	electionEnv = "FENCE_ELECTION"
	numberEnv   = "FENCE_NUMBER"
)

// lead is the callback of the elector: it returns when nothing of the command is left,
// so that the release comes after that.
func (r *runner) lead(ctx context.Context) {
	term, _ := election.TermFrom(ctx)
	for len(r.forward) > 0 {
		<-r.forward // meant for an earlier command
	}
	r.reigns <- reign{began: true, term: term}
	g := r.supervise(ctx, term)
	g.term = term
	r.reigns <- g
}

// supervise runs the command until it ends or the leadership does, and then ends all
// that is left of it.
func (r *runner) supervise(ctx context.Context, term election.Term) reign {
	// The kernel sends the child SIGKILL when the *thread* that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	t, err := adopt()
	if err != nil {
		return reign{err: err}
	}
	// Safety: nothing starts without a live term.
	if ctx.Err() != nil {
		return reign{lost: context.Cause(ctx)}
	}
	cmd := exec.Command(r.path, r.Command[1:]...)
	cmd.Args[0] = r.Command[0]
	// The later value of a name counts.
	cmd.Env = append(os.Environ(),
		electionEnv+"="+term.Election,
		tokenEnv+"="+term.Token.Reveal(),
		numberEnv+"="+strconv.FormatInt(term.Number, 10))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.s.in, r.s.out, r.s.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return reign{err: err}
	}
	t.leader = cmd.Process.Pid
	exited := make(chan struct{})
	var waited error
	go func() { waited = cmd.Wait(); close(exited) }()

	for {
		select {
		case <-exited:
			t.leader = 0
			t.end(ctx, r.Grace, nil, died)
			var exit *exec.ExitError
			if waited != nil && !errors.As(waited, &exit) {
				return reign{err: waited}
			}
			return reign{code: codeOf(cmd.ProcessState)}
		case <-ctx.Done():
			t.end(ctx, r.Grace, exited, died)
			return reign{lost: context.Cause(ctx)}
		case s := <-r.forward:
			_ = syscall.Kill(-cmd.Process.Pid, s)
		case <-died:
			t.reap()
		}
	}
}

// codeOf is a process's exit code as a shell tells it.
func codeOf(p *os.ProcessState) int {
	if w, ok := p.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return exitSignalled + int(w.Signal())
	}
	return p.ExitCode()
}

// killAt is when what is left must be killed.
//
// Safety (E13): trust that ended leaves twice the grace until the lease may be another's;
// a term that is lost leaves no time at all.
func killAt(ctx context.Context, asked time.Time, grace time.Duration) time.Time {
	at := asked.Add(grace)
	if ctx.Err() == nil {
		return at
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, election.ErrTrustEnded):
		if term, ok := election.TermFrom(ctx); ok && term.TrustedUntil.Add(grace).Before(at) {
			return term.TrustedUntil.Add(grace)
		}
	case errors.Is(cause, election.ErrLost):
		return time.Time{}
	}
	return at
}
