package resp

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// A serverPump carries bytes from the server to the client, and ends the session. Where a loop
// has the server's connection, it ends while there is nothing to read, and is begun again by the
// loop when it is needed: a session at rest has one goroutine less.
type serverPump struct {
	x    *session
	in   *reader
	run  func()
	each func() bool
	end  context.CancelFunc
}

// pump runs until the server's side is over, or is left to the loop.
func (p *serverPump) pump(ctx context.Context) {
	if left := p.carry(ctx); left {
		return
	}
	p.x.hangUp()
	p.end()
	p.x.others.Done()
}

// carry reports whether the loop has the server's side now.
func (p *serverPump) carry(ctx context.Context) (left bool) {
	x, in := p.x, p.in
	for {
		b, left, err := in.nextOrLeave(p.each, p.run, x.loops.reply != nil)
		if left {
			return true
		}
		var r reply
		if given := x.loops.reply; given != nil {
			r, x.loops.reply = *given, nil
		} else {
			r = x.answerWith(b)
			in.done()
		}
		if r.notBound {
			x.logNotBound()
		}
		if r.wake {
			x.wakeClient()
		}
		if r.closed {
			_ = x.client.SetWriteDeadline(time.Now().Add(linger))
		}
		if len(r.b) > r.gone {
			if _, err := x.client.Write(r.b[r.gone:]); err != nil {
				return false
			}
		}
		x.server.memory.written(r.out, r.b)
		if r.bad != nil {
			x.server.c.Log.Error("session closed", "client", x.client.RemoteAddr().String(), "error", r.bad)
		}
		switch {
		case r.closed, r.bad != nil:
			return false
		case err != nil:
			x.serverOver(ctx, err)
			return false
		}
	}
}

// A reply is what the core wants done after it took bytes of the server's.
type reply struct {
	piece    // for the client
	bad      error
	closed   bool // it is the client's last
	notBound bool // there is a refusal for the log
	wake     bool // the client's pump waits for it
}

// answerWith gives the core bytes of the server's.
func (x *session) answerWith(b []byte) (r reply) {
	r.out = x.server.memory.toWrite()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.core.down = append(r.out.B, x.core.down...)
	r.bad = x.core.fromServer(b)
	r.b = x.core.down
	x.core.down = nil
	r.closed = x.core.closed
	r.notBound = x.core.notBound != nil
	r.wake = x.awaiting && (len(x.core.up) > 0 || x.core.ask.kind != askNothing || !x.core.waiting())
	return r
}

// hangUp ends both connections: the server's at once, the client's so that it can read
// what was written. TLS says goodbye, and a server that does not read would hold that up.
func (x *session) hangUp() {
	// First: a client that has seen its end may count on it that the server does nothing for it
	// any more, which a blocked command would.
	if _, ok := x.upstream.(tlsconf.Stream); ok {
		x.others.Go(func() { _ = x.upstream.Close() })
	} else {
		_ = x.upstream.Close()
	}
	_ = endWriting(x.client)
	close(x.over) // before the deadline, for noDeadline
	_ = x.client.SetReadDeadline(time.Now().Add(linger))
}

// noDeadline takes back the deadline that woke the client's pump.
//
// INVARIANT: hangUp's is not lost: either it comes after, or over is closed before the look.
func (x *session) noDeadline() {
	_ = x.client.SetReadDeadline(time.Time{})
	select {
	case <-x.over:
		_ = x.client.SetReadDeadline(time.Now().Add(linger))
	default:
	}
}

// serverOver tells the client what it is still to be told when nothing more comes from the
// server: its connection has failed or, where that is a timeout, a reply or the answer to an own
// command did not come in time for a session that ends.
func (x *session) serverOver(ctx context.Context, err error) {
	late := isTimeout(err) // a deadline is set only for an end
	if !late {
		x.awaitCall()
	}
	x.mu.Lock()
	x.core.over()
	b := x.core.down
	x.core.down = nil
	x.mu.Unlock()
	if len(b) > 0 {
		_ = x.client.SetWriteDeadline(time.Now().Add(linger))
		if _, err := x.client.Write(b); err != nil {
			return
		}
	}
	if !late {
		x.upstreamClosed(ctx, err)
	}
}

// upstreamClosed tells a bound client that waits for a reply why the server closed its
// connection, if a takeover was the reason.
func (x *session) upstreamClosed(ctx context.Context, err error) {
	x.mu.Lock()
	bound := x.core.bound != nil
	leases := slices.Clone(x.leases)
	expected := x.core.conn.quit || x.sent
	told := x.core.served.between() && x.core.awaited()
	x.mu.Unlock()
	if expected {
		return
	}
	if !errors.Is(err, io.EOF) {
		x.server.c.Log.Info("the server's connection failed", "client", x.client.RemoteAddr().String(), "error", err)
	}
	x.server.tables.suspectIt()
	if !bound {
		return
	}
	// Nothing more is sent upstream: that connection is gone.
	var r *guard.Refusal
	for _, l := range leases {
		b := l.binding
		if r = x.server.why(ctx, l.permit, guard.Credential{Election: b.term.Election, Token: b.credential.token}); r != nil {
			break
		}
	}
	if r == nil || !told {
		return
	}
	_ = x.client.SetWriteDeadline(time.Now().Add(linger))
	_, _ = x.client.Write([]byte(x.core.refusalLine(r)))
}

// shutdown ends the session in order.
func (x *session) shutdown() {
	select {
	case <-x.over:
		return
	default:
	}
	x.wakeClient()
	t := time.NewTimer(drainGrace)
	defer t.Stop()
	select {
	case <-x.over:
	case <-t.C:
		x.endNow("")
	}
}

// drain lets the replies come that are owed, and then ends the session.
func (x *session) drain() {
	x.mu.Lock()
	x.core.drain()
	up, ended := x.takeUp(), x.core.ended
	x.mu.Unlock()
	if !x.send(up) || ended {
		x.hurryServer()
	}
}

// endNow ends the session with the line given.
func (x *session) endNow(line string) {
	x.mu.Lock()
	x.core.end(line)
	x.mu.Unlock()
	_ = x.upstream.SetWriteDeadline(past)
	x.hurryServer()
	x.wakeClient()
}

// closeGently lets the client read what was written before its connection is closed.
func closeGently(client net.Conn) {
	_ = endWriting(client)
	discard(client)
}

// discard reads what the client still sends: closing with bytes unread would reset the
// connection, and the client could lose our last words.
func discard(client net.Conn) {
	buf := make([]byte, 512)
	_ = client.SetReadDeadline(time.Now().Add(linger))
	for {
		if _, err := client.Read(buf); err != nil {
			return
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func asRefusal(err error) (*guard.Refusal, bool) {
	var r *guard.Refusal
	ok := errors.As(err, &r)
	return r, ok
}
