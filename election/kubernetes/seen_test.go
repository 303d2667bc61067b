package kubernetes

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A lease's time begins when its last write was first seen, and each kind of change
// begins it anew.
func TestSeenSinceTheLastChange(t *testing.T) {
	s := newSeen(10)
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	r := record{uid: "u", write: "1", number: 5, held: true, owner: "a", ttl: time.Second}
	look := func(r record, asked, now, want time.Duration) {
		t.Helper()
		if since, ok := s.see("e", r, at(asked), at(now)); !ok || !since.Equal(at(want)) {
			t.Errorf("%+v seen at %v: since %v, %v, want %v", r, now, since.Sub(start), ok, want)
		}
	}
	look(r, 0, 1, 1) // after the answer, not before the question
	look(r, 2, 3, 1)
	look(r, 100, 101, 1)
	for i, change := range []func(*record){
		func(r *record) { r.write = "2" }, func(r *record) { r.uid = "v" }, func(r *record) { r.ttl++ },
		func(r *record) { r.owner = "b" }, func(r *record) { r.digest[0]++ }, func(r *record) { r.number = 4 },
		func(r *record) { r.held = false },
	} {
		change(&r)
		d := time.Duration(200 + 10*i)
		look(r, d, d+1, d+1)
		look(r, d+2, d+3, d+1)
	}
	if n := s.highest("e"); n != 5 {
		t.Errorf("highest %d", n)
	}

	// An answer that may be older than the last change moves nothing.
	old := r
	r.write = "3"
	look(r, 300, 310, 310)
	if since, ok := s.see("e", old, at(305), at(320)); ok || !since.Equal(at(320)) {
		t.Errorf("out of order: %v, %v", since.Sub(start), ok)
	}
	look(r, 330, 331, 310)
}

// Safety: whatever a backend looks at, and when, no lease ends sooner than its TTL
// after its last write.
func TestSeenNeverEndsALeaseEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSeen(rapid.IntRange(1, 3).Draw(t, "max"))
		start := time.Now()
		var clock time.Duration
		type write struct {
			r  record
			at time.Duration
		}
		writes := map[string][]write{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			clock += time.Duration(rapid.IntRange(0, 5).Draw(t, "passes"))
			id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "election")
			if len(writes[id]) == 0 || rapid.Bool().Draw(t, "write") {
				writes[id] = append(writes[id], write{record{write: fmt.Sprint(i), held: true}, clock})
				continue
			}
			// The question was asked at some time after which the answer became true.
			w := writes[id]
			seen := w[rapid.IntRange(0, len(w)-1).Draw(t, "seen")]
			asked := clock - time.Duration(rapid.IntRange(0, int(clock-seen.at)).Draw(t, "asked"))
			since, _ := s.see(id, seen.r, start.Add(asked), start.Add(clock))
			if since.Before(start.Add(seen.at)) {
				t.Fatalf("%s: written at %v, counted from %v", id, seen.at, since.Sub(start))
			}
		}
		if len(s.by) > s.max || s.order.Len() != len(s.by) {
			t.Fatalf("%d remembered, %d in order, at most %d", len(s.by), s.order.Len(), s.max)
		}
	})
}

// Memory is bounded; the election asked about longest ago is forgotten first.
func TestSeenForgets(t *testing.T) {
	s := newSeen(2)
	now := time.Now()
	for i, id := range []string{"a", "b", "a", "c"} {
		s.see(id, record{number: int64(i + 1)}, now, now)
	}
	if len(s.by) != 2 || s.highest("a") != 3 || s.highest("c") != 4 || s.highest("b") != 0 {
		t.Errorf("%d: a %d, b %d, c %d", len(s.by), s.highest("a"), s.highest("b"), s.highest("c"))
	}
}
