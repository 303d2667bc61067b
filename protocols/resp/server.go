package resp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"sync"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/protocols"
)

// A Server serves the clients of one upstream server.
type Server struct {
	c       Config
	tables  tables
	memory  pool
	sweeper sweeper
	pending protocols.Count // connections whose session has not begun
	counts  protocols.Count // connections by address
}

// New checks c and makes a Server. It does not wait for the upstream server.
func New(c Config) (*Server, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	return &Server{c: c, tables: tables{control: c.Control, timeout: c.DialTimeout}, memory: pool{size: c.Buffer}}, nil
}

// Serve serves clients from l until ctx is done, and returns when the last session has
// ended. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	sweeping, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { s.sweeper.run(sweeping) })
	return protocols.Serve(ctx, l, protocols.Serving{
		Session:   s.connection,
		Refuse:    func(c net.Conn) { s.full(c, tooMany) },
		MaxConns:  s.c.MaxConns,
		Drain:     s.c.Drain,
		KeepAlive: s.c.KeepAlive,
	})
}

// session serves one client: connect upstream, then pump.
func (s *Server) session(ctx context.Context, client net.Conn, p *place) {
	table, err := s.tables.get(ctx)
	var upstream net.Conn
	if err == nil {
		upstream, err = s.dial(ctx)
	}
	if err != nil {
		s.c.Log.Warn("no session: the upstream server cannot be reached", "upstream", s.c.Upstream, "error", err)
		s.tables.suspectIt()
		s.turnAway(client, errorLine(wordDown, "fenceproxy cannot reach the server. Check that it runs; then reconnect."))
		return
	}
	p.begun()
	x := &session{
		server: s, client: client, upstream: upstream, table: table,
		wake: make(chan struct{}, 1), over: make(chan struct{}),
	}
	x.core = newCore(coreConfig{
		nonce:     "fenceproxy:" + rand.Text(),
		election:  s.c.Election,
		serves:    s.c.serves,
		fenceDB:   s.c.FenceDB,
		localAddr: upstream.LocalAddr().String(),
		commands:  table,
	})
	x.run(ctx)
}

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.DialTimeout)
	defer cancel()
	return s.c.Dial(ctx)
}

// why asks the guard what became of a term whose connection the server closed. Nil
// means that the term still rules.
func (s *Server) why(ctx context.Context, p *guard.Permit, cred guard.Credential) *guard.Refusal {
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	p.Invalidate() // so that the fence itself is read
	again, err := s.c.Guard.Admit(ctx, cred)
	if err == nil {
		again.Release()
		return nil
	}
	return refusalOf(err, cred.Election)
}

// refusalOf is the refusal that an Admitter's error is.
func refusalOf(err error, electionID string) *guard.Refusal {
	if r, ok := asRefusal(err); ok {
		return r
	}
	return &guard.Refusal{Reason: guard.BackendUnknown, Election: electionID, Err: fmt.Errorf("admitting: %w", err)}
}
