package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/config"
)

type watchCmd struct {
	backendFlags
	Every time.Duration `default:"1s" help:"How often to look."`
}

// Help has examples.
func (watchCmd) Help() string {
	return `Shows each change until SIGINT or SIGTERM. In a terminal the last line is live; elsewhere there is a line for each change of leader or number, and with --json one for each renewal too. A backend out of reach is shown and asked again.

Examples:

  fenceproxy election watch orders
  fenceproxy election watch orders --json | jq -c '[.time, .owner, .number]'`
}

// Run watches.
func (c *watchCmd) Run(ctx context.Context, s *streams) error {
	if c.Every < time.Millisecond {
		return usage("--every %v: must be at least 1ms", c.Every)
	}
	b, err := openElections(ctx, config.NewSecret(c.Backend))
	if err != nil {
		return err
	}
	defer b.Close()
	w := &watcher{election: c.Election, out: s.out, json: c.JSON, live: !c.JSON && isTerminal(s.out)}
	defer w.end()
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for {
		st, err := c.look(ctx, b)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && exitCode(err) == exitUsage:
			return err // it will not get better
		}
		if err := w.show(time.Now(), st, err); err != nil {
			return fmt.Errorf("showing: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *watchCmd) look(ctx context.Context, b election.Backend) (election.StatusResult, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return b.Status(ctx, c.Election)
}

// A sight is one line of watch --json.
type sight struct {
	Time string `json:"time"`
	answer
	// Change is first, term, vacant, hold-off, renewed, error, or again after an error.
	Change string `json:"change"`
	Error  string `json:"error,omitempty"`
}

// A watcher shows what changes.
type watcher struct {
	election string
	out      io.Writer
	json     bool
	live     bool // a terminal: the last line is rewritten
	open     bool // a live line awaits its end
	seen     bool
	failed   string // the last error's text, empty for none
	last     election.StatusResult
}

// show shows one look at the election.
func (w *watcher) show(now time.Time, st election.StatusResult, failure error) error {
	change := w.change(st, failure)
	if change == "" && !w.live {
		return nil
	}
	a := answer{Election: w.election, Outcome: "unknown"}
	var text string
	if failure != nil {
		text = fmt.Sprintf("unknown: %v; asking again", failure)
	} else {
		a.Outcome, a.Number, a.Owner = st.Status.String(), st.Number, st.Owner
		a.Remaining, a.HoldOff = st.Remaining.Milliseconds(), st.HoldOff.Milliseconds()
		switch {
		case st.Status == election.Held:
			text = fmt.Sprintf("held: %s leads %s with number %d, for another %v", st.Owner, w.election, st.Number, short(st.Remaining))
		case st.HoldOff > 0:
			text = fmt.Sprintf("vacant: nobody leads %s, which is held off for another %v", w.election, short(st.HoldOff))
		default:
			text = fmt.Sprintf("vacant: nobody leads %s", w.election)
		}
	}
	var err error
	switch {
	case w.json:
		s := sight{Time: now.UTC().Format("2006-01-02T15:04:05.000Z07:00"), answer: a, Change: change}
		if failure != nil {
			s.Error = failure.Error()
		}
		return json.NewEncoder(w.out).Encode(s)
	case w.live:
		start := "\r\x1b[K" // over what was there
		if w.open && change != "" && change != "renewed" {
			start = "\n"
		}
		w.open = true
		_, err = fmt.Fprintf(w.out, "%s%s %s", start, now.Format(time.TimeOnly), text)
	case change != "renewed":
		_, err = fmt.Fprintf(w.out, "%s %s\n", now.Format(time.TimeOnly), text)
	}
	return err
}

// change says what is new, and remembers it; empty means nothing.
func (w *watcher) change(st election.StatusResult, failure error) string {
	was, failed, first := w.last, w.failed, !w.seen
	if failure != nil {
		w.failed = failure.Error()
		if w.failed == failed {
			return ""
		}
		return "error"
	}
	w.failed, w.seen, w.last = "", true, st
	switch {
	case first:
		return "first"
	case st.Status == election.Held && (was.Status != st.Status || was.Number != st.Number || was.Owner != st.Owner):
		return "term"
	case st.Status == election.Vacant && st.HoldOff > 0 && was.HoldOff == 0:
		return "hold-off"
	case st.Status == election.Vacant && (was.Status != st.Status || was.HoldOff > 0 && st.HoldOff == 0):
		return "vacant"
	case failed != "":
		return "again"
	case st.Status == election.Held && st.Remaining > was.Remaining:
		return "renewed"
	}
	return ""
}

// end ends the live line.
func (w *watcher) end() {
	if w.open {
		fmt.Fprintln(w.out)
	}
}

// isTerminal reports whether out is a terminal that can go back to a line's begin.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
