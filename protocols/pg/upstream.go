package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// A stream is a connection whose sending side can be ended alone: TCP, TLS, or a Unix
// socket.
type stream interface {
	net.Conn
	CloseWrite() error
}

// A target is where one server can be reached: an address, and the name that its host
// was configured by.
type target struct {
	host string // as configured, without the port; empty for a Unix socket
	addr string // host:port to be dialled, or a Unix socket as it was configured
}

// parseHosts splits a list of host:port with commas between.
func parseHosts(list string) ([]target, error) {
	var hosts []target
	for addr := range strings.SplitSeq(list, ",") {
		addr = strings.TrimSpace(addr)
		if _, ok := SocketPath(addr); ok {
			hosts = append(hosts, target{"", addr})
			continue
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("upstream: %w", err)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("upstream %q: the port is not a number from 1 to 65535", addr)
		}
		hosts = append(hosts, target{host, addr})
	}
	return hosts, nil
}

// dial connects to the first server that can be reached and is of the kind that is
// asked for. Nothing is remembered of a name's addresses: they are asked for each time.
func (s *Server) dial(ctx context.Context) (stream, target, error) {
	if t := s.hosts.all[0]; len(s.hosts.all) == 1 && s.hosts.attrs == AnySession {
		conn, err := s.dialTarget(ctx, t)
		if err != nil {
			return nil, target{}, err
		}
		if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			t.addr = a.String() // of the name's several
		}
		return conn, t, nil
	}
	var errs []error
	for c, err := range s.hosts.candidates(ctx) {
		if err == nil {
			var conn stream
			if conn, err = s.dialTarget(ctx, c); err == nil {
				return conn, c, nil
			}
			s.hosts.forget(c.addr)
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, target{}, errors.Join(errs...)
}

// dialAs connects to one server, encrypted or not.
func (s *Server) dialAs(ctx context.Context, t target, want encryption) (stream, error) {
	d := net.Dialer{Timeout: s.cfg.DialTimeout, KeepAliveConfig: s.cfg.KeepAlive}
	network, addr := "tcp", t.addr
	if path, ok := SocketPath(t.addr); ok {
		network, addr = "unix", path
	}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	st, ok := c.(stream)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("connected by %T, which cannot end one side alone", c)
	}
	return s.encrypted(ctx, st, t.host, want)
}

// resolve returns the addresses of a host, in the resolver's order.
func resolve(ctx context.Context, t target) ([]target, error) {
	if t.host == "" { // a Unix socket, or this machine
		return []target{t}, nil
	}
	host, port, err := net.SplitHostPort(t.addr)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []target{t}, nil
	}
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	found := make([]target, len(addrs))
	for i, a := range addrs {
		found[i] = target{t.host, net.JoinHostPort(a, port)}
	}
	return found, nil
}
