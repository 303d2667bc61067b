package guard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// The model test runs several guards against one election and one resource whose every
// step a random scheduler takes: a proxy is paused wherever a request or a reply of
// its is left lying, for as long as it likes. Requests and replies get lost, fences get
// lost, the backend loses its counter, leases run out. Sessions try to bind with any
// permit that they were ever given, however old.
//
// What must hold, at every bind that the resource lets through:
//
//	order    no bind with a higher number was ever let through before
//	holder   no bind with the same number was ever let through for another holder
//	severed  no connection that is bound to another term lives

type model struct {
	losesFence   bool
	losesCounter bool
	stuckClock   bool // the backend's numbers start again from 1 after a loss
}

func TestModel(t *testing.T) {
	for name, m := range map[string]model{
		"fence and counter lost":               {losesFence: true, losesCounter: true},
		"counter lost, clock of no help":       {losesCounter: true, stuckClock: true},
		"fence and counter lost, and no clock": {losesFence: true, losesCounter: true, stuckClock: true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				// A failed property unwinds by a panic, which has to leave the bubble.
				var failed any
				synctest.Test(t, func(*testing.T) {
					defer func() { failed = recover() }()
					m.run(rt)
				})
				if failed != nil {
					panic(failed)
				}
			})
		})
	}
}

type world struct {
	m      model
	fatalf func(format string, args ...any)

	mu    sync.Mutex
	ops   []*op
	seq   int
	given []*guard.Permit

	guards [3]*guard.Guard
	wg     sync.WaitGroup // of admit
	stop   chan struct{}

	// The election backend.
	tokens         [3]election.Token
	holder         int // index of tokens; -1 when vacant
	number, last   int64
	expiry         time.Time
	highestGranted int64

	// The resource.
	rec     guard.Record
	conns   []*modelConn
	highest int64
	holders map[int64]election.Digest
	binds   int
}

type modelConn struct {
	term  guard.Term
	alive bool
}

// An op is a request on its way. It is applied at one moment, answered at a later one.
type op struct {
	who     string
	seq     int
	apply   func() any
	applied bool
	result  any
	reply   chan struct{}
}

var errLost = errors.New("lost on the way")

