package redis

import (
	"context"
	"runtime"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
)

// lanes are the connections to one server, a client of go-redis for each. A call has a
// lane to itself, so that its context can end it: go-redis looks at a context's
// deadline alone, not at its cancellation, and does not tell which connection a call is
// on. The other way to end a call, a goroutine that is left behind, costs more than the
// rest of the call.
type lanes struct {
	options *goredis.Options // of each lane's client
	maxIdle int
	turns   chan struct{}  // holds one for each call under way
	ended   chan struct{}  // closed by close
	under   sync.WaitGroup // calls, and dials that they began

	mu     sync.Mutex
	closed bool
	idle   []*lane
	all    map[*lane]struct{} // idle or not
}

// newLanes makes no connection: each lane makes its own when it is first taken. The
// options must have a dialer that heeds its context.
func newLanes(o *goredis.Options) *lanes {
	size := o.PoolSize
	if size <= 0 {
		size = 10 * runtime.GOMAXPROCS(0)
	}
	if o.MaxActiveConns > 0 {
		size = min(size, o.MaxActiveConns)
	}
	s := &lanes{
		maxIdle: size,
		turns:   make(chan struct{}, size),
		ended:   make(chan struct{}),
		all:     make(map[*lane]struct{}),
	}
	if o.MaxIdleConns > 0 {
		s.maxIdle = o.MaxIdleConns
	}
	of := *o
	// Room for two where there is never more than one: after as many failed dials as a
	// pool has room for, go-redis goes on dialing in the background and answers with the
	// old error meanwhile. A lane whose dial failed is thrown away after the first.
	of.PoolSize, of.MaxActiveConns, of.MinIdleConns, of.MaxIdleConns, of.PipelinePoolSize = 2, 0, 0, 0, -1
	if of.Protocol == 0 {
		of.Protocol = 2 // spares looking for pushes, of which there are none
	}
	s.options = &of
	return s
}

// run makes a call on a lane of its own. It returns when the context ends or the backend
// is closed, whatever the server does; what the call was waiting for is then never read.
func (s *lanes) run(ctx context.Context, c call) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, l.cut)
	reply, err := c.on(ctx, l.conn).Slice()
	whole := stop()
	if !whole {
		<-l.wasCut // the context's goroutine is through
		if err != nil {
			err = ctx.Err() // whatever the cut looked like from inside
		}
	}
	closed := s.put(l, whole && err == nil)
	<-s.turns
	if closed && err != nil {
		return nil, election.ErrClosed
	}
	return reply, err
}

// subscription implements runner, with a client of its own: it takes no call's turn.
func (s *lanes) subscription(ctx context.Context) (*goredis.PubSub, <-chan struct{}, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, nil, election.ErrClosed
	}
	s.under.Add(1)
	o := *s.options
	client := goredis.NewClient(&o)
	return client.Subscribe(ctx), s.ended, func() {
		_ = client.Close()
		s.under.Done()
	}, nil
}

// take waits for a turn, and takes an idle lane that is still good or makes one.
func (s *lanes) take(ctx context.Context) (*lane, error) {
	select {
	case s.turns <- struct{}{}:
	default:
		select {
		case s.turns <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ended:
			return nil, election.ErrClosed
		}
	}
	for {
		l := s.pop()
		if l == nil {
			<-s.turns
			return nil, election.ErrClosed
		}
		if l.good() {
			return l, nil
		}
		s.put(l, false)
	}
}

// pop takes an idle lane or makes one; it returns nil when the backend is closed.
func (s *lanes) pop() (l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if n := len(s.idle); n > 0 {
		l, s.idle[n-1] = s.idle[n-1], nil
		s.idle = s.idle[:n-1]
	} else {
		l = newLane(s.options, &s.under)
		s.all[l] = struct{}{}
	}
	s.under.Add(1)
	return l
}

// put ends what pop began, and reports whether the backend is closed. Safety: a lane that
// was cut, or whose call failed, is not used again, for the answer of that call may still
// arrive on it.
func (s *lanes) put(l *lane, good bool) (closed bool) {
	s.mu.Lock()
	keep := good && !s.closed && len(s.idle) < s.maxIdle
	if keep {
		l.used = time.Now()
		s.idle = append(s.idle, l)
	} else {
		delete(s.all, l)
	}
	closed = s.closed
	s.mu.Unlock()
	if !keep {
		l.discard()
	}
	s.under.Done()
	return closed
}

// close ends the calls under way and waits for them.
func (s *lanes) close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.ended)
	}
	for l := range s.all {
		l.cut()
	}
	idle := s.idle
	s.idle = nil
	s.mu.Unlock()
	for _, l := range idle {
		l.discard()
	}
	s.under.Wait()
	return nil
}
