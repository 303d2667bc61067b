package guard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
)

// A belief is the time for which one consumer believed that a partition is its own.
type belief struct {
	partition string
	from, to  time.Time
	who       string
}

// overlap returns two beliefs in one partition at one time.
func overlap(all []belief) error {
	slices.SortFunc(all, func(a, b belief) int { return a.from.Compare(b.from) })
	last := map[string]belief{}
	for _, b := range all {
		if !b.to.After(b.from) {
			continue
		}
		if a, ok := last[b.partition]; ok && a.to.After(b.from) {
			return fmt.Errorf("partition %s: %s until %v, %s from %v", b.partition, a.who, a.to.Format(time.StampMicro), b.who, b.from.Format(time.StampMicro))
		}
		if a := last[b.partition]; b.to.After(a.to) {
			last[b.partition] = b
		}
	}
	return nil
}

// A gateModel is consumers that come, go, pause and share tokens, at gates whose backend
// is slow, fails, and loses answers.
type gateModel struct {
	b     *memory.Backend
	gates []*guard.Gate

	mu      sync.Mutex
	beliefs []belief
	tokens  map[string]election.Token // of each partition, the last acquired
	bound   int
}

// TestGateModel proves, for many random courses of events, that no two consumers believe
// in one partition at one time.
func TestGateModel(t *testing.T) {
	bound := 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			m := &gateModel{b: memory.New(), tokens: map[string]election.Token{}}
			var faults sync.Mutex
			chance := func(n int) int { faults.Lock(); defer faults.Unlock(); return rnd.IntN(n) }
			trouble := seed%3 != 0
			fault := func(string, string) error {
				switch chance(40) {
				case 0, 1:
					if trouble {
						return errDown
					}
				case 2, 3, 4:
					if trouble {
						time.Sleep(time.Duration(chance(2500)) * time.Millisecond)
					}
				}
				time.Sleep(time.Duration(chance(3000)) * time.Microsecond)
				return nil
			}
			for range 2 {
				g, err := guard.NewGate(&meddler{Backend: m.b, before: fault, after: fault}, guard.GateConfig{
					Election: "e-{partition}", PermitFor: 2 * time.Second, ValidateEvery: 500 * time.Millisecond,
				})
				if err != nil {
					t.Fatal(err)
				}
				m.gates = append(m.gates, g)
			}
			var consumers sync.WaitGroup
			for i := range 6 {
				r := rand.New(rand.NewPCG(seed, uint64(i)+2))
				consumers.Go(func() {
					for turn := range 12 {
						m.consume(t, r, fmt.Sprintf("c%d/%d", i, turn))
					}
				})
			}
			consumers.Wait()
			for _, g := range m.gates {
				g.Close()
				if n := len(g.List()); n != 0 {
					t.Errorf("%d bindings left", n)
				}
			}
			if err := overlap(m.beliefs); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			bound += m.bound
		})
		if t.Failed() {
			return
		}
	}
	if bound < 900 {
		t.Errorf("only %d bindings", bound)
	}
}

// consume is one turn of a consumer: it leads a partition's election, or takes another's
// token, binds, and works until something happens.
func (m *gateModel) consume(t *testing.T, r *rand.Rand, who string) {
	ms := func(n int) time.Duration { return time.Duration(r.IntN(n)) * time.Millisecond }
	part := fmt.Sprint(r.IntN(2))
	id := "e-" + part
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := m.b.Acquire(ctx, id, election.AcquireOptions{Owner: "o", TTL: 3 * time.Second})
	if err != nil {
		t.Error(err)
		return
	}
	m.mu.Lock()
	tok := m.tokens[part]
	if res.Status == election.Acquired {
		tok = res.Token
		m.tokens[part] = tok
	}
	m.mu.Unlock()
	if tok.IsZero() || res.Status == election.Busy && r.IntN(3) > 0 {
		time.Sleep(ms(1000))
		return
	}
	if res.Status == election.Acquired { // renewed for some time, then resigned, or it runs out
		var renewing sync.WaitGroup
		defer renewing.Wait()
		last, resign := time.Now().Add(ms(10000)), r.IntN(2) == 0
		renewing.Go(func() {
			for time.Now().Before(last) && ctx.Err() == nil {
				_, _ = m.b.Renew(t.Context(), id, tok)
				time.Sleep(700 * time.Millisecond)
			}
			if resign {
				_, _ = m.b.Resign(t.Context(), id, tok, election.ResignOptions{})
			}
		})
	}
	wait, done := context.WithTimeout(ctx, ms(8000))
	b, err := m.gates[r.IntN(len(m.gates))].Bind(wait, part, tok)
	done()
	if err != nil {
		var refusal *guard.Refusal
		if !errors.As(err, &refusal) {
			t.Errorf("%v", err)
		}
		return
	}
	from := time.Now()
	told := b.TrustedUntil()
	stops := time.Now().Add(ms(9000))
	obeys := r.IntN(3) > 0 // at once, or only when its own time is over
	for time.Now().Before(stops) && time.Now().Before(told) {
		if until := b.TrustedUntil(); !until.IsZero() {
			told = until
		} else if obeys {
			break
		}
		if r.IntN(12) == 0 { // paused: it looks at nothing
			time.Sleep(ms(6000))
		} else {
			time.Sleep(ms(200))
		}
	}
	to := time.Now()
	if to.After(told) {
		to = told
	}
	m.mu.Lock()
	m.beliefs = append(m.beliefs, belief{part, from, to, who})
	m.bound++
	m.mu.Unlock()
	if r.IntN(3) > 0 {
		b.Release()
	} else { // it is gone without a word
		<-b.Done()
		<-b.Free()
	}
}
