package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

type electionCmd struct {
	Acquire  acquireCmd  `cmd:"" help:"Ask for the leadership, once."`
	Renew    renewCmd    `cmd:"" help:"Keep the leadership for another lease."`
	Resign   resignCmd   `cmd:"" help:"Give the leadership up."`
	Status   statusCmd   `cmd:"" help:"Say who leads."`
	Validate validateCmd `cmd:"" help:"Say whether a token is the live leader's."`
	Watch    watchCmd    `cmd:"" help:"Show who leads, and each change."`
}

// backendFlags are common to all election commands.
type backendFlags struct {
	Election string `arg:"" help:"The election's name."`
	backendFlag
	Timeout time.Duration `default:"5s" help:"How long to wait for the backend."`
	JSON    bool          `name:"json" help:"Print one JSON object."`
}

// backendFlag says where the elections are kept.
type backendFlag struct {
	Backend string `env:"FENCEPROXY_ELECTIONS" placeholder:"URL" help:"Election backend: redis://…, valkey://…, postgres://…, zookeeper://… or kubernetes:///… Prefer the environment variable where the URL holds a password."`
}

// Validate refuses to go on without a backend that others can ask too.
func (f *backendFlag) Validate() error {
	switch {
	case f.Backend == "":
		return errors.New("no election backend: give --backend=URL or set the environment variable FENCEPROXY_ELECTIONS")
	case strings.HasPrefix(strings.ToLower(f.Backend), "memory:"):
		return errors.New("--backend: memory elections live in one process: the leadership would end with this command")
	}
	return nil
}

// ask opens the backend and asks it one question.
func (f *backendFlags) ask(ctx context.Context, question func(context.Context, election.Backend) error) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	b, err := openElections(ctx, config.NewSecret(f.Backend))
	if err != nil {
		return err
	}
	defer b.Close()
	err = question(ctx, b)
	return advised(err, electionFix(config.NewSecret(f.Backend), err))
}

