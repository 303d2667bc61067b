package resp

import (
	"context"
	"crypto/rand"
	"errors"
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
	owns    map[string]bool
	sweeper sweeper
	*places
	node    *node    // which it is of a cluster; nil: of none
	cluster *Cluster // of which any node will do; nil: this server is meant
	away    often    // sessions that did not reach it
}

// places count connections. The ports of a cluster's nodes count theirs together.
type places struct {
	pending protocols.Count // connections whose TLS or PROXY protocol header is under way
	counts  protocols.Count // connections by address
	all     protocols.Count // those of a cluster
	crowd   often           // connections that were refused
}

// New checks c and makes a Server. It does not wait for the upstream server.
func New(c Config) (*Server, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	return newServer(c, new(places)), nil
}

// newServer makes a server of a Config that was checked.
func newServer(c Config, p *places) *Server {
	s := &Server{c: c, tables: tables{control: c.Control, timeout: c.DialTimeout}, memory: pool{Chunks: protocols.Chunks{Size: c.Buffer}}, places: p}
	if len(c.Own) > 0 {
		s.owns = make(map[string]bool)
		for name := range c.Own {
			s.owns[name] = true
		}
	}
	return s
}

// Serve serves clients from l until ctx is done, and returns when the last session has
// ended. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	sweeping, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { s.sweeper.Run(sweeping, sweepEvery, sweep) })
	if s.c.IdleTimeout > 0 && s.cluster == nil { // its nodes see to theirs
		wg.Go(func() { s.endIdle(sweeping) })
	}
	return protocols.Serve(ctx, l, protocols.Serving{
		Session:   s.connection,
		Refuse:    func(c net.Conn) { s.refuse(c, c.RemoteAddr().String(), tooMany) },
		MaxConns:  s.c.MaxConns,
		Drain:     s.c.Drain,
		Loops:     s.c.Loops,
		KeepAlive: s.c.KeepAlive,
	})
}

// session serves one client: connect upstream, then pump.
func (s *Server) session(ctx context.Context, client net.Conn) *session {
	at, table, upstream, err := s.reach(ctx)
	if err != nil && s.node != nil {
		// As if the node itself refused: a word would keep the client from asking others.
		s.c.Log.Debug("no session: the node cannot be reached", "node", s.node.id, "upstream", s.c.Upstream, "error", err)
		s.tables.suspectIt()
		s.node.cluster.c.Topology.Suspect()
		return nil
	}
	if errors.Is(err, errClustered) {
		if n := s.away.happened(); n > 0 {
			s.c.Log.Error("no session", "upstream", s.c.Upstream, "times", n, "error", err)
		}
		s.turnAway(client, notSetUp)
		return nil
	}
	if err != nil {
		s.unreached(ctx, err)
		s.tables.suspectIt()
		s.turnAway(client, errorLine(wordDown, "fenceproxy cannot reach the server. Check that it runs; then reconnect."))
		return nil
	}
	s.reached()
	x := &session{
		server: at, client: client, upstream: upstream, table: table,
		wake: make(chan struct{}, 1), over: make(chan struct{}),
	}
	cfg := coreConfig{
		nonce:     "fenceproxy:" + rand.Text(),
		election:  s.c.Election,
		serves:    s.c.serves,
		fenceDB:   s.c.FenceDB,
		publish:   s.c.OpenPublish,
		rules:     s.c.Rules,
		localAddr: upstream.LocalAddr().String(),
		commands:  table,
		maybe:     table.cluster != single,
		owns:      s.owns,
		lead:      s.c.Lead,
		required:  s.c.RequireBound,
	}
	if at.node != nil {
		cfg.cluster = neighbourhood{at.node, at.node.cluster.host(client)}
	}
	x.core = newCore(cfg)
	x.carry(s.c.Loops)
	return x
}

// unreached logs that a session did not reach the server.
func (s *Server) unreached(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the proxy is stopping
	}
	if n := s.away.happened(); n > 0 {
		s.c.Log.Warn("no session: the upstream server cannot be reached", "upstream", s.c.Upstream, "times", n, "error", err)
	}
}

// reached logs that sessions reach the server again.
func (s *Server) reached() {
	if untold, happened := s.away.over(); happened {
		s.c.Log.Info("the upstream server is reached again", "upstream", s.c.Upstream, "untold", untold)
	}
}

// reach connects to the server, or to one of the cluster; at is the one that it is.
func (s *Server) reach(ctx context.Context) (at *Server, t *table, upstream net.Conn, err error) {
	if s.cluster != nil {
		return s.cluster.reach(ctx)
	}
	t, upstream, err = s.open(ctx)
	return s, t, upstream, err
}

// errClustered: clients would be led to the cluster's other nodes, around the fence.
var errClustered = errors.New("the server is a node of a cluster: upstream and control must begin with redis+cluster://")

// open connects upstream.
func (s *Server) open(ctx context.Context) (*table, net.Conn, error) {
	table, err := s.tables.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	if table.cluster == clustered && s.node == nil {
		return nil, nil, errClustered
	}
	upstream, err := s.dial(ctx)
	return table, upstream, err
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
