package resp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/protocols"
)

const (
	// aheadSize is how much of a client's is read while the core waits.
	aheadSize = 16 << 10
	// linger is how long a client may take to read our last words.
	linger = time.Second
	// boundaryGrace is how long a reply under way may take to end when the session does.
	boundaryGrace = time.Second
	// drainGrace is how long the replies that are owed may take when the proxy stops, and the
	// answer to an own command when the session ends.
	drainGrace = 3 * time.Second
	// halfClosed is how long the server may take to end a session whose client has
	// sent its last byte.
	halfClosed = 30 * time.Second
	whyTimeout = 3 * time.Second
	// retryEvery is how often a session asks again for a permit that it was refused since
	// something was out of reach. Writes in between are refused at once.
	retryEvery = time.Second
)

var past = time.Unix(1, 0)

// A session is the shell around one core.
type session struct {
	server           *Server
	client, upstream net.Conn
	table            *table
	wake             chan struct{} // the core may take bytes again, or has bytes for upstream
	over             chan struct{} // closed when the server's pump has ended
	others           sync.WaitGroup
	moves            atomic.Uint64 // what the client's pump does is counted
	loops            carried

	// The client's pump alone uses these.
	ahead   []byte // read while the core waited
	behind  []byte // the other buffer of the two
	gone    error  // the client's last read failed
	refused denials
	talks   conversations

	mu     sync.Mutex
	core   *core
	leases []*lease // of all that the core holds; with rules there may be several
	sent   bool     // the client has sent its last byte
	// awaiting: the client's pump waits for the server's answers.
	awaiting bool
	logged   string        // what the last refused bind was logged with
	called   chan struct{} // closed when the own command that was begun last is answered
}

// serve runs the session, as one of its cluster node's.
func (x *session) serve(ctx context.Context) {
	if n := x.server.node; n != nil {
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer end()
		n.enter(x, end)
		defer n.exit(x)
	}
	x.run(ctx)
}

// run serves the session and returns when all that it started has ended.
func (x *session) run(ctx context.Context) {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		x.shutdown()
	})
	x.server.sweeper.Enter(x, new(reach))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := serverPump{x: x, in: newReader(&x.server.memory, x.upstream), end: cancel}
	p.run, p.each = func() { p.pump(ctx) }, func() bool { return x.toClient(p.in) }
	x.others.Add(1)
	go p.run()
	x.pumpClient(ctx)
	x.others.Wait()
	x.server.sweeper.Leave(x)
	if !stop() {
		<-stopped
	}
	x.dropLeases(true)
	x.endTalks()
	_ = x.client.Close()
}

// pumpClient carries bytes from the client upstream.
func (x *session) pumpClient(ctx context.Context) {
	in := newReader(&x.server.memory, x.client)
	var each func() bool
	if x.loops.client != nil {
		each = func() bool { return x.toServer(in) }
	}
	given := func() bool { return x.loops.turn != nil }
	for {
		if len(x.ahead) > 0 {
			b := x.ahead
			x.ahead, x.behind = x.behind[:0], b
			if !x.feed(ctx, b) {
				break
			}
			continue
		}
		x.ahead, x.behind = nil, nil // a session at rest holds no memory
		if x.gone != nil {
			break
		}
		x.moves.Add(1)
		if ctx.Err() != nil {
			_ = x.client.SetReadDeadline(past) // what waited may have taken shutdown's away
		}
		b, err := in.nextOr(each, given)
		x.moves.Add(1)
		if t := x.loops.turn; t != nil {
			x.loops.turn = nil
			if !x.goOn(ctx, t, b[t.n:]) {
				break
			}
		} else if len(b) > 0 && !x.feed(ctx, b) {
			break
		}
		in.done()
		if err != nil && !x.readOn(ctx, err) {
			break
		}
	}
	if x.gone != nil {
		x.mu.Lock()
		x.sent = true
		x.mu.Unlock()
	}
	if errors.Is(x.gone, io.EOF) {
		// The client has sent all; the server answers what it owes, and closes.
		_ = x.upstream.SetReadDeadline(time.Now().Add(halfClosed))
		if endWriting(x.upstream) != nil {
			_ = x.upstream.Close()
		}
	} else if x.gone != nil {
		_ = x.upstream.Close()
	}
	<-x.over
	if x.gone == nil {
		discard(x.client)
	}
}

// readOn deals with an error of reading from the client, and reports whether to go on.
func (x *session) readOn(ctx context.Context, err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		x.gone = err
		return false
	}
	select {
	case <-x.over:
		return false
	default:
	}
	if ctx.Err() != nil {
		x.drain()
		return false
	}
	x.noDeadline()
	if ctx.Err() != nil {
		_ = x.client.SetReadDeadline(past) // it ended meanwhile
	}
	return true
}

