// Package embedded is a small Redis in this process, for the demo on a machine
// without a Redis server: miniredis, with connections that have names, can be listed
// and can be ended.
//
// It promises what the fence asks of a server: CLIENT KILL answers only when the
// killed connection has run its last command. It does not promise to be Redis: it
// keeps nothing, knows fewer commands, and refuses those that miniredis would get wrong
// (FLUSHALL, FLUSHDB and SWAPDB do not fire its WATCH).
package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/tidwall/redcon"
)

// Version is what the server says of itself.
const Version = "miniredis, embedded"

// A Server is one running server. Close it.
type Server struct {
	m      *miniredis.Miniredis
	l      net.Listener
	table  commandTable
	ended  context.CancelFunc
	wg     sync.WaitGroup
	lastID atomic.Int64

	mu      sync.Mutex
	clients map[int64]*client
	closed  bool
}

// Start starts a server on a free loopback port.
func Start(ctx context.Context) (*Server, error) {
	m := miniredis.NewMiniRedis()
	c, err := m.Dial() // starts it without a listener of its own
	if err != nil {
		return nil, fmt.Errorf("starting the embedded server: %w", err)
	}
	_ = c.Close()
	m.ClockTTL(true)
	table, err := readCommandTable(m)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("starting the embedded server: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("starting the embedded server: %w", err)
	}
	s := &Server{m: m, l: l, table: table, clients: map[int64]*client{}}
	// It lives until Close, not until ctx is done.
	ticking, end := context.WithCancel(context.WithoutCancel(ctx))
	s.ended = end
	s.wg.Go(s.accept)
	s.wg.Go(func() { s.expire(ticking) })
	return s, nil
}

// Addr is the host:port that it listens on.
func (s *Server) Addr() string { return s.l.Addr().String() }

// Close ends the server and every connection, and waits for them.
func (s *Server) Close() {
	_ = s.l.Close()
	s.ended()
	s.mu.Lock()
	s.closed = true
	for _, c := range s.clients {
		_ = c.conn.Close()
	}
	s.mu.Unlock()
	s.m.Close()
	s.wg.Wait()
}

// expire lets blocked commands see that keys have run out and peers have gone.
func (s *Server) expire(ctx context.Context) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.wake()
		}
	}
}

// wake makes every blocked command look again.
func (s *Server) wake() {
	var out bytes.Buffer
	s.dispatch(server.NewPeer(bufio.NewWriter(&out)), []string{"DBSIZE"})
}

// dispatch runs a command; a server that has been closed runs none.
func (s *Server) dispatch(p *server.Peer, args []string) {
	if srv := s.m.Server(); srv != nil {
		srv.Dispatch(p, args)
	}
}

func (s *Server) accept() {
	for {
		conn, err := s.l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		c := &client{
			id: s.lastID.Add(1), conn: conn, since: time.Now(),
			peer: server.NewPeer(bufio.NewWriter(conn)),
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close()
			return
		}
		s.clients[c.id] = c
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serve(c)
			_ = conn.Close()
			s.mu.Lock()
			delete(s.clients, c.id)
			s.mu.Unlock()
		})
	}
}

// A client is one connection.
type client struct {
	id    int64
	conn  net.Conn
	since time.Time
	peer  *server.Peer
	// running is held while a command of the client's runs. Whoever has set killed
	// and then held running knows that no command of it runs any more, ever.
	running sync.Mutex
	killed  atomic.Bool
	// multi is touched by the client's own goroutine only: commands are queued.
	multi bool
}

// serve reads commands and runs them, one after the other, until the connection
// ends. Reading goes on while a command blocks, so that its end is noticed.
func (s *Server) serve(c *client) {
	commands, done := make(chan []string), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(commands)
		defer c.peer.Close()
		for r := redcon.NewReader(c.conn); ; {
			cmd, err := r.ReadCommand()
			if err != nil {
				return
			}
			if len(cmd.Args) == 0 {
				continue
			}
			args := make([]string, len(cmd.Args))
			for i, a := range cmd.Args {
				args[i] = string(a)
			}
			select {
			case commands <- args:
			case <-done:
				return
			}
		}
	})
	for args := range commands {
		s.one(c, args)
		c.peer.Flush()
		if c.killed.Load() || strings.EqualFold(args[0], "QUIT") {
			break
		}
	}
	close(done)
	_ = c.conn.Close()
	reading.Wait()
}

// one runs one command.
func (s *Server) one(c *client, args []string) {
	if s.own(c, args) {
		return
	}
	c.running.Lock()
	defer c.running.Unlock()
	// Checked under running: a kill that has been answered is never followed by a
	// command of the killed connection.
	if c.killed.Load() {
		return
	}
	s.dispatch(c.peer, args)
	switch strings.ToUpper(args[0]) {
	case "MULTI":
		c.multi = true
	case "EXEC", "DISCARD":
		c.multi = false
	}
}

// kill ends a connection; self is whose command it is. When it returns, the
// connection has run its last command.
func (s *Server) kill(c *client) {
	c.killed.Store(true)
	_ = c.conn.Close()
	c.peer.Close()
	s.wake()
	c.running.Lock()
	defer c.running.Unlock()
}
