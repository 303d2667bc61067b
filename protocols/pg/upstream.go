package pg

import (
	"context"
	"fmt"
	"net"
)

// A stream is a connection whose sending side can be ended alone: TCP, TLS, or a Unix
// socket.
type stream interface {
	net.Conn
	CloseWrite() error
}

// dial connects to the server.
func (s *Server) dial(ctx context.Context) (stream, error) {
	d := net.Dialer{Timeout: s.cfg.DialTimeout}
	c, err := d.DialContext(ctx, "tcp", s.cfg.Upstream)
	if err != nil {
		return nil, err
	}
	st, ok := c.(stream)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("connected by %T, which cannot end one side alone", c)
	}
	return st, nil
}
