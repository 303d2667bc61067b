package kubernetes

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fenceproxy/fenceproxy/election"
)

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// conns are the connections of one backend. client-go keeps transports for a whole
// process and closes none of them; a backend closes its own.
type conns struct {
	next dialFunc
	pool http.RoundTripper // client-go's transport, which keeps the idle ones

	mu     sync.Mutex
	closed bool
	ends   map[*conn]func() // closes the connection, or gives up making it
}

func newConns(dial dialFunc) *conns {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return &conns{next: dial, ends: make(map[*conn]func())}
}

// dial makes a connection. It ends with the backend, made or not.
func (s *conns) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &conn{of: s}
	if !s.keep(c, cancel) {
		return nil, election.ErrClosed
	}
	nc, err := s.next(ctx, network, address)
	if err != nil {
		s.forget(c)
		return nil, err
	}
	c.Conn = nc
	if !s.keep(c, func() { _ = nc.Close() }) {
		_ = nc.Close()
		return nil, election.ErrClosed
	}
	return c, nil
}

// keep notes how to end c, unless all are to end.
func (s *conns) keep(c *conn, end func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.ends[c] = end
	}
	return !s.closed
}

func (s *conns) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, c)
}

// dropIdle closes those on which nothing is asked.
func (s *conns) dropIdle() {
	for t := s.pool; t != nil; {
		switch p := t.(type) {
		case interface{ CloseIdleConnections() }:
			p.CloseIdleConnections()
			return
		case utilnet.RoundTripperWrapper:
			t = p.WrappedRoundTripper()
		default:
			return
		}
	}
}

// close ends them all.
func (s *conns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, end := range s.ends {
		end()
	}
	clear(s.ends)
}

// A conn is one of them.
type conn struct {
	net.Conn
	of *conns
}

func (c *conn) Close() error {
	c.of.forget(c)
	return c.Conn.Close()
}
