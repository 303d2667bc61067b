package testenv

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// Accept serves each connection to l in a goroutine of its own and closes it afterwards.
// When the test ends it closes l and waits: serve must end when its peer does, so that a
// connection which the test leaves open is noticed.
func Accept(t testing.TB, l net.Listener, serve func(net.Conn)) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
}

// Relay stands at l before the server at addr, host:port or the path of a Unix socket: each
// client gets a connection of its own, and what the two say is carried up to the server and
// down to the client; nil means by io.Copy. Where one direction ends, the connection that it
// leads to is closed. As Accept it waits for the clients to go, but for those that cut ends:
// it closes all connections, those that come later too.
func Relay(t testing.TB, l net.Listener, addr string, up, down func(to io.Writer, from io.Reader)) (cut func()) {
	t.Helper()
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	ctx, cut := context.WithCancel(context.Background())
	Accept(t, l, func(client net.Conn) {
		server, err := net.Dial(network, addr)
		if err != nil {
			return
		}
		defer context.AfterFunc(ctx, func() {
			_ = client.Close()
			_ = server.Close()
		})()
		var wg sync.WaitGroup
		defer wg.Wait()
		carry := func(to, from net.Conn, by func(io.Writer, io.Reader)) {
			wg.Go(func() {
				defer to.Close()
				if by == nil {
					_, _ = io.Copy(to, from)
				} else {
					by(to, from)
				}
			})
		}
		carry(server, client, up)
		carry(client, server, down)
	})
	return cut
}

// RelayTCP is Relay on a port of its own, whose address it returns.
func RelayTCP(t testing.TB, server string, up, down func(to io.Writer, from io.Reader)) (addr string, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String(), Relay(t, l, server, up, down)
}
