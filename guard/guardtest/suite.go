package guardtest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// A Resource is a guarded resource under test.
type Resource struct {
	Fence guard.Fence
	// Election returns an election id that no other test uses.
	Election func(t testing.TB) string
	// Bind opens a connection and binds it to the term, if the fence is exactly r, as a
	// wire does. Its error wraps guard.ErrConflict where the fence is another.
	Bind func(t testing.TB, term guard.Term, r guard.Record) (Conn, error)
	// Lose removes the election's fence.
	Lose func(t testing.TB, electionID string)
}

// A Conn is a bound connection.
type Conn interface {
	// Write writes through the connection, and fails if the connection was ended.
	Write(ctx context.Context) error
}

// Term makes a term of a fresh token.
func Term(electionID string, number int64) (guard.Term, election.Token) {
	tok := election.NewToken()
	return guard.Term{Election: electionID, Owner: "leader", Number: number, Digest: tok.Digest()}, tok
}

// Record is a fence at the term.
func Record(t guard.Term, s guard.State, raise byte) guard.Record {
	return guard.Record{Highest: t.Number, Holder: t.Digest, State: s, Raise: guard.RaiseID{raise}}
}

// Run runs the suite.
func Run(t *testing.T, r Resource) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Resource)
	}{
		{"SwapComparesTheWholeRecord", swapCompares},
		{"BindComparesTheWholeRecord", bindCompares},
		{"SeverEndsOlderTermsOnly", severEndsOlder},
		{"SeverRefusesWhatIsBoundAbove", severAbove},
		{"TakeoverSeversBeforeItAdmits", takeover},
		{"AnotherProxyFinishesTheSever", finishes},
		{"LostFenceIsRaisedValidatedAndSevered", lost},
		{"StaleProxyCannotUseALostFence", lostStale},
		{"LostCounterIsRefused", counter},
		{"EqualNumberOtherHolderIsRefused", equal},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, r) })
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r Resource) put(t testing.TB, id string, rec guard.Record) {
	t.Helper()
	old, err := r.Fence.Read(t.Context(), id)
	must(t, err)
	must(t, r.Fence.Swap(t.Context(), id, old, rec))
}

// bound binds a connection to a term whose fence it puts in place first.
func (r Resource) bound(t testing.TB, term guard.Term) Conn {
	t.Helper()
	rec := Record(term, guard.Severed, 1)
	r.put(t, term.Election, rec)
	c, err := r.Bind(t, term, rec)
	must(t, err)
	must(t, c.Write(t.Context()))
	return c
}

func alive(t testing.TB, c Conn, want bool, what string) {
	t.Helper()
	if err := c.Write(t.Context()); (err == nil) != want {
		t.Errorf("%s: alive %v, want %v (%v)", what, err == nil, want, err)
	}
}

func swapCompares(t *testing.T, r Resource) {
	id := r.Election(t)
	ctx := t.Context()
	term, _ := Term(id, 7)
	a := Record(term, guard.Raised, 1)
	if got, err := r.Fence.Read(ctx, id); err != nil || got != (guard.Record{}) {
		t.Fatalf("fresh: %+v, %v", got, err)
	}
	if err := r.Fence.Swap(ctx, id, a, a); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("swap of a missing record: %v", err)
	}
	must(t, r.Fence.Swap(ctx, id, guard.Record{}, a))
	if got, err := r.Fence.Read(ctx, id); err != nil || got != a {
		t.Errorf("read %+v, %v; want %+v", got, err, a)
	}
	for name, old := range map[string]guard.Record{
		"none":           {},
		"other number":   {Highest: 6, Holder: a.Holder, State: a.State, Raise: a.Raise},
		"other holder":   {Highest: 7, State: a.State, Raise: a.Raise},
		"other state":    {Highest: 7, Holder: a.Holder, State: guard.Severed, Raise: a.Raise},
		"other raise id": {Highest: 7, Holder: a.Holder, State: a.State, Raise: guard.RaiseID{2}},
	} {
		if err := r.Fence.Swap(ctx, id, old, Record(term, guard.Severed, 9)); !errors.Is(err, guard.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := Record(term, guard.Severed, 1)
	must(t, r.Fence.Swap(ctx, id, a, b))
	if got, err := r.Fence.Read(ctx, id); err != nil || got != b {
		t.Errorf("read %+v, %v; want %+v", got, err, b)
	}
}

func bindCompares(t *testing.T, r Resource) {
	id := r.Election(t)
	term, _ := Term(id, 7)
	good := Record(term, guard.Severed, 1)
	other, _ := Term(id, 7)
	higher, _ := Term(id, 8)
	for _, c := range []struct {
		name  string
		fence guard.Record
		ok    bool
	}{
		{"missing", guard.Record{}, false},
		{"the same", good, true},
		{"only raised", Record(term, guard.Raised, 1), false},
		{"raised again (other raise id)", Record(term, guard.Severed, 2), false},
		{"other holder", Record(other, guard.Severed, 1), false},
		{"higher", Record(higher, guard.Severed, 1), false},
	} {
		if c.fence != (guard.Record{}) {
			r.put(t, id, c.fence)
		}
		conn, err := r.Bind(t, term, good)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, guard.ErrConflict) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil {
			alive(t, conn, true, c.name)
		}
	}
}