// call sends a request and waits for its answer. Where the caller gives up first, the
// request is still on its way.
func (w *world) call(ctx context.Context, who string, apply func() any) any {
	o := &op{who: who, apply: apply, reply: make(chan struct{})}
	w.mu.Lock()
	w.seq++
	o.seq = w.seq
	w.ops = append(w.ops, o)
	w.mu.Unlock()
	select {
	case <-o.reply:
		return o.result
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *world) standing(t election.Token) election.ValidateResult {
	left := time.Until(w.expiry)
	switch {
	case w.holder < 0 || left <= 0:
		return election.ValidateResult{Standing: election.StandingVacant}
	case w.tokens[w.holder] != t:
		return election.ValidateResult{Standing: election.StandingStale, Number: w.number, Remaining: left}
	}
	return election.ValidateResult{Standing: election.StandingCurrent, Number: w.number, Remaining: left}
}

type modelBackend struct {
	election.Backend
	w   *world
	who string
}

func (b modelBackend) Validate(ctx context.Context, _ string, t election.Token) (election.ValidateResult, error) {
	switch r := b.w.call(ctx, b.who+" validate", func() any { return b.w.standing(t) }).(type) {
	case election.ValidateResult:
		return r, nil
	case error:
		return election.ValidateResult{}, r
	}
	panic("unreachable")
}

type modelFence struct {
	w   *world
	who string
}

func (f modelFence) Read(ctx context.Context, _ string) (guard.Record, error) {
	switch r := f.w.call(ctx, f.who+" read", func() any { return f.w.rec }).(type) {
	case guard.Record:
		return r, nil
	case error:
		return guard.Record{}, r
	}
	panic("unreachable")
}

func (f modelFence) Swap(ctx context.Context, _ string, old, new guard.Record) error {
	err, _ := f.w.call(ctx, f.who+" swap", func() any {
		if f.w.rec != old {
			return guard.ErrConflict
		}
		f.w.rec = new
		return nil
	}).(error)
	return err
}

func (f modelFence) Sever(ctx context.Context, t guard.Term) error {
	for {
		r := f.w.call(ctx, f.who+" list", func() any {
			var old []*modelConn
			for _, c := range f.w.conns {
				switch {
				case !c.alive || c.term.Number == t.Number && c.term.Digest == t.Digest:
				case c.term.Number > t.Number:
					return &guard.BoundAboveError{Election: elec, Number: c.term.Number}
				default:
					old = append(old, c)
				}
			}
			return old
		})
		old, ok := r.([]*modelConn)
		if !ok {
			return r.(error)
		}
		if len(old) == 0 {
			return nil
		}
		for _, c := range old {
			if err, _ := f.w.call(ctx, f.who+" kill", func() any { c.alive = false; return nil }).(error); err != nil {
				return err
			}
		}
	}
}

func (w *world) acquire(i int, floor int64) {
	if w.holder >= 0 && time.Until(w.expiry) > 0 {
		return
	}
	n := max(w.last+1, floor)
	if !w.m.stuckClock {
		n = max(n, time.Now().UnixMilli())
	}
	w.holder, w.number, w.last, w.expiry = i, n, n, time.Now().Add(3*time.Second)
	w.highestGranted = max(w.highestGranted, n)
}

// bind is one session's bind, with whatever permit it has.
func (w *world) bind(p *guard.Permit) {
	t := p.Term()
	if w.rec != p.Record() {
		p.Invalidate()
		return
	}
	w.binds++
	strict := !(w.m.losesFence && w.m.losesCounter && w.m.stuckClock)
	if strict && t.Number < w.highest {
		w.fatalf("order: bound %d after %d", t.Number, w.highest)
	}
	if h, ok := w.holders[t.Number]; strict && ok && h != t.Digest {
		w.fatalf("holder: number %d bound for two holders", t.Number)
	}
	for _, c := range w.conns {
		if c.alive && (c.term.Number != t.Number || c.term.Digest != t.Digest) {
			w.fatalf("severed: bound %d while a connection of %d lives", t.Number, c.term.Number)
		}
	}
	w.highest = max(w.highest, t.Number)
	w.holders[t.Number] = t.Digest
	w.conns = append(w.conns, &modelConn{t, true})
}

func newWorld(m model, fatalf func(string, ...any)) *world {
	w := &world{m: m, fatalf: fatalf, holder: -1, holders: map[int64]election.Digest{}, stop: make(chan struct{})}
	for i := range w.guards {
		who := fmt.Sprint("guard ", i)
		w.guards[i] = guard.New(modelBackend{w: w, who: who}, modelFence{w, who}, guard.Config{})
		w.tokens[i] = election.NewToken()
	}
	return w
}

func (w *world) end() {
	close(w.stop)
	for _, g := range w.guards {
		g.Close()
	}
	w.wg.Wait()
}

// admit lets a session of guard g present token i.
func (w *world) admit(g, i int) {
	w.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		go func() {
			select {
			case <-w.stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		p, err := w.guards[g].Admit(ctx, cred(w.tokens[i]))
		if err == nil {
			w.mu.Lock()
			w.given = append(w.given, p)
			w.mu.Unlock()
		}
	})
}

func (m model) run(rt *rapid.T) {
	w := newWorld(m, rt.Fatalf)
	defer w.end()
	index := rapid.IntRange(0, 2)
	steps := rapid.IntRange(50, 300).Draw(rt, "steps")
	for range steps {
		synctest.Wait()
		w.mu.Lock()
		slices.SortFunc(w.ops, func(a, b *op) int { return cmp.Or(cmp.Compare(a.who, b.who), a.seq-b.seq) })
		slices.SortFunc(w.given, func(a, b *guard.Permit) int { return cmp.Compare(a.Term().Number, b.Term().Number) })
		w.mu.Unlock()
		switch a := rapid.IntRange(0, 99).Draw(rt, "action"); {
		case a < 20 && w.pending() > 0:
			w.step(rapid.IntRange(0, w.pending()-1).Draw(rt, "op"), rapid.IntRange(0, 29).Draw(rt, "fate"))
		case a < 45: // one proxy runs for a while, the others are paused
			g := index.Draw(rt, "guard")
			for range rapid.IntRange(1, 12).Draw(rt, "for") {
				w.stepOf(g)
				synctest.Wait()
			}
		case a < 52:
			if rapid.Bool().Draw(rt, "resigned before") {
				w.holder = -1
			}
			w.acquire(index.Draw(rt, "token"), 0)
		case a < 65:
			i := index.Draw(rt, "token")
			if w.holder >= 0 && rapid.IntRange(0, 3).Draw(rt, "of another") > 0 {
				i = w.holder
			}
			w.admit(index.Draw(rt, "guard"), i)
		case a < 78 && len(w.given) > 0:
			w.bind(w.given[rapid.IntRange(0, len(w.given)-1).Draw(rt, "permit")])
		case a < 85 && len(w.conns) > 0:
			for _, c := range w.conns {
				c.alive = false // closed by their sessions
			}
		case a < 91 && m.losesFence:
			w.rec = guard.Record{}
		case a < 93 && m.losesCounter:
			w.holder, w.last = -1, 0
			time.Sleep(50 * time.Millisecond)
		case a < 96 && w.holder >= 0:
			w.expiry = time.Now().Add(3 * time.Second)
		default:
			time.Sleep(time.Duration(rapid.IntRange(1, 1500).Draw(rt, "ms")) * time.Millisecond)
		}
	}
	w.settle()
}

func (w *world) pending() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.ops) }

// stepOf lets one guard's next request be answered.
func (w *world) stepOf(g int) {
	w.mu.Lock()
	i := slices.IndexFunc(w.ops, func(o *op) bool { return o.who[len("guard ")] == byte('0'+g) })
	w.mu.Unlock()
	if i >= 0 {
		w.step(i, 10)
	}
}

// step lets one request or reply go on its way, or get lost.
func (w *world) step(i, fate int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.ops[i]
	finish := func(result any) {
		o.result = result
		w.ops = slices.Delete(w.ops, i, i+1)
		close(o.reply)
	}
	switch {
	case fate == 0 && !o.applied: // the request is lost
		finish(errLost)
	case fate == 1: // the reply is lost
		if !o.applied {
			o.apply()
		}
		finish(errLost)
	case o.applied:
		finish(o.result)
	default:
		o.result, o.applied = o.apply(), true
		if fate < 20 {
			finish(o.result)
		}
	}
}

// settle ends the faults: whoever leads now, with a number that is high enough, gets in.
func (w *world) settle() {
	w.holder = -1
	w.acquire(0, w.highestGranted+1)
	w.mu.Lock()
	w.given = nil
	w.mu.Unlock()
	binds := w.binds
	for try := range 2000 {
		if try%200 == 0 {
			w.admit(1, 0)
		}
		synctest.Wait()
		w.expiry = time.Now().Add(3 * time.Second)
		for w.pending() > 0 {
			w.step(0, 10)
			synctest.Wait()
		}
		w.mu.Lock()
		given := slices.Clone(w.given)
		w.mu.Unlock()
		for _, p := range given {
			if p.Live() && p.Term().Number == w.number {
				w.bind(p)
			}
		}
		if w.binds > binds {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.fatalf("the leader of %d is not let in; the fence is %+v", w.number, w.rec)
}
