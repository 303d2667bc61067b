package resp

import "github.com/fenceproxy/fenceproxy/protocols/loops"

// A carried session has both connections with loops, which do the pumps' work for commands and
// replies that need nothing but to be passed on. All else, and what cannot be done without
// waiting, is left to the pump, which takes up the turn where the loop stopped. So there is one
// way to do everything, and a shorter one for what is done most.
type carried struct {
	client, upstream *loops.Conn // nil where goroutines do it all

	// What a loop left to the pumps.
	turn  *turn
	reply *reply
}

// carry gives the session to the loops, where there are some and both connections are sockets.
func (x *session) carry(l *loops.Loops) {
	client, upstream, err := l.Pair(x.client, x.upstream)
	if err != nil {
		return // as well without
	}
	x.client, x.upstream = client, upstream
	x.loops.client, x.loops.upstream = client, upstream
}

// toServer is a turn of the client's pump, in a loop. It reports false when the pump is needed.
func (x *session) toServer(in *reader) bool {
	b, err := in.tryNext()
	if len(b) == 0 {
		return err == nil // an error comes again
	}
	x.moves.Add(2)
	t := x.take(b)
	// INVARIANT: as in send, while a permit is held it is asked whether it lives right before
	// each write. The pump ends the session.
	if t.plain(len(b)) && x.ended() == nil && t.passed(x.loops.upstream) {
		x.server.memory.written(t.out, t.b)
		in.done()
		return true
	}
	left := t
	x.loops.turn = &left
	return false
}

// plain says whether all there is to do is to pass on what there is for the server, of n bytes
// of the client's.
func (t *turn) plain(n int) bool {
	return t.n == n && !t.full && !t.waiting && !t.ended && !t.loose && !t.anew && t.ask.kind == askNothing
}

// toClient is a turn of the server's pump, in a loop. It reports false when the pump is needed.
func (x *session) toClient(in *reader) bool {
	b, err := in.tryNext()
	if len(b) == 0 {
		return err == nil
	}
	r := x.answerWith(b)
	in.done()
	if !r.notBound && !r.wake && !r.closed && r.bad == nil && r.passed(x.loops.client) {
		x.server.memory.written(r.out, r.b)
		return true
	}
	left := r
	x.loops.reply = &left
	return false
}

// passed writes as much as there is room for now, and reports whether that was all. A write
// that fails is tried again by the pump, and fails again.
func (p *piece) passed(to *loops.Conn) bool {
	if len(p.b) > 0 {
		p.gone, _ = to.TryWrite(p.b)
	}
	return p.gone == len(p.b)
}

// nextOr is next, but that a connection that has nothing to say is left to its loop meanwhile,
// with each: the session's toServer, or nil where the goroutine reads by itself. It ends too when
// given reports that the loop left something to the pump; then b is what was read last.
func (r *reader) nextOr(each func() bool, given func() bool) (b []byte, err error) {
	for each != nil {
		if b, err := r.tryNext(); len(b) > 0 || err != nil {
			return b, err
		}
		err := r.conn.Each(each)
		if given() {
			return r.last(), nil // an error comes again
		}
		if err != nil {
			return nil, err
		}
	}
	return r.next()
}

// nextOrLeave is next for a pump that ends when it leaves the connection to its loop, which it
// reports: then begins it again, with what the loop has given it to do, or nothing.
func (r *reader) nextOrLeave(each func() bool, then func(), given bool) (b []byte, left bool, err error) {
	for r.conn != nil && !given {
		if b, err := r.tryNext(); len(b) > 0 || err != nil {
			return b, false, err
		}
		if left, err := r.conn.EachThen(each, then); left || err != nil {
			return nil, left, err
		}
	}
	if given {
		return nil, false, nil
	}
	b, err = r.next()
	return b, false, err
}
