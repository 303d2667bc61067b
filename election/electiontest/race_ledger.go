package electiontest

import (
	"fmt"
	"sort"
	"sync"
	"time"
)

// A stint is a time in which a candidate was right to think that it led: from an answer
// that granted or renewed, until the end of the trust in it.
type stint struct {
	who       string
	number    int64
	asked     time.Time // when the grant was asked for
	from, end time.Time
}

// A ledger is the observer of a race: by one monotonic clock it knows who led when, and
// when the record was deleted.
type ledger struct {
	mu        sync.Mutex
	stints    []stint
	deletions []deletion
	takeovers int
	last      stint
}

// A deletion happened at some moment between two.
type deletion struct{ before, after time.Time }

// note adds a stint; one without length is none.
func (l *ledger) note(s stint) {
	if !s.from.Before(s.end) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stints = append(l.stints, s)
	if s.who != l.last.who && s.number != l.last.number {
		l.takeovers++
	}
	l.last = s
}

// delete notes a deletion.
func (l *ledger) delete(d deletion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deletions = append(l.deletions, d)
}

// deleted reports whether the record was deleted in between, beyond doubt.
func (l *ledger) deleted(from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.deletions {
		if d.before.After(from) && d.after.Before(to) {
			return true
		}
	}
	return false
}

// count is how many takeovers there were: stints of another candidate than the last one.
func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.takeovers
}

// violations are the reasons for which the ledger cannot be that of an election: two led
// at once, or a number did not rise.
func (l *ledger) violations() (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]stint, 0, len(l.stints))
	for _, s := range l.stints {
		// Who held the record when it was deleted has lost it then. It may not know until it
		// renews: that is what a fence is for, and no fault of the backend's.
		for _, d := range l.deletions {
			if s.asked.Before(d.after) && d.before.Before(s.end) {
				s.end = d.before
			}
		}
		if s.from.Before(s.end) {
			all = append(all, s)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].from.Before(all[j].from) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.who == b.who && a.number == b.number {
			if a.end.After(b.end) {
				all[i].end = a.end
			}
			continue
		}
		if b.number <= a.number {
			found = append(found, fmt.Sprintf("number %d of %s after %d of %s", b.number, b.who, a.number, a.who))
		}
		if b.from.Before(a.end) {
			found = append(found, fmt.Sprintf("%s led with number %d from %v, %s with %d until %v later",
				b.who, b.number, b.from, a.who, a.number, a.end.Sub(b.from)))
		}
	}
	return found
}
