package pg

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols"
)

// A place is a client's among those that are counted: until it has logged in among the
// pending ones, from its start-up packet on among the sessions.
type place struct {
	srv     *Server
	until   time.Time // the start-up packet must be there by then
	from    net.Addr
	pending bool
	session bool
}

// connection serves one client: find out where it is, count it, and begin.
func (s *Server) connection(ctx context.Context, client net.Conn) {
	p := &place{srv: s, until: time.Now().Add(s.cfg.StartupTimeout)}
	defer p.leave()
	// What comes before is done with its stack when it has returned: this one lives as long as
	// the session.
	if x := s.meet(ctx, client, p); x != nil {
		x.run(ctx)
	}
}

// meet finds out who the client is and connects it, or turns it away: then it returns nil.
func (s *Server) meet(ctx context.Context, client net.Conn, p *place) *session {
	if p.pending = s.pending.Enter(s.cfg.MaxPending); !p.pending {
		s.full(client, "too many connections that have not logged in")
		lingerClose(client)
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = client.SetDeadline(time.Unix(1, 0)) })
	// A header that comes a byte a second and a start-up packet that does are one wait.
	_ = client.SetDeadline(p.until)
	peer := client.RemoteAddr()
	known, err := s.cfg.ProxyProtocol.Accept(client)
	if !stop() {
		return nil // the proxy is shutting down
	}
	if err != nil {
		level := s.cfg.Logger.Warn
		if !errors.Is(err, protocols.ErrUntrusted) && !errors.Is(err, protocols.ErrProxyHeader) {
			level = s.cfg.Logger.Debug // a check of whether the port is open
		}
		level("connection refused", "peer", peer, "err", err)
		return nil
	}
	if !s.counts.EnterFrom(known.RemoteAddr(), s.cfg.MaxPerAddress) {
		s.cfg.Logger.Info("connection refused", "client", known.RemoteAddr(), "reason", "too many from its address")
		s.full(known, "too many connections from the client's address")
		lingerClose(known)
		return nil
	}
	p.from = known.RemoteAddr()
	return s.session(ctx, known, p)
}

// full tells a client that there is no place for it, and does not wait.
func (s *Server) full(client net.Conn, why string) {
	_ = client.SetDeadline(time.Now().Add(time.Second))
	_, _ = client.Write(report{severity: "FATAL", code: "53300", message: why}.append(nil))
}

// mayEnter counts the client among the sessions, unless there are too many.
func (p *place) mayEnter() bool {
	p.session = p.srv.counts.Enter(p.srv.cfg.MaxConns)
	return p.session
}

// loggedIn takes the client off the pending ones.
func (p *place) loggedIn() {
	if p.pending {
		p.srv.pending.Leave()
		p.pending = false
	}
}

func (p *place) leave() {
	p.loggedIn()
	if p.session {
		p.srv.counts.Leave()
	}
	if p.from != nil {
		p.srv.counts.LeaveFrom(p.from, p.srv.cfg.MaxPerAddress)
	}
}
