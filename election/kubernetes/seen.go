package kubernetes

import (
	"container/list"
	"sync"
	"time"
)

// seenMax is how many elections a backend remembers. One that is pushed out is taken
// for never seen when it is seen again: its lease then lasts longer, never shorter.
const seenMax = 10_000

// A seen remembers the last write seen of each election, and since when.
type seen struct {
	mu    sync.Mutex
	max   int
	by    map[string]*list.Element
	order list.List // of *sight, the latest asked about first
}

type sight struct {
	id      string
	last    record
	since   time.Time // when last was first seen
	highest int64     // the highest number ever seen
}

func of(e *list.Element) *sight { s, _ := e.Value.(*sight); return s }

func newSeen(limit int) *seen { return &seen{max: limit, by: make(map[string]*list.Element)} }

// see notes that r was the answer at the time now to a question asked at asked, and
// returns since when this backend knows of r. It reports false, and notes nothing, when
// it cannot tell whether r is newer than what another answer brought meanwhile.
//
// Safety: since is a time after an answer, never one before its question. The write
// that r is of was made before its answer, so a lease that ends one TTL after since
// ends no earlier than one TTL after its write.
func (s *seen) see(id string, r record, asked, now time.Time) (since time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.by[id]
	if !ok {
		e = s.order.PushFront(&sight{id: id, last: r, since: now})
		s.by[id] = e
		if s.order.Len() > s.max {
			last := s.order.Back()
			delete(s.by, of(last).id)
			s.order.Remove(last)
		}
	}
	s.order.MoveToFront(e)
	at := of(e)
	at.highest = max(at.highest, r.number)
	if at.last == r {
		return at.since, true
	}
	// An answer is surely newer than another if its question was asked after that one
	// had arrived.
	if asked.Before(at.since) {
		return now, false
	}
	// Any change restarts the time, also one that nobody of ours made.
	at.last, at.since = r, now
	return now, true
}

// highest returns the highest number seen of the election, zero for none.
func (s *seen) highest(id string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.by[id]; ok {
		return of(e).highest
	}
	return 0
}
