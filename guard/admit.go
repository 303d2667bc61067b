package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// ErrClosed means that the Guard was closed.
var ErrClosed = errors.New("guard closed")

// A Guard admits sessions to one guarded resource. It is safe for concurrent use.
type Guard struct {
	backend election.Backend
	fence   Fence
	c       Config
	epoch   time.Time     // the zero of the guard's monotonic times
	first   chan struct{} // holds a slot for each first question being asked

	mu      sync.Mutex
	keepers map[key]*keeper
	closed  bool
	running sync.WaitGroup // the keepers' goroutines
}

// key names a keeper: a token of an election, by its digest.
type key struct {
	election string
	digest   election.Digest
}

// New returns a guard that asks b who leads and keeps the fence f. It closes neither.
// Close it. A nil f is for what has no fence of its own: the permits then say who leads, and
// nothing is fenced.
func New(b election.Backend, f Fence, c Config) *Guard {
	return &Guard{
		backend: b, fence: f, c: c.defaults(),
		epoch:   time.Now(),
		first:   make(chan struct{}, maxFirst),
		keepers: make(map[key]*keeper),
	}
}

// Close ends every permit and waits for all that the guard started.
func (g *Guard) Close() {
	g.mu.Lock()
	g.closed = true
	var all []*keeper
	for _, k := range g.keepers {
		all = append(all, k)
	}
	g.mu.Unlock()
	for _, k := range all {
		k.end(k.refuse(BackendUnknown, "the proxy is stopping", ErrClosed))
	}
	g.running.Wait()
}

// Admit turns a credential into a permit, raising and severing the fence first where
// that is behind. All that ask with one token share one validation and one advance,
// and each waits only as long as its own context. The error is always a *Refusal.
func (g *Guard) Admit(ctx context.Context, c Credential) (*Permit, error) {
	if err := election.CheckIDToken(c.Election, c.Token); err != nil {
		r := &Refusal{Reason: InvalidCredential, Err: err}
		if election.CheckID(c.Election) == nil {
			r.Election = c.Election
		}
		return nil, r
	}
	for try := 0; ; try++ {
		k, err := g.join(c)
		if err != nil {
			return nil, &Refusal{Reason: BackendUnknown, Election: c.Election, Detail: "the proxy is stopping", Err: err}
		}
		p, refusal := k.admit(ctx)
		if refusal == nil {
			return p, nil
		}
		g.leave(k)
		// The keeper found here may be of the token's earlier term.
		if !errors.Is(refusal.Err, errRenumbered) || try == 3 {
			return nil, refusal
		}
	}
}

// errRenumbered means that a token was granted again under another number.
var errRenumbered = errors.New("the token was granted again under another number")

// join returns the credential's keeper, started if there was none, with one more user.
func (g *Guard) join(c Credential) (*keeper, error) {
	at := key{c.Election, c.Token.Digest()}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrClosed
	}
	k := g.keepers[at]
	if k == nil || k.ended() != nil {
		k = newKeeper(g, at, c.Token)
		g.keepers[at] = k
		k.start()
	}
	k.users++
	return k, nil
}

// leave takes a user off the keeper. A keeper whose token was never found current does
// not outlast its last user; another lingers until its next validation is due.
func (g *Guard) leave(k *keeper) {
	g.mu.Lock()
	k.users--
	gone := k.users == 0 && !k.known()
	if gone && g.keepers[k.at] == k {
		delete(g.keepers, k.at) // in the same step as the look at users: join finds it no more
	}
	g.mu.Unlock()
	if gone {
		k.end(k.unused())
	}
}

// retire ends the keeper if nobody uses it, and reports whether it did.
func (g *Guard) retire(k *keeper) bool {
	g.mu.Lock()
	idle := k.users == 0 && !k.advancing()
	if idle && g.keepers[k.at] == k {
		delete(g.keepers, k.at) // as above
	}
	g.mu.Unlock()
	if idle {
		k.end(k.unused())
	}
	return idle
}

// forget drops an ended keeper.
func (g *Guard) forget(k *keeper) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keepers[k.at] == k {
		delete(g.keepers, k.at)
	}
}

// admit waits until the keeper can give a permit or a refusal, or ctx ends.
func (k *keeper) admit(ctx context.Context) (*Permit, *Refusal) {
	for {
		if k.known() && !k.live() {
			k.expire()
		}
		p, wait, f, refusal := k.try()
		if p != nil || refusal != nil {
			return p, refusal
		}
		select {
		case <-wait:
			if f != nil && f.refusal != nil {
				if r := k.ended(); r != nil {
					return nil, r // why the token ended says more than why the advance stopped
				}
				return nil, f.refusal
			}
		case <-k.done:
		case <-ctx.Done():
			r := k.refuse(BackendUnknown, "gave up waiting for the election backend's answer", context.Cause(ctx))
			if f != nil {
				r = k.refuse(FenceUnavailable, "gave up waiting for the takeover to finish", context.Cause(ctx))
			}
			return nil, r
		}
	}
}

// try returns a permit or a refusal, or else what to wait for and the advance that it
// is the end of, if any.
func (k *keeper) try() (*Permit, <-chan struct{}, *flight, *Refusal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.refusal != nil:
		return nil, nil, nil, k.refusal
	case k.term.Number == 0:
		return nil, k.answered, nil, nil
	case k.record != Record{}, k.g.fence == nil:
		if k.granted == nil || *k.granted != (grant{k.term, k.record}) {
			k.granted = &grant{k.term, k.record}
		}
		return &Permit{k: k, is: k.granted}, nil, nil, nil
	}
	if k.flight == nil {
		k.flight = &flight{done: make(chan struct{})}
		k.wanted <- k.flight // has room: one flight at a time
	}
	return nil, k.flight.done, k.flight, nil
}

// refuse makes a refusal with what the keeper knows.
func (k *keeper) refuse(why Reason, detail string, err error) *Refusal {
	return &Refusal{Reason: why, Election: k.at.election, Held: k.number(), Detail: detail, Err: err}
}

// errUnused means that a permit ended because every session gave it back.
var errUnused = errors.New("no session left")

func (k *keeper) unused() *Refusal {
	return k.refuse(BackendUnknown, "nobody used the permit any more", errUnused)
}