// A piece is bytes to be written, in memory that is to be given back with them. The first
// gone of them were.
type piece struct {
	out  *protocols.Chunk
	b    []byte
	gone int
}

// A turn is what the core wants done after it took n bytes of the client's.
type turn struct {
	piece // for the server
	n     int
	step  step
	ask   question
	full, waiting, ended,
	anew, // the session begins anew, by RESET
	loose bool // there is a lease that it holds no more
}

// feed gives the core bytes of the client's and does what it asks, until it has taken
// them all. It reports whether to go on.
func (x *session) feed(ctx context.Context, b []byte) bool {
	t := x.take(b)
	return x.goOn(ctx, &t, b[t.n:])
}

// take gives the core bytes of the client's.
func (x *session) take(b []byte) (t turn) {
	t.out = x.server.memory.toWrite()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.core.up = append(t.out.B, x.core.up...)
	t.n = x.core.fromClient(b)
	t.full = x.core.full()
	t.b = x.takeUp()
	t.ask, t.waiting, t.ended = x.core.ask, x.core.waiting(), x.core.ended
	t.step = x.core.flow.step
	t.anew = x.core.anew != x.talks.anew
	t.loose = x.core.ask.kind != askAdmit && slices.ContainsFunc(x.leases, x.unused)
	x.awaiting = t.waiting && t.ask.kind == askNothing
	return t
}

// goOn does what a turn asks for, and takes further ones until the core has taken all of b.
func (x *session) goOn(ctx context.Context, t *turn, b []byte) bool {
	for {
		sent := x.send(t.b[t.gone:])
		x.server.memory.written(t.out, t.b)
		if !sent {
			return false
		}
		if t.loose {
			x.dropLeases(false)
		}
		if t.anew {
			x.endTalks()
			x.mu.Lock()
			x.talks.anew = x.core.anew
			x.mu.Unlock()
		}
		switch {
		case t.ended:
			x.hurryServer()
			return false
		case t.ask.kind == askOwn:
			if !x.call(ctx, t.ask.call) {
				return false
			}
		case t.ask.kind != askNothing:
			protocols.OnOwnStack(func() { x.answer(ctx, t.ask) })
		case t.waiting:
			if !x.await(ctx, t.step) {
				return false
			}
		case len(b) == 0 && !t.full:
			return true
		}
		*t = x.take(b)
		b = b[t.n:]
	}
}

// takeUp takes what the core has for the server.
func (x *session) takeUp() []byte {
	up := x.core.up
	x.core.up = nil
	return up
}

// send writes to the server.
//
// INVARIANT: while a permit is held it is asked whether it lives right before each write.
func (x *session) send(up []byte) bool {
	if len(up) == 0 {
		return true
	}
	if p := x.ended(); p != nil {
		x.endNow(x.core.refusalLine(refusalOf(p.Err(), p.Term().Election)))
		return false
	}
	_, err := x.upstream.Write(up)
	return err == nil
}

// permitEnded ends the session, unless it has stopped using the permit.
func (x *session) permitEnded(l *lease) {
	x.mu.Lock()
	held := x.core.holding(l.binding)
	x.mu.Unlock()
	if p := l.permit; held {
		x.endNow(x.core.refusalLine(refusalOf(p.Err(), p.Term().Election)))
	}
}

// hurryServer makes the server's pump see that the session ends: at once, or when the
// reply or the own command under way is done. A client that does not read does not hold it up.
func (x *session) hurryServer() {
	x.mu.Lock()
	grace := boundaryGrace
	if x.core.calling {
		grace = drainGrace
	}
	at := time.Now().Add(grace)
	if x.core.closed {
		at = past
	}
	x.mu.Unlock()
	_ = x.upstream.SetReadDeadline(at)
	_ = x.client.SetWriteDeadline(time.Now().Add(grace + linger))
}

