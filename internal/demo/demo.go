// Package demo shows what fenceproxy is for, on real servers and with real
// processes: a leader that was paused writes after another has taken over; with the
// proxy in between the write is refused, without it the write lands.
//
// Run promises to succeed only if everything that it told was observed: it reads
// the servers themselves and compares. It touches nothing on the machine but
// temporary directories and free loopback ports.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// Options say what Run shows, and how.
type Options struct {
	// Self is the fenceproxy program, started again as proxy and as workers.
	Self string
	// Postgres and Redis choose the halves; neither means both.
	Postgres, Redis bool
	// Embedded uses the embedded server for Redis even where redis-server is installed.
	Embedded bool
	// Fast makes leases short.
	Fast bool
	// Out is where the story goes; Color, Live and Plain say what it understands:
	// colours, rewritten lines, ASCII only.
	Out                io.Writer
	Color, Live, Plain bool
}

// A demo is one run.
type demo struct {
	*term
	self     string
	ttl      time.Duration
	every    time.Duration
	patience time.Duration
	// writes is how many writes a leader is given.
	writes int
}

// ErrNothingToShow means that the machine lacks the server of the half asked for.
var ErrNothingToShow = errors.New("nothing to show")

// Run shows both halves, or those asked for.
func Run(ctx context.Context, o Options) error {
	d := &demo{
		term:     &term{out: o.Out, color: o.Color, live: o.Live, plain: o.Plain},
		self:     o.Self,
		ttl:      3 * time.Second,
		every:    100 * time.Millisecond,
		patience: 30 * time.Second,
		writes:   12,
	}
	if o.Fast {
		d.ttl, d.every, d.writes = 1500*time.Millisecond, 50*time.Millisecond, 4
	}
	both := !o.Postgres && !o.Redis
	_, noPostgres := servers.FindPostgres()
	_, noRedis := servers.FindRedis()

	d.blank()
	d.line(" " + d.paint(bold, "fenceproxy: a stale leader's write, with the fence and without"))
	d.blank()
	for _, l := range wrap("Two workers campaign for one leadership. The leader writes; the other stands by. Leadership is a lease: who does not renew it loses it. What happens when the leader is paused, loses its lease, wakes up and writes?", width-2) {
		d.line(" " + l)
	}

	var outcomes []outcome
	if o.Postgres || both {
		switch {
		case noPostgres == nil:
			got, err := d.half(ctx, d.postgresStage)
			if err != nil {
				return err
			}
			outcomes = append(outcomes, got...)
		case both:
			d.blank()
			d.narrate("This machine has no Postgres server, so the demo shows the Redis half alone. (apt-get install postgresql, or make deps, brings one.)")
		default:
			return fmt.Errorf("%w: %w (apt-get install postgresql; or make deps)", ErrNothingToShow, noPostgres)
		}
	}
	if o.Redis || both {
		stage := d.redisStage
		if noRedis != nil || o.Embedded {
			stage = d.embeddedStage
		}
		got, err := d.half(ctx, stage)
		if err != nil {
			return err
		}
		outcomes = append(outcomes, got...)
	}
	d.summary(outcomes)
	return nil
}

// half plays both acts on one server.
func (d *demo) half(ctx context.Context, build func(context.Context) (*stage, error)) ([]outcome, error) {
	s, err := build(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	var outcomes []outcome
	for _, fenced := range []bool{true, false} {
		a := &act{demo: d, stage: s, fenced: fenced}
		if fenced {
			proxy, addr, err := s.startProxy(ctx, d)
			if err != nil {
				return nil, err
			}
			a.addr, a.target, a.election = addr, "with_fence", "orders"
			d.chapter("With fenceproxy in between", fmt.Sprintf("workers %s fenceproxy at %s %s %s at %s", d.arrow(), hostPort(addr), d.arrow(), s.name, hostPort(s.direct)))
			o, err := a.play(ctx)
			proxy.terminate()
			if err != nil {
				return nil, d.failed(err, proxy)
			}
			outcomes = append(outcomes, o)
			continue
		}
		a.addr, a.target, a.election = s.direct, "without_fence", "orders-unguarded"
		d.chapter("The same without fenceproxy", fmt.Sprintf("workers %s %s at %s", d.arrow(), s.name, hostPort(s.direct)))
		o, err := a.play(ctx)
		if err != nil {
			return nil, d.failed(err, nil)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

func (d *demo) arrow() string { return d.pick("→", "->") }

// failed ends the story early.
func (d *demo) failed(err error, proxy *child) error {
	d.end()
	if errors.Is(err, errInterrupted) {
		return err
	}
	if proxy != nil {
		if log := proxy.said.String(); log != "" {
			return fmt.Errorf("the demo did not show what it should: %w\nThe proxy's log:\n%s", err, log)
		}
	}
	return fmt.Errorf("the demo did not show what it should: %w", err)
}

// summary ends the story.
func (d *demo) summary(outcomes []outcome) {
	d.title("In short")
	d.blank()
	for _, o := range outcomes {
		what := d.paint(green, "stale write refused")
		where := "with fenceproxy"
		if !o.fenced {
			what, where = d.paint(red, fmt.Sprintf("stale write landed, as number %d", o.row)), "without"
		}
		d.line(fmt.Sprintf("   %-9s  %-16s  %s", o.wire, where, what))
	}
	d.blank()
}
