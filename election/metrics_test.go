package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/election/memory"
)

func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []election.Observation
		faults := electiontest.NewFaults(memory.New())
		b := election.Observe(faults, "memory", func(o election.Observation) { seen = append(seen, o) })
		ctx, id := t.Context(), "very-secret-election"
		o := election.AcquireOptions{Owner: "very-secret-owner"}
		g, _ := b.Acquire(ctx, id, o)
		_, _ = b.Acquire(ctx, id, o)
		_, _ = b.Status(ctx, id)
		_, _ = b.Validate(ctx, id, g.Token)
		_, _ = b.Validate(ctx, id, election.NewToken())
		_, _ = b.Renew(ctx, id, g.Token)
		_, _ = b.Renew(ctx, id, election.NewToken())
		_, _ = b.Resign(ctx, id, election.NewToken(), election.ResignOptions{})
		_, _ = b.Resign(ctx, id, g.Token, election.ResignOptions{HoldOff: time.Hour})
		_, _ = b.Acquire(ctx, id, o)
		_, _ = b.Status(ctx, id)
		_, _ = b.Validate(ctx, id, g.Token)
		_, _ = b.Acquire(ctx, "", o)
		_, _ = b.Acquire(ctx, id, election.AcquireOptions{Owner: "a b"})
		_, _ = b.Acquire(ctx, id, election.AcquireOptions{TTL: 1})
		_, _ = b.Acquire(ctx, id, election.AcquireOptions{MinFencing: -1})
		_, _ = b.Renew(ctx, id, election.Token{})
		faults.Set(electiontest.Refused)
		_, _ = b.Status(ctx, id)
		faults.Set(electiontest.Silent)
		late, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _ = b.Validate(late, id, g.Token)
		over, cancel := context.WithCancel(ctx)
		cancel()
		_, _ = b.Validate(over, id, g.Token)
		faults.Set(electiontest.Sound)
		faults.Slow(time.Second)
		_, _ = b.Status(ctx, id)
		faults.Slow(0)
		_ = b.Close()
		_, _ = b.Status(ctx, id)
		for _, err := range []error{
			election.ErrUnsupportedOption, election.ErrNumbersExhausted, election.ErrCorrupt, errors.New("very-secret-error"),
		} {
			faults.Replace(failing{err: fmt.Errorf("doing it: %w", err)})
			_, _ = b.Status(ctx, id)
		}
		want := `acquire acquired, acquire busy, status held, validate current, validate stale, renew renewed, renew lost, ` +
			`resign not-owner, resign released, acquire hold-off, status vacant, validate vacant, acquire invalid!, acquire invalid!, ` +
			`acquire invalid!, acquire invalid!, renew invalid!, status unavailable!, validate unavailable! 1s, validate cancelled!, ` +
			`status vacant 2s, status closed!, status unsupported!, status exhausted!, status corrupt!, status error!`
		var got []string
		for _, o := range seen {
			s := fmt.Sprint(o.Operation, " ", o.Status)
			if o.Failed {
				s += "!"
			}
			if o.Took > 0 {
				s += fmt.Sprint(" ", o.Took)
			}
			got = append(got, s)
			if all := fmt.Sprintf("%+v", o); o.Backend != "memory" || strings.Contains(all, "secret") || strings.Contains(all, g.Token.Reveal()) {
				t.Errorf("observed %s", all)
			}
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("observed %s\nwant     %s", s, want)
		}
	})
}

func TestObserveNothing(t *testing.T) {
	m := memory.New()
	if b := election.Observe(m, "memory", nil); b != election.Backend(m) {
		t.Errorf("%T", b)
	}
}

// A failing backend answers Status with an error.
type failing struct {
	election.Backend
	err error
}

func (f failing) Status(context.Context, string) (election.StatusResult, error) {
	return election.StatusResult{}, f.err
}