// An answer is what --json prints. Times are in milliseconds.
type answer struct {
	Election  string `json:"election"`
	Outcome   string `json:"outcome"`
	Token     string `json:"token,omitempty"`
	Number    int64  `json:"number,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Remaining int64  `json:"remaining_ms,omitempty"`
	Reason    string `json:"reason,omitempty"`
	HoldOff   int64  `json:"hold_off_ms,omitempty"`
}

// say prints the answer in the form asked for and returns exitNo unless yes.
func (f *backendFlags) say(s *streams, yes bool, a answer, format string, args ...any) error {
	a.Election = f.Election
	var err error
	if f.JSON {
		err = json.NewEncoder(s.out).Encode(a)
	} else {
		_, err = fmt.Fprintf(s.out, format+"\n", args...)
	}
	if err == nil && !yes {
		return &exitError{code: exitNo}
	}
	return err
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// A number is an integer whose flag takes "-5" for a number too, so that the answer
// is about numbers and not about flags.
type number int64

// Decode implements kong.MapperValue.
func (n *number) Decode(c *kong.DecodeContext) error {
	t := c.Scan.Pop()
	v, err := strconv.ParseInt(t.String(), 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", t.String())
	}
	if v < 0 {
		return fmt.Errorf("%d is below 0", v)
	}
	*n = number(v)
	return nil
}

type acquireCmd struct {
	backendFlags
	Owner      string        `placeholder:"NAME" help:"Your name, for people who look; default is the host's name and a random part."`
	TTL        time.Duration `default:"15s" help:"How long the lease lasts unless renewed."`
	MinFencing number        `placeholder:"N" help:"The fencing number is to be at least N."`
	TokenFile  string        `placeholder:"FILE" help:"Ask again with the token in this file (- for standard input), after an attempt whose answer was lost."`
	SaveToken  string        `placeholder:"FILE" help:"Write the token to this file, which only you can read, and do not print it."`
}

// Help has examples.
func (acquireCmd) Help() string {
	return `Prints the token and the fencing number. The token is a secret: whoever holds it may write. Exit code 3 says that somebody else leads.

Examples:

  export FENCEPROXY_ELECTIONS=redis://localhost:6379
  fenceproxy election acquire orders --ttl 30s --save-token token
  fenceproxy election acquire orders --json | jq .number`
}

// Run asks once.
func (c *acquireCmd) Run(ctx context.Context, s *streams) error {
	o := election.AcquireOptions{Owner: c.Owner, TTL: c.TTL, MinFencing: int64(c.MinFencing)}
	if c.TokenFile != "" {
		var err error
		if o.Token, err = (tokenFlags{c.TokenFile}).token(s); err != nil {
			return err
		}
	}
	return c.ask(ctx, func(ctx context.Context, b election.Backend) error {
		r, err := b.Acquire(ctx, c.Election, o)
		if err != nil {
			return err
		}
		a := answer{Outcome: r.Status.String(), Number: r.Number, Owner: r.Owner, Remaining: r.Remaining.Milliseconds()}
		if r.Status == election.Busy {
			a.Reason = r.Reason.String()
			if r.Reason == election.BusyHoldOff {
				return c.say(s, false, a, "busy: %s is held off for another %v", c.Election, short(r.Remaining))
			}
			return c.say(s, false, a, "busy: %s leads %s with number %d, for another %v", r.Owner, c.Election, r.Number, short(r.Remaining))
		}
		secret := "token: " + r.Token.Reveal()
		if c.SaveToken != "" {
			if err := saveToken(c.SaveToken, r.Token); err != nil {
				// Nobody will ever know the token: do not lead until the lease ends.
				_, resignErr := b.Resign(ctx, c.Election, r.Token, election.ResignOptions{})
				return errors.Join(err, resignErr)
			}
			secret = "token: in " + c.SaveToken
		} else {
			a.Token = r.Token.Reveal()
		}
		return c.say(s, true, a, "acquired: %s leads %s with number %d, for %v unless renewed\n%s", r.Owner, c.Election, r.Number, short(r.Remaining), secret)
	})
}

type renewCmd struct {
	backendFlags
	tokenFlags
}

// Help has examples.
func (renewCmd) Help() string {
	return `Exit code 3 says that the leadership is lost.

Examples:

  fenceproxy election renew orders --token-file token
  pass show orders | fenceproxy election renew orders --token-file -`
}

// Run renews once.
func (c *renewCmd) Run(ctx context.Context, s *streams) error {
	t, err := c.token(s)
	if err != nil {
		return err
	}
	return c.ask(ctx, func(ctx context.Context, b election.Backend) error {
		r, err := b.Renew(ctx, c.Election, t)
		if err != nil {
			return err
		}
		a := answer{Outcome: r.Status.String(), Number: r.Number, Remaining: r.Remaining.Milliseconds()}
		if r.Status == election.Lost {
			return c.say(s, false, a, "lost: this token no longer leads %s", c.Election)
		}
		return c.say(s, true, a, "renewed: number %d leads %s for %v unless renewed", r.Number, c.Election, short(r.Remaining))
	})
}

type resignCmd struct {
	backendFlags
	tokenFlags
	HoldOff time.Duration `help:"Keep everybody from acquiring for this long (redis and valkey only)."`
}

// Help has examples.
func (resignCmd) Help() string {
	return `Exit code 3 says that the token was not the leader's.

Examples:

  fenceproxy election resign orders --token-file token
  fenceproxy election resign orders --token-file token --hold-off 10s`
}

// Run resigns.
func (c *resignCmd) Run(ctx context.Context, s *streams) error {
	t, err := c.token(s)
	if err != nil {
		return err
	}
	return c.ask(ctx, func(ctx context.Context, b election.Backend) error {
		r, err := b.Resign(ctx, c.Election, t, election.ResignOptions{HoldOff: c.HoldOff})
		if err != nil {
			return err
		}
		a := answer{Outcome: r.Status.String()}
		if r.Status == election.NotOwner {
			return c.say(s, false, a, "not-owner: this token does not lead %s", c.Election)
		}
		return c.say(s, true, a, "released: nobody leads %s", c.Election)
	})
}

type statusCmd struct{ backendFlags }

// Help has examples.
func (statusCmd) Help() string {
	return `Exit code 3 says that nobody leads.

Examples:

  fenceproxy election status orders
  fenceproxy election status orders --json`
}

// Run looks.
func (c *statusCmd) Run(ctx context.Context, s *streams) error {
	return c.ask(ctx, func(ctx context.Context, b election.Backend) error {
		r, err := b.Status(ctx, c.Election)
		if err != nil {
			return err
		}
		a := answer{Outcome: r.Status.String(), Number: r.Number, Owner: r.Owner, Remaining: r.Remaining.Milliseconds(), HoldOff: r.HoldOff.Milliseconds()}
		switch {
		case r.Status == election.Held:
			return c.say(s, true, a, "held: %s leads %s with number %d, for another %v", r.Owner, c.Election, r.Number, short(r.Remaining))
		case r.HoldOff > 0:
			return c.say(s, false, a, "vacant: nobody leads %s, which is held off for another %v", c.Election, short(r.HoldOff))
		}
		return c.say(s, false, a, "vacant: nobody leads %s", c.Election)
	})
}

type validateCmd struct {
	backendFlags
	tokenFlags
}

// Help has examples.
func (validateCmd) Help() string {
	return `Anybody who holds the token may ask; nothing is changed. Exit code 3 says stale or vacant.

Examples:

  fenceproxy election validate orders --token-file token && echo "still leading"`
}

// Run asks.
func (c *validateCmd) Run(ctx context.Context, s *streams) error {
	t, err := c.token(s)
	if err != nil {
		return err
	}
	return c.ask(ctx, func(ctx context.Context, b election.Backend) error {
		r, err := b.Validate(ctx, c.Election, t)
		if err != nil {
			return err
		}
		a := answer{Outcome: r.Standing.String(), Number: r.Number, Owner: r.Owner, Remaining: r.Remaining.Milliseconds()}
		switch r.Standing {
		case election.StandingCurrent:
			return c.say(s, true, a, "current: this token leads %s with number %d, for another %v", c.Election, r.Number, short(r.Remaining))
		case election.StandingStale:
			return c.say(s, false, a, "stale: %s leads %s with number %d", r.Owner, c.Election, r.Number)
		}
		return c.say(s, false, a, "vacant: nobody leads %s", c.Election)
	})
}
