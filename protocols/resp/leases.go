package resp

import (
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
)

// A lease is a permit that the core has, or is about to use.
type lease struct {
	permit  *guard.Permit
	binding *binding
	unwatch func() bool // ends the watch over it
}

// watch keeps a lease until the core holds it no more, and ends the session if it ends.
func (x *session) watch(l *lease) {
	l.unwatch = l.permit.AfterFunc(func() { x.permitEnded(l) })
	x.mu.Lock()
	x.leases = append(x.leases, l)
	x.mu.Unlock()
}

// ended returns a permit that has ended, or nil.
//
// INVARIANT: all of them have to live, those too that the next write may not need.
func (x *session) ended() *guard.Permit {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.leases {
		if !l.permit.Live() {
			return l.permit
		}
	}
	return nil
}

// beingBound is the permit with which the core is about to bind.
func (x *session) beingBound() *guard.Permit {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.leases {
		if l.binding == x.core.flow.binding {
			return l.permit
		}
	}
	return nil
}

// returned gives back what the core does not hold, before it asks for another permit. Of one
// that the fence did not agree with, if it is given, the guard is told: it must read the
// fence anew, or it would give the same permit again.
func (x *session) returned(wrong *binding) {
	x.mu.Lock()
	for _, l := range x.leases {
		if l.binding == wrong {
			l.permit.Invalidate()
		}
	}
	gone := x.unheld()
	x.mu.Unlock()
	giveBack(gone)
}

// dropLeases gives back those that the core holds no more, or all. While the core asks for
// another, admit still needs the old ones: the server's pump may have made the core ask since
// the client's pump looked.
func (x *session) dropLeases(all bool) {
	x.mu.Lock()
	var gone []*lease
	switch {
	case all:
		gone, x.leases = x.leases, nil
	case x.core.ask.kind != askAdmit:
		gone = x.unheld()
	}
	x.mu.Unlock()
	giveBack(gone)
}

// unused says whether the core does not hold a lease. Call with mu held.
func (x *session) unused(l *lease) bool { return !x.core.holding(l.binding) }

// unheld takes out the leases that the core does not hold.
func (x *session) unheld() (gone []*lease) {
	for i := 0; i < len(x.leases); {
		if l := x.leases[i]; x.unused(l) {
			gone = append(gone, l)
			x.leases = slices.Delete(x.leases, i, i+1)
			continue
		}
		i++
	}
	return gone
}

func giveBack(gone []*lease) {
	for _, l := range gone {
		l.unwatch()
		l.permit.Release()
	}
}

// denials are the guard's last refusals, of each election, and when they came.
type denials []denial

type denial struct {
	election string
	why      *guard.Refusal
	at       time.Time
}

func (d *denials) add(election string, why *guard.Refusal) {
	*d = slices.DeleteFunc(*d, func(x denial) bool { return x.election == election || time.Since(x.at) >= retryEvery })
	*d = append(*d, denial{election, why, time.Now()})
}

// lately is the refusal of an election that is not old enough to ask again.
func (d denials) lately(election string) *guard.Refusal {
	for _, x := range d {
		if x.election == election && time.Since(x.at) < retryEvery {
			return x.why
		}
	}
	return nil
}
