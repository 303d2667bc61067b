package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// An Event is a line that a worker prints: what it just did or learned.
type Event struct {
	Kind EventKind `json:"event"`
	// Number is the fencing number that the worker holds.
	Number int64 `json:"number,omitempty"`
	// Write is the name of the write that the event is about.
	Write string `json:"write,omitempty"`
	// Error is what the server or the proxy said, and Code its SQLSTATE or first word.
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
	// Leader is who leads, where it is another.
	Leader string `json:"leader,omitempty"`
}

// An EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	// Acquired: the worker became leader.
	Acquired EventKind = "acquired"
	// StandsBy: another leads.
	StandsBy EventKind = "stands-by"
	// Checked: its lease is good; it works on the next write. A pause here is the
	// one that no check can see.
	Checked EventKind = "checked"
	// Wrote: the write was applied.
	Wrote EventKind = "wrote"
	// Refused: the write failed on the connection that it has had all along.
	Refused EventKind = "refused"
	// RefusedAgain: the write failed on a new connection with the same token.
	RefusedAgain EventKind = "refused-again"
	// Lost: the election backend says that another leads.
	Lost EventKind = "lost"
	// Failed: something else went wrong.
	Failed EventKind = "failed"
)

// WorkerOptions are what a worker needs.
type WorkerOptions struct {
	// Name is A or B.
	Name string
	// Elections keeps the Election that it campaigns in, with leases of TTL.
	Elections election.Backend
	Election  string
	TTL       time.Duration
	// Wire is postgres or redis; Addr its URL; Target the table or list written to.
	Wire, Addr, Target string
	// Fenced means that Addr is a fenceproxy, which wants the token.
	Fenced bool
	// Every is the time between two writes.
	Every time.Duration
	// Out is where the events go, a JSON object a line.
	Out io.Writer
}

// RunWorker campaigns, and writes while it leads, until ctx is done. It is a careful
// leader: it renews early and checks its lease before each write. It is still only
// as good as the time between that check and the write.
func RunWorker(ctx context.Context, o WorkerOptions) error {
	w := &worker{WorkerOptions: o, events: json.NewEncoder(o.Out)}
	for ctx.Err() == nil {
		asked := time.Now()
		grant, err := w.Elections.Acquire(ctx, w.Election, election.AcquireOptions{Owner: "worker-" + w.Name, TTL: w.TTL})
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was told to end
		case err != nil:
			return fmt.Errorf("worker %s: %w", w.Name, err)
		case grant.Status == election.Acquired:
			if err := w.lead(ctx, grant, asked.Add(w.TTL)); err != nil && ctx.Err() == nil {
				w.say(Event{Kind: Failed, Error: err.Error()})
				return fmt.Errorf("worker %s: %w", w.Name, err)
			}
		default:
			w.standBy(grant.Owner)
		}
		pause(ctx, w.Every)
	}
	return nil
}

type worker struct {
	WorkerOptions
	events *json.Encoder
	// standing is whom it has said that it stands by for.
	standing string
	seq      int
}

func (w *worker) say(e Event) {
	// Who reads has gone: then so will we.
	_ = w.events.Encode(e)
}

func (w *worker) refused(kind EventKind, e entry, err error) {
	text, code := explain(err)
	w.say(Event{Kind: kind, Number: e.number, Write: e.write, Error: text, Code: code})
}

func (w *worker) standBy(leader string) {
	if w.standing != leader {
		w.standing = leader
		w.say(Event{Kind: StandsBy, Leader: leader})
	}
}

// lead writes until the leadership is lost, on one connection.
func (w *worker) lead(ctx context.Context, grant election.AcquireResult, trusted time.Time) error {
	w.standing = ""
	w.say(Event{Kind: Acquired, Number: grant.Number})
	conn, err := w.connect(ctx, grant.Token)
	if err != nil {
		return err
	}
	defer func() { conn.close() }()
	for ctx.Err() == nil {
		// The check that a careful leader makes: does my lease still hold?
		if !time.Now().Before(trusted) {
			w.say(Event{Kind: Lost, Number: grant.Number})
			return nil
		}
		w.say(Event{Kind: Checked, Number: grant.Number})
		pause(ctx, w.Every) // the work that the next write is the result of

		w.seq++
		write := entry{worker: w.Name, number: grant.Number, write: fmt.Sprintf("%s%d", w.Name, w.seq)}
		if err := conn.write(ctx, write); err == nil {
			w.say(Event{Kind: Wrote, Number: grant.Number, Write: write.write})
		} else if ctx.Err() == nil {
			w.refused(Refused, write, err)
			conn.close()
			conn, err = w.again(ctx, grant.Token, write)
			if err != nil {
				return err
			}
		}

		if time.Until(trusted) < 2*w.TTL/3 {
			asked := time.Now()
			r, err := w.Elections.Renew(ctx, w.Election, grant.Token)
			if err != nil {
				return err
			}
			if r.Status == election.Lost {
				w.say(Event{Kind: Lost, Number: grant.Number})
				return nil
			}
			trusted = asked.Add(w.TTL)
		}
	}
	return nil
}

// again does what many a program does when a write fails: it connects anew, with the
// token that it has, and tries the same write once more.
func (w *worker) again(ctx context.Context, t election.Token, write entry) (resource, error) {
	conn, err := w.connect(ctx, t)
	if err != nil {
		return closed{}, err
	}
	if err := conn.write(ctx, write); err != nil {
		w.refused(RefusedAgain, write, err)
	} else {
		w.say(Event{Kind: Wrote, Number: write.number, Write: write.write})
	}
	return conn, nil
}

func (w *worker) connect(ctx context.Context, t election.Token) (resource, error) {
	if !w.Fenced {
		t = election.Token{}
	}
	if w.Wire == postgresWire {
		return connectPostgres(ctx, w.Addr, w.Target, w.Election, t)
	}
	return connectRedis(ctx, w.Addr, w.Target, w.Election, t)
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
