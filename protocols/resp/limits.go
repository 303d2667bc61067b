package resp

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols"
)

// A place is a client's among those that are counted. Where something comes before the
// session, TLS or the PROXY protocol, it is among the pending ones until that is over.
type place struct {
	srv     *Server
	from    net.Addr // counted by its address
	pending bool
	counted bool // among a cluster's
}

const (
	tooMany       = "max number of clients reached"
	tooManyComing = "too many connections that have not begun a session"
	tooManyFrom   = "too many connections from the client's address"
)

// connection serves one client: find out where it is, count it, agree on TLS, connect, and
// forward.
func (s *Server) connection(ctx context.Context, accepted net.Conn) {
	p := &place{srv: s}
	defer p.leave()
	// What comes before the session has returned by then: this stack lives as long as the
	// session.
	if x := s.meet(ctx, accepted, p); x != nil {
		x.serve(ctx)
	}
}

// meet finds out who the client is and connects it, or turns it away: then it returns nil.
func (s *Server) meet(ctx context.Context, accepted net.Conn, p *place) *session {
	if s.node != nil || s.cluster != nil {
		if p.counted = s.all.Enter(s.c.MaxConns); !p.counted {
			s.refuse(accepted, accepted.RemoteAddr().String(), tooMany)
			closeGently(accepted)
			return nil
		}
	}
	if s.c.TLS != nil || s.c.ProxyProtocol != nil {
		if p.pending = s.pending.Enter(s.c.MaxPending); !p.pending {
			s.refuse(accepted, accepted.RemoteAddr().String(), tooManyComing)
			closeGently(accepted)
			return nil
		}
	}
	client, err := s.greet(ctx, accepted, p)
	p.begun()
	switch {
	case ctx.Err() != nil: // the proxy is shutting down
	case errors.Is(err, errTooMany):
		s.refuse(accepted, p.peer(accepted), tooManyFrom)
		closeGently(accepted)
	case errors.Is(err, errNoCertificate):
		s.c.Log.Info("connection refused", "client", p.peer(accepted), "reason", err)
		s.turnAway(client, errorLine(wordNoPerm, "this listener takes clients with a certificate only. Connect with one."))
	case errors.Is(err, protocols.ErrUntrusted), errors.Is(err, protocols.ErrProxyHeader):
		s.c.Log.Warn("connection refused", "peer", accepted.RemoteAddr().String(), "error", err)
	case errors.Is(err, io.EOF): // a check of whether the port is open
		s.c.Log.Debug("connection not begun", "client", p.peer(accepted), "error", err)
	case err != nil:
		s.c.Log.Info("connection not begun", "client", p.peer(accepted), "error", err)
	default:
		return s.session(ctx, client)
	}
	return nil
}

var errTooMany = errors.New(tooManyFrom)

// greet does what comes before a session: the PROXY protocol's header, the client's count,
// and TLS, all within one time-out, however slowly the bytes come.
func (s *Server) greet(ctx context.Context, accepted net.Conn, p *place) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.StartupTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = accepted.SetDeadline(past) })
	known, err := s.c.ProxyProtocol.Accept(accepted)
	if err == nil {
		if !s.counts.EnterFrom(known.RemoteAddr(), s.c.MaxPerAddress) {
			err = errTooMany
		} else {
			p.from = known.RemoteAddr()
			known, err = s.acceptTLS(ctx, known)
		}
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return known, err
}

// refuse is full, and is logged. Where many are refused, one of them stands for all.
func (s *Server) refuse(client net.Conn, peer, why string) {
	if n := s.crowd.happened(); n > 0 {
		s.c.Log.Info("connection refused", "client", peer, "reason", why, "times", n)
	}
	s.full(client, why)
}

// full tells a client that there is no place for it, and does not wait. One that begins
// with TLS would not understand.
func (s *Server) full(client net.Conn, why string) {
	if s.c.TLS != nil && !isUnix(client) {
		return
	}
	_ = client.SetDeadline(time.Now().Add(linger))
	_, _ = client.Write([]byte("-ERR " + why + "\r\n"))
}

// turnAway says one last thing to a client that has no session.
func (s *Server) turnAway(client net.Conn, line string) {
	_ = client.SetDeadline(time.Now().Add(linger))
	_, _ = client.Write([]byte(line))
	closeGently(client)
}

// peer is where the client is, as far as it is known.
func (p *place) peer(accepted net.Conn) string {
	if p.from != nil {
		return p.from.String()
	}
	return accepted.RemoteAddr().String()
}

// begun takes the client off the pending ones.
func (p *place) begun() {
	if p.pending {
		p.srv.pending.Leave()
		p.pending = false
	}
}

func (p *place) leave() {
	p.begun()
	if p.counted {
		p.srv.all.Leave()
	}
	if p.from != nil {
		p.srv.counts.LeaveFrom(p.from, p.srv.c.MaxPerAddress)
	}
}