// answer answers the core's question.
func (x *session) answer(ctx context.Context, q question) {
	defer x.logNotBound()
	switch q.kind {
	case askAdmit:
		b, refusal := x.admit(ctx, q)
		x.mu.Lock()
		x.core.admitted(b, refusal)
		x.mu.Unlock()
	case askLive:
		p := x.beingBound()
		live := p != nil && p.Live()
		var why *guard.Refusal
		if !live && p != nil {
			why = refusalOf(p.Err(), p.Term().Election)
		}
		x.mu.Lock()
		if live {
			t := p.Term()
			x.server.c.Log.Debug("session bound", "client", x.client.RemoteAddr().String(), "election", t.Election, "number", t.Number)
		}
		x.core.confirmed(live, why)
		x.mu.Unlock()
	case askRecord:
		is, err := x.confirm(ctx)
		x.mu.Lock()
		x.core.recorded(is, err)
		x.mu.Unlock()
	case askTopology:
		ctx, cancel := context.WithTimeout(ctx, x.server.c.DialTimeout)
		defer cancel()
		x.server.node.cluster.refresh(ctx)
		x.mu.Lock()
		x.core.refreshed()
		x.mu.Unlock()
	case askCommand:
		ctx, cancel := context.WithTimeout(ctx, x.server.c.DialTimeout)
		defer cancel()
		err := x.table.resolve(ctx, x.server.c.Control, q.command)
		if err != nil {
			x.server.c.Log.Warn("cannot ask the server what a command is", "error", err)
		}
		x.mu.Lock()
		x.core.asked(err == nil)
		x.mu.Unlock()
	}
}

// confirm asks whether the cluster's record is as the permit says.
func (x *session) confirm(ctx context.Context) (confirmation, error) {
	p := x.beingBound()
	if p == nil {
		return isUnknown, nil
	}
	ctx, cancel := context.WithTimeout(ctx, x.server.c.BindTimeout)
	defer cancel()
	return x.server.node.confirmSoon(ctx, p)
}

// admit asks the guard for a permit, and watches over it.
func (x *session) admit(ctx context.Context, q question) (*binding, *guard.Refusal) {
	x.returned(q.renew)
	if q.retry {
		if r := x.refused.lately(q.credential.Election); r != nil {
			return nil, r
		}
	}
	ctx, cancel := context.WithTimeout(ctx, x.server.c.AdmitTimeout)
	defer cancel()
	p, err := x.server.c.Guard.Admit(ctx, q.credential)
	if err == nil && x.server.c.Exclusive != nil {
		p, err = x.server.c.Exclusive.Hold(ctx, p, protocols.ClientOf(x.client.RemoteAddr()))
	}
	if err != nil {
		r := refusalOf(err, q.credential.Election)
		x.refused.add(q.credential.Election, r)
		return nil, r
	}
	direct := isUnix(x.upstream)
	if direct {
		if r := x.unproven(ctx, p.Term()); r != nil {
			p.Release()
			return nil, r
		}
	}
	t := p.Term()
	b := &binding{term: t, direct: direct, name: redisfence.ConnName(t), key: redisfence.Key(t.Election), value: redisfence.Encode(p.Record())}
	x.watch(&lease{permit: p, binding: b})
	return b, nil
}

// await waits until the core may go on. Meanwhile it reads ahead, so that it sees a
// client that has gone. It reports whether to go on.
func (x *session) await(ctx context.Context, step step) bool {
	var limit <-chan time.Time
	if step.captures() || step == stepFinish {
		d := x.server.c.BindTimeout
		if step == stepFinish {
			d = drainGrace
		}
		t := time.NewTimer(d)
		defer t.Stop()
		limit = t.C
	}
	if limit == nil {
		if woken, over := x.readAhead(ctx); woken || over {
			return woken
		}
	}
	if x.gone != nil && limit == nil {
		t := time.NewTimer(linger) // as the server, which ends a blocked command then
		defer t.Stop()
		limit = t.C
	}
	select {
	case <-x.wake:
		return true
	case <-x.over:
	case <-ctx.Done():
		x.drain()
	case <-limit:
		x.server.c.Log.Warn("session closed: no answer in time", "client", x.client.RemoteAddr().String())
		x.endNow(errorLine(wordDown, "the server did not answer in time; the connection is closed."))
	}
	return false
}

// wakeClient makes the client's pump look at the core.
func (x *session) wakeClient() {
	select {
	case <-x.over:
		return
	default:
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
	_ = x.client.SetReadDeadline(past)
}

// unproven says why a session by Unix socket cannot be bound, or nil.
func (x *session) unproven(ctx context.Context, t guard.Term) *guard.Refusal {
	ctx, cancel := context.WithTimeout(ctx, x.server.c.DialTimeout)
	defer cancel()
	err := Direct(ctx, x.upstream, x.server.c.Control)
	if err == nil {
		return nil
	}
	r := &guard.Refusal{Reason: guard.FenceUnavailable, Election: t.Election, Held: t.Number, Err: err}
	if errors.Is(err, ErrPooler) || errors.Is(err, ErrUnproven) {
		r.Reason, r.Detail, r.Err = guard.Unseverable, err.Error(), nil
	}
	return r
}
