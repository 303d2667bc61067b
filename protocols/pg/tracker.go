package pg

import "slices"

// A tracker follows which client messages the server has still to answer with
// ReadyForQuery, so that the proxy knows when nothing is under way. It mirrors what
// the server does with the messages it reads:
//
//   - Query, Sync and FunctionCall are answered by one ReadyForQuery each;
//   - after an error in an extended message everything up to the next Sync is skipped;
//   - while COPY FROM STDIN runs, Sync and Flush are swallowed.
//
// Equal neighbours are stored once with a count, so a million pipelined Syncs cost
// nothing. It is only a belief about another process: where it is wrong the proxy may
// wait or refuse too much, never let a write through.
type tracker struct {
	q    []unit // from head on
	head int
	tail uint64 // extended messages sent since the last unit
	done uint64 // extended messages of the first unit that were answered

	skipping bool // an extended message failed; its Sync is not answered yet
	copyIn   bool // the server reads COPY data
	copyExt  bool // and an Execute started it, not a Query
	both     bool // and it sends some too
	muddled  bool // the client broke the protocol inside COPY; who knows
}

// A unit is some extended messages and the message that ends them: 'Q', 'S', 'F', or
// 'c' for CopyDone and CopyFail.
type unit struct {
	ext  uint64
	n    uint64 // how many of these in a row
	kind byte
}

// maxUnits bounds the memory of a tracker; the client is not read while it is full.
const maxUnits = 1 << 15

// A draining says whether the server will come to rest by itself.
type draining uint8

const (
	idle      draining = iota // nothing is under way
	willDrain                 // answers are owed, and will come
	stuck                     // the server waits for more from the client
)

func (t *tracker) len() int   { return len(t.q) - t.head }
func (t *tracker) full() bool { return t.len() >= maxUnits }

func (t *tracker) first() *unit { return &t.q[t.head] }

// state says whether the server is at rest.
func (t *tracker) state() draining {
	switch {
	case t.muddled:
		return stuck
	case t.answers():
		return willDrain
	case t.len() > 0 || t.tail > 0 || t.copyIn || t.skipping:
		return stuck
	}
	return idle
}

// answers says whether a ReadyForQuery will come by itself. While COPY data is read, that
// needs the copy's end; and where an Execute started it, a Sync after that end, for
// the ones before it are swallowed.
func (t *tracker) answers() bool {
	units := t.q[t.head:]
	if t.copyIn {
		i := slices.IndexFunc(units, func(u unit) bool { return u.kind == 'c' })
		if i < 0 {
			return false
		}
		if t.copyExt {
			units = units[i:]
		}
	}
	return slices.ContainsFunc(units, func(u unit) bool { return u.kind != 'c' })
}

// sent records a message to the server.
func (t *tracker) sent(typ byte) {
	if t.skipping && t.len() == 0 && typ != 'S' {
		return // skipped by the server
	}
	switch typ {
	case 'P', 'B', 'D', 'E', 'C':
		t.tail++
	case 'Q', 'S', 'F':
		t.push(typ)
	case 'c', 'f':
		if t.len() == 0 && t.tail == 0 && !t.copyIn {
			return // nothing to end: ignored by the server
		}
		t.push('c')
	}
}

func (t *tracker) push(kind byte) {
	if n := len(t.q); n > t.head {
		if l := &t.q[n-1]; l.kind == kind && l.ext == t.tail {
			l.n++
			t.tail = 0
			return
		}
	}
	if t.head == len(t.q) {
		t.q, t.head = t.q[:0], 0
	} else if t.head > 64 && t.head > len(t.q)/2 {
		t.q = append(t.q[:0], t.q[t.head:]...)
		t.head = 0
	}
	t.q = append(t.q, unit{ext: t.tail, n: 1, kind: kind})
	t.tail = 0
}

// owed is how many extended messages stand before the first unit's end.
func (t *tracker) owed() uint64 {
	if t.len() == 0 {
		return t.tail
	}
	return t.first().ext
}

// pop takes the first unit off and returns its extended messages.
func (t *tracker) pop() uint64 {
	u := t.first()
	if u.n--; u.n == 0 {
		t.head++
	}
	return u.ext
}

// drop takes the first unit off, whose end the server ignored: what stood before it
// now stands before the next.
func (t *tracker) drop() {
	ext := t.pop()
	switch {
	case ext == 0:
	case t.len() == 0:
		t.tail += ext
	default:
		t.setFirst(t.first().ext + ext)
	}
}

// setFirst gives the first unit alone, of a run of equal ones, another count.
func (t *tracker) setFirst(ext uint64) {
	u := t.first()
	if u.n > 1 && u.ext != ext {
		u.n--
		t.q = slices.Insert(t.q, t.head, unit{ext: ext, n: 1, kind: u.kind})
		return
	}
	u.ext = ext
}

// replied records an answer other than error and ReadyForQuery.
func (t *tracker) replied(typ byte) {
	switch typ {
	case 'G':
		t.copyIn, t.copyExt = true, t.done < t.owed()
		return
	case 'W': // COPY both ways, of replication: a Query's
		t.copyIn, t.copyExt, t.both = true, false, true
		return
	case 'C':
		if t.copyIn {
			t.endCopy()
		}
	case '1', '2', '3', 'n', 'T', 'I', 's':
	default:
		return
	}
	// Answers beyond the extended messages belong to a Query.
	if t.done < t.owed() {
		t.done++
	}
	t.settle()
}

// settle forgets CopyDone messages that ended no copy: the server ignores them.
func (t *tracker) settle() {
	for !t.copyIn && t.len() > 0 && t.first().kind == 'c' && t.done >= t.first().ext {
		t.drop()
	}
}

// endCopy forgets the Syncs that the copy swallowed, and the message that ended it.
func (t *tracker) endCopy() {
	t.copyIn, t.both = false, false
	if t.copyExt {
		for t.len() > 0 && t.first().kind == 'S' {
			t.drop()
		}
		if t.len() > 0 && t.first().kind == 'c' {
			t.drop()
		}
		return
	}
	i := t.head + 1
	for i < len(t.q) && t.q[i].kind == 'S' {
		t.q = slices.Delete(t.q, i, i+1)
	}
	if i < len(t.q) && t.q[i].kind == 'c' {
		if t.q[i].n--; t.q[i].n == 0 {
			t.q = slices.Delete(t.q, i, i+1)
		}
	}
}

// failed records an ErrorResponse that does not end the session.
func (t *tracker) failed(protocolViolation bool) {
	if t.copyIn {
		if protocolViolation {
			t.muddled = true
		}
		t.endCopy()
	}
	if t.done >= t.owed() {
		return // the Query's, the FunctionCall's or the Sync's own
	}
	t.skipping = true
	t.done = 0
	for t.len() > 0 && t.first().kind != 'S' {
		t.head++
	}
	if t.len() == 0 {
		t.tail = 0
		return
	}
	t.setFirst(0)
}

// ready records a ReadyForQuery.
func (t *tracker) ready() {
	t.skipping = false
	t.done = 0
	for t.len() > 0 && t.first().kind == 'c' {
		t.drop()
	}
	if t.len() > 0 {
		t.pop()
	}
	t.settle()
}
