package pg

import "github.com/fenceproxy/fenceproxy/protocols/loops"

// A carried session has both connections with loops, which do the pumps' work for messages
// that need nothing but to be passed on. All else, and what cannot be done without waiting,
// is left to the pump, which takes up the step where the loop stopped. So there is one way to
// do everything, and a shorter one for what is done most.
type carried struct {
	client, upstream *loops.Conn // nil where goroutines do it all
}

// carry gives the session to the loops, where there are some and both connections are sockets.
func (s *session) carry() {
	client, upstream, err := s.cfg.Loops.Pair(s.client, s.upstream)
	if err != nil {
		return // as well without
	}
	s.client, s.upstream = client, upstream
	s.loops = carried{client, upstream}
}

// toServer is a turn of the client's pump, in a loop. It reports false when the pump is needed.
func (s *session) toServer(b *buffer) bool {
	if some, err := b.tryFill(); !some {
		return err == nil // an error comes again
	}
	st, permits := s.clientStep(b.bytes())
	if plain(st) {
		// INVARIANT: as in the pump, nothing of a bound session's goes upstream without a live
		// permit. The pump ends the session.
		if ended(permits) == nil && b.passed(&st, s.loops.upstream) {
			return true
		}
	}
	b.given, b.left = st, true
	return false
}

// toClient is a turn of the server's pump, in a loop. It reports false when the pump is needed.
func (s *session) toClient(b *buffer) bool {
	if some, err := b.tryFill(); !some {
		return err == nil
	}
	st, _ := s.serverStep(b.bytes())
	if plain(st) && b.passed(&st, s.loops.client) {
		s.writing.Store(false)
		return true
	}
	b.given, b.left = st, true
	return false
}

// plain says whether all there is to do is to pass bytes on and to read more.
func plain(st step) bool { return st.next == read && st.drop == 0 && len(st.write) == 0 }

// passed passes on what the step says, as far as there is room now, and takes that off it and
// off the buffer. It reports whether nothing is left to do. A write that fails is tried again by
// the pump, and fails again.
func (b *buffer) passed(st *step, to *loops.Conn) bool {
	if st.pass > 0 {
		n, _ := to.TryWrite(b.bytes()[:st.pass])
		b.take(n)
		st.pass -= n
	}
	return st.pass == 0 && b.c == nil
}

// tryFill reads into an empty buffer if there is something to read, and reports whether there
// was.
func (b *buffer) tryFill() (bool, error) {
	c := b.pools.Get(b.pools.ForNext(b.n))
	n, err := b.conn.TryRead(c.B)
	if n == 0 {
		b.pools.Put(c)
		return false, err
	}
	b.c = c
	return true, b.read(n, nil)
}

// next is fill, but that a connection that has nothing to say is left to its loop meanwhile,
// with each: the session's toClient, or nil where the goroutine reads by itself. What a loop gives
// back is in given.
func (b *buffer) next(need int, each func() bool) error {
	if each == nil || b.c != nil {
		return b.fill(need)
	}
	for {
		if some, err := b.tryFill(); some || err != nil {
			return err
		}
		err := b.conn.Each(each)
		if b.left {
			return nil // an error comes again
		}
		if err != nil {
			return err
		}
	}
}

// nextOrLeave is next for a pump that ends when it leaves the connection to its loop, which it
// reports: then begins it again.
func (b *buffer) nextOrLeave(need int, each func() bool, then func()) (left bool, err error) {
	if b.conn == nil || b.c != nil {
		return false, b.fill(need)
	}
	for {
		if some, err := b.tryFill(); some || err != nil {
			return false, err
		}
		if left, err := b.conn.EachThen(each, then); left || err != nil {
			return left, err
		}
	}
}

// takeGiven is the step that the loop left, if it did.
func (b *buffer) takeGiven() (step, bool) {
	st, ok := b.given, b.left
	b.given, b.left = step{}, false
	return st, ok
}
