package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

// Exit codes, as docs/cli.md lists them.
const (
	exitOK          = 0
	exitFailure     = 1 // something went wrong that is none of the below
	exitUsage       = 2 // the command line or the configuration is wrong
	exitNo          = 3 // asked and answered: busy, lost, not-owner, stale, vacant
	exitUnavailable = 4 // a backend or server could not be reached; the outcome is unknown
)

// commands is the command line.
type commands struct {
	Serve    serveCmd    `cmd:"" help:"Run the proxy."`
	Check    checkCmd    `cmd:"" help:"Say what would keep the proxy from working."`
	Install  installCmd  `cmd:"" help:"Install the fence's schema and role in Postgres."`
	Run      runCmd      `cmd:"" help:"Run a command while it holds the leadership."`
	Election electionCmd `cmd:"" help:"Take, keep, give up and look at a leadership."`
	Demo     demoCmd     `cmd:"" help:"See a stale leader's write refused, and then not refused."`
	Bench    benchCmd    `cmd:"" help:"Measure the proxy, beside others and beside the server itself."`
	Version  versionCmd  `cmd:"" help:"Print the version."`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the version."`

	DemoWorker  demoWorkerCmd  `cmd:"" hidden:"" help:"One of the demo's two workers."`
	BenchWorker benchWorkerCmd `cmd:"" hidden:"" help:"A candidate of the failover benchmark."`
}

const description = `fenceproxy stands in front of Postgres and of Redis or Valkey and lets a session write only while it holds the live token of an election. A stale leader's writes are refused, whatever was paused, cut off or restarted.`

// streams are a command's input and outputs.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// An exitError ends the process with a code of its own. A nil err prints nothing:
// the command has said it already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage makes an error of exitUsage.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// run is the whole program but for signals; it returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	var cli commands
	done := false // kong has printed the help, which is all that was asked for
	parser, err := kong.New(&cli,
		kong.Name("fenceproxy"),
		kong.Description(description),
		kong.Writers(out, errOut),
		kong.Vars{"version": versionLine()},
		kong.Exit(func(int) { done = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 90}),
	)
	if err != nil {
		fmt.Fprintln(errOut, "fenceproxy:", err)
		return exitFailure
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if done {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(errOut, "fenceproxy: %s\nTry %s --help.\n", withoutTokens(err.Error(), args), commandOf(err))
		return exitUsage
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.Bind(&streams{in, out, errOut})
	err = parsed.Run()
	code := exitCode(err)
	var quiet *exitError
	if err != nil && (!errors.As(err, &quiet) || quiet.err != nil) {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(errOut, "fenceproxy:", line)
		}
	}
	return code
}

// withoutTokens takes out of a message what looks like a token given as an argument,
// which no command takes.
func withoutTokens(message string, args []string) string {
	for _, a := range args {
		if i := strings.IndexByte(a, '='); i >= 0 {
			a = a[i+1:]
		}
		if _, err := election.ParseToken(a); err == nil && len(a) >= 32 {
			message = strings.ReplaceAll(message, a, "[token]")
		}
	}
	return message
}

// commandOf is the command that a usage error is about.
func commandOf(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		if n := parse.Context.Selected(); n != nil {
			return n.FullPath()
		}
	}
	return "fenceproxy"
}

// exitCode is the exit code of a command's error.
func exitCode(err error) int {
	var own *exitError
	var mistakes config.Mistakes
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &mistakes),
		errors.Is(err, election.ErrInvalidID), errors.Is(err, election.ErrInvalidToken),
		errors.Is(err, election.ErrInvalidOwner), errors.Is(err, election.ErrInvalidTTL),
		errors.Is(err, election.ErrInvalidFencing), errors.Is(err, election.ErrUnsupportedOption):
		return exitUsage
	case serverSaid(err):
		return exitFailure
	case errors.Is(err, election.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable
	}
	return exitFailure
}