func severEndsOlder(t *testing.T, r Resource) {
	id, elsewhere := r.Election(t), r.Election(t)
	old, _ := Term(id, 5)
	newer, _ := Term(id, 6)
	other, _ := Term(id, 7)
	mine, _ := Term(id, 7)
	apart, _ := Term(elsewhere, 3)
	a, b, c := r.bound(t, old), r.bound(t, newer), r.bound(t, other)
	d, e := r.bound(t, mine), r.bound(t, apart)
	must(t, r.Fence.Sever(t.Context(), mine))
	alive(t, a, false, "older")
	alive(t, b, false, "old")
	alive(t, c, false, "same number, other holder")
	alive(t, d, true, "own")
	alive(t, e, true, "other election")
	must(t, r.Fence.Sever(t.Context(), mine))
}

func severAbove(t *testing.T, r Resource) {
	id := r.Election(t)
	above, _ := Term(id, 8)
	mine, _ := Term(id, 7)
	c := r.bound(t, above)
	err := r.Fence.Sever(t.Context(), mine)
	var e *guard.BoundAboveError
	if !errors.As(err, &e) || e.Number != 8 {
		t.Errorf("got %v", err)
	}
	alive(t, c, true, "the later term")
}

// proxy is a guard over the resource, as one proxy has it.
func (r Resource) proxy(t testing.TB, b election.Backend, f guard.Fence) *guard.Guard {
	g := guard.New(b, f, guard.Config{ValidateEvery: 20 * time.Millisecond})
	t.Cleanup(g.Close)
	return g
}

func (r Resource) admitted(t testing.TB, g *guard.Guard, id string, tok election.Token) *guard.Permit {
	t.Helper()
	p, err := g.Admit(t.Context(), guard.Credential{Election: id, Token: tok})
	must(t, err)
	t.Cleanup(p.Release)
	return p
}

func refusal(t testing.TB, g *guard.Guard, id string, tok election.Token, want guard.Reason) {
	t.Helper()
	_, err := g.Admit(t.Context(), guard.Credential{Election: id, Token: tok})
	var r *guard.Refusal
	if !errors.As(err, &r) || r.Reason != want {
		t.Errorf("got %v, want reason %d", err, want)
	}
}

func takeover(t *testing.T, r Resource) {
	id := r.Election(t)
	b := new(Backend)
	one, two := r.proxy(t, b, r.Fence), r.proxy(t, b, r.Fence)
	tok := election.NewToken()
	b.Grant(tok, 100)
	p := r.admitted(t, one, id, tok)
	c1, err := r.Bind(t, p.Term(), p.Record())
	must(t, err)
	c2, err := r.Bind(t, p.Term(), p.Record())
	must(t, err)
	next := election.NewToken()
	b.Grant(next, 101)
	q := r.admitted(t, two, id, next)
	alive(t, c1, false, "a connection of the old term")
	alive(t, c2, false, "a connection of the old term")
	if _, err := r.Bind(t, p.Term(), p.Record()); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("the old term binds: %v", err)
	}
	<-p.Done()
	refusal(t, one, id, tok, guard.Stale)
	c3, err := r.Bind(t, q.Term(), q.Record())
	must(t, err)
	alive(t, c3, true, "the new term")
}

// dying is a fence whose proxy dies when it comes to the sever.
type dying struct {
	guard.Fence
	dead atomic.Bool
}

var errDied = errors.New("died")

func (d *dying) Sever(context.Context, guard.Term) error { d.dead.Store(true); return errDied }

func finishes(t *testing.T, r Resource) {
	id := r.Election(t)
	b := new(Backend)
	old, _ := Term(id, 99)
	c := r.bound(t, old)
	tok := election.NewToken()
	b.Grant(tok, 100)
	d := &dying{Fence: r.Fence}
	refusal(t, r.proxy(t, b, d), id, tok, guard.FenceUnavailable)
	if !d.dead.Load() {
		t.Fatal("did not come to the sever")
	}
	rec, err := r.Fence.Read(t.Context(), id)
	must(t, err)
	if rec.State != guard.Raised || rec.Highest != 100 {
		t.Fatalf("left behind: %+v", rec)
	}
	alive(t, c, true, "before the sever")
	// INVARIANT: nobody binds between the raise and the end of the sever.
	term := guard.Term{Election: id, Number: 100, Digest: tok.Digest()}
	pretend := rec
	pretend.State = guard.Severed
	if _, err := r.Bind(t, term, pretend); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("bound while only raised: %v", err)
	}
	p := r.admitted(t, r.proxy(t, b, r.Fence), id, tok)
	alive(t, c, false, "after the sever")
	if p.Record() != pretend {
		t.Errorf("%+v, want %+v", p.Record(), pretend)
	}
}

