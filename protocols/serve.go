// Package protocols holds what the wire protocols share: accepting connections,
// bounding how many there are, and ending them in order.
package protocols

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols/loops"
)

// DefaultMaxConns is how many client connections a listener serves at once when
// Serving.MaxConns is zero.
const DefaultMaxConns = 10000

// DefaultDrain is how long sessions may take to end when Serving.Drain is zero.
const DefaultDrain = 10 * time.Second

// Serving says how Serve treats connections. The zero value is useful but for Session.
type Serving struct {
	// Session serves one client and returns when it and all that it started have
	// ended. Serve closes the connection afterwards. When ctx is done the session
	// ends itself at its next message boundary.
	Session func(ctx context.Context, client net.Conn)
	// Refuse tells a client in its own protocol that there are too many
	// connections; nil closes without a word. It must not block for long.
	Refuse func(client net.Conn)
	// MaxConns bounds the connections served at once; zero means DefaultMaxConns.
	MaxConns int
	// Drain is how long sessions may take to end after ctx is done, before their
	// connections are closed under them; zero means DefaultDrain.
	Drain time.Duration
	// KeepAlive is how clients that are out of reach are found out; what is zero of it is
	// that of DefaultKeepAlive.
	KeepAlive net.KeepAliveConfig
	// Loops may take over a connection that Session was given; nil if none do.
	Loops *loops.Loops
}

// DefaultKeepAlive ends an idle connection whose peer is out of reach after a minute and
// a half.
var DefaultKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 6}

// FillKeepAlive puts the defaults in the place of what is zero.
func FillKeepAlive(k net.KeepAliveConfig) net.KeepAliveConfig {
	k.Enable = true
	if k.Idle == 0 {
		k.Idle = DefaultKeepAlive.Idle
	}
	if k.Interval == 0 {
		k.Interval = DefaultKeepAlive.Interval
	}
	if k.Count == 0 {
		k.Count = DefaultKeepAlive.Count
	}
	return k
}

// Serve accepts connections from l until ctx is done or l fails, and returns only
// when every session has ended. It closes l. It returns nil when ctx ended it.
func Serve(ctx context.Context, l net.Listener, s Serving) error {
	maxConns, drain, keepAlive := s.MaxConns, s.Drain, FillKeepAlive(s.KeepAlive)
	if maxConns == 0 {
		maxConns = DefaultMaxConns
	}
	if drain == 0 {
		drain = DefaultDrain
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		conns = make(map[net.Conn]struct{})
	)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	sessions, endSessions := context.WithCancel(ctx)
	defer endSessions()

	session := s.Session
	closeSession := func(c net.Conn) {
		_ = s.Loops.Close(c)
		mu.Lock()
		delete(conns, c)
		mu.Unlock()
	}
	err := acceptLoop(ctx, l, func(c net.Conn) {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetKeepAliveConfig(keepAlive)
		}
		mu.Lock()
		full := len(conns) >= maxConns
		if !full {
			conns[c] = struct{}{}
		}
		mu.Unlock()
		if full {
			if s.Refuse != nil {
				_ = c.SetDeadline(time.Now().Add(time.Second))
				s.Refuse(c)
			}
			_ = c.Close()
			return
		}
		wg.Go(func() {
			session(sessions, c) // first: what is below it on the stack stays for as long as it does
			closeSession(c)
		})
	})
	_ = l.Close()
	endSessions()

	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		mu.Lock()
		for c := range conns {
			_ = s.Loops.Close(c)
		}
		mu.Unlock()
		<-ended
	}
	return err
}

// acceptLoop hands every accepted connection to serve. Failures to accept that
// pass by themselves (out of file descriptors) are waited out.
func acceptLoop(ctx context.Context, l net.Listener, serve func(net.Conn)) error {
	pause := 5 * time.Millisecond
	for {
		c, err := l.Accept()
		if err == nil {
			pause = 5 * time.Millisecond
			serve(c)
			continue
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended it, and closed l
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accepting on %v: %w", l.Addr(), err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}
