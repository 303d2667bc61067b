package redis

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// A lane is one connection, made by its first call, and a way to cut it. Nobody but its
// call looks at used.
type lane struct {
	client  *goredis.Client
	conn    *goredis.Conn // the client's one
	maxIdle time.Duration // how long it may be idle, and be altogether; 0 for ever
	maxLife time.Duration
	dials   *sync.WaitGroup
	wasCut  chan struct{} // closed by cut

	made, used time.Time

	mu   sync.Mutex
	gone bool
	end  func()   // closes the connection, or gives up making it; nil before the first
	raw  net.Conn // nil before it is made
}

func newLane(o *goredis.Options, dials *sync.WaitGroup) *lane {
	l := &lane{maxIdle: o.ConnMaxIdleTime, maxLife: o.ConnMaxLifetime, dials: dials, wasCut: make(chan struct{}), made: time.Now()}
	if l.maxIdle == 0 {
		l.maxIdle = 30 * time.Minute // go-redis's default
	}
	own := *o
	own.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return l.dial(ctx, o.Dialer, network, addr)
	}
	l.client = goredis.NewClient(&own)
	l.conn = l.client.Conn()
	return l
}

// good reports whether a lane may be used, or used again: the server has not closed it,
// nor said anything unasked, and it is not too old.
func (l *lane) good() bool {
	if l.used.IsZero() {
		return true
	}
	now := time.Now()
	if l.maxIdle > 0 && now.Sub(l.used) > l.maxIdle || l.maxLife > 0 && now.Sub(l.made) > l.maxLife {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.gone && quiet(l.raw)
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer is the dialer that the options ask for, with one that heeds its context also
// in TLS's handshake where they name none.
func dialer(o *goredis.Options) dialFunc {
	plain := &net.Dialer{KeepAlive: 5 * time.Minute}
	switch {
	case o.Dialer != nil:
		return o.Dialer
	case o.TLSConfig != nil:
		return (&tls.Dialer{NetDialer: plain, Config: o.TLSConfig}).DialContext
	}
	return plain.DialContext
}

// dial makes the connection, in a goroutine of go-redis that a call which was cut leaves
// behind. While the lane is not cut, a call is under way, so that Close waits for both.
func (l *lane) dial(ctx context.Context, next dialFunc, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		return nil, net.ErrClosed
	}
	l.dials.Add(1)
	defer l.dials.Done()
	l.end = cancel
	l.mu.Unlock()

	c, err := next(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	raw := c
	if t, ok := c.(*tls.Conn); ok {
		raw = t.NetConn() // its own Close may wait to say goodbye
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	l.end, l.raw = func() { _ = raw.Close() }, raw
	return c, nil
}

// cut ends what the lane is doing, for good: what is read or written fails from now on,
// and a connection that is being made is given up.
func (l *lane) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return
	}
	l.gone = true
	if l.end != nil {
		l.end()
	}
	close(l.wasCut)
}

// discard throws the lane away.
func (l *lane) discard() {
	l.cut()
	_ = l.client.Close()
}