func lost(t *testing.T, r Resource) {
	id := r.Election(t)
	b := new(Backend)
	g := r.proxy(t, b, r.Fence)
	tok := election.NewToken()
	b.Grant(tok, 100)
	p := r.admitted(t, g, id, tok)
	c, err := r.Bind(t, p.Term(), p.Record())
	must(t, err)
	r.Lose(t, id)
	if _, err := r.Bind(t, p.Term(), p.Record()); !errors.Is(err, guard.ErrConflict) {
		t.Fatalf("bound without a fence: %v", err)
	}
	p.Invalidate()
	q := r.admitted(t, g, id, tok)
	if q.Record().Raise == p.Record().Raise {
		t.Error("the same raise id")
	}
	if _, err := r.Bind(t, p.Term(), p.Record()); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("bound by the record that was lost: %v", err)
	}
	_, err = r.Bind(t, q.Term(), q.Record())
	must(t, err)
	alive(t, c, true, "bound before the loss")
	next := election.NewToken()
	b.Grant(next, 101)
	r.admitted(t, g, id, next)
	alive(t, c, false, "bound before the loss, after a takeover")
}

// paused is a fence whose proxy is stopped before its first raise.
type paused struct {
	guard.Fence
	at, go_ chan struct{}
}

func (p *paused) Swap(ctx context.Context, id string, old, new guard.Record) error {
	if p.at != nil {
		close(p.at)
		<-p.go_
		p.at = nil
	}
	return p.Fence.Swap(ctx, id, old, new)
}

func lostStale(t *testing.T, r Resource) {
	id := r.Election(t)
	b := new(Backend)
	tok := election.NewToken()
	b.Grant(tok, 100)
	pf := &paused{Fence: r.Fence, at: make(chan struct{}), go_: make(chan struct{})}
	at := pf.at
	stale := r.proxy(t, b, pf)
	answer := make(chan error, 1)
	go func() {
		_, err := stale.Admit(t.Context(), guard.Credential{Election: id, Token: tok})
		answer <- err
	}()
	<-at // it read that there is no fence, found itself current, and was stopped
	next := election.NewToken()
	b.Grant(next, 101)
	g := r.proxy(t, b, r.Fence)
	p := r.admitted(t, g, id, next)
	c, err := r.Bind(t, p.Term(), p.Record())
	must(t, err)
	r.Lose(t, id)
	close(pf.go_) // it raises the missing fence to its old number
	err = <-answer
	var refused *guard.Refusal
	if !errors.As(err, &refused) || refused.Reason != guard.Stale {
		t.Errorf("the stale proxy: %v", err)
	}
	alive(t, c, true, "the leader")
	// The leader puts things right.
	if _, err := r.Bind(t, p.Term(), p.Record()); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("bound by the record that was lost: %v", err)
	}
	p.Invalidate()
	q := r.admitted(t, g, id, next)
	_, err = r.Bind(t, q.Term(), q.Record())
	must(t, err)
}

func counter(t *testing.T, r Resource) {
	id := r.Election(t)
	b := new(Backend)
	g := r.proxy(t, b, r.Fence)
	tok := election.NewToken()
	b.Grant(tok, 100)
	p := r.admitted(t, g, id, tok)
	c, err := r.Bind(t, p.Term(), p.Record())
	must(t, err)
	next := election.NewToken()
	b.Grant(next, 1)
	refusal(t, g, id, next, guard.FenceRegressed)
	r.Lose(t, id) // and the fence too
	refusal(t, g, id, next, guard.FenceRegressed)
	alive(t, c, true, "the old term, which nobody followed")
	b.Grant(next, 102) // acquired again with a floor
	r.admitted(t, g, id, next)
	alive(t, c, false, "the old term")
}

func equal(t *testing.T, r Resource) {
	id := r.Election(t)
	b := new(Backend)
	g := r.proxy(t, b, r.Fence)
	tok := election.NewToken()
	b.Grant(tok, 100)
	r.admitted(t, g, id, tok)
	next := election.NewToken()
	b.Grant(next, 100)
	refusal(t, g, id, next, guard.FenceConflict)
	term := guard.Term{Election: id, Number: 100, Digest: next.Digest()}
	rec, err := r.Fence.Read(t.Context(), id)
	must(t, err)
	if rec.Holder != tok.Digest() {
		t.Errorf("fence %+v", rec)
	}
	if _, err := r.Bind(t, term, Record(term, guard.Severed, 1)); !errors.Is(err, guard.ErrConflict) {
		t.Errorf("bound: %v", err)
	}
}
