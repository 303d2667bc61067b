package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// errOver is what a session says that has ended.
var errOver = errors.New("the session has ended")

// errUnreachable: every server was tried in vain.
var errUnreachable = errors.New("no server can be reached")

// A session is one session of ZooKeeper, and never another: where the library would
// open a new one after an expiry, behind the same connection, this one is over. So a
// request can only be carried out in the session that it was made for, and a node
// that it creates is a node of that session (E10).
type session struct {
	o     Options
	conn  *zk.Conn
	event <-chan zk.Event // closed when the library's goroutines have ended
	quit  <-chan struct{} // closed when this is to end
	end   func()          // closes quit
	calls sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when anything below changes
	wire    *wire         // the latest connection
	id      int64
	online  bool      // connected, in this session
	since   time.Time // since when that is no more; zero if it never was
	known   bool      // the user is known to the server
	rounds  int       // how often every server was tried in vain
	why     string    // the latest reason
	ended   error     // why it is over

	watches map[string]watch // the latest of each node, by its path
}

// open begins a session; run must be called.
func open(servers []string, o Options) (*session, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{o: o, quit: ctx.Done(), end: cancel, changed: make(chan struct{}), known: o.User == "", watches: make(map[string]watch)}
	// dial waits for the lock, and so nothing is heard before conn is there.
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	s.conn, s.event, err = zk.Connect(servers, o.SessionTimeout,
		zk.WithHostProvider(&rota{failed: s.roundFailed}), zk.WithDialer(s.dialer(ctx)), zk.WithEventCallback(s.heard),
		zk.WithLogger(silence{}), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(maxFrame), zk.WithMaxConnBufferSize(maxFrame))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	return s, nil
}

// run identifies the user, waits for the end of the session and for all that it began.
func (s *session) run() {
	for !s.identify() {
		if s.wait(context.Background(), func() bool { return s.online }) != nil {
			break
		}
	}
	<-s.quit
	s.finish(errOver)
	s.mu.Lock()
	w := s.wire
	s.mu.Unlock()
	// The library waits without end for a server that greets halfway.
	if w != nil && !w.greeted.Load() {
		_ = w.Conn.Close()
	}
	s.conn.Close() // its closing request is never sent: see wire
	for range s.event {
		// Only its end matters.
	}
	s.calls.Wait()
}

// identify tells the server who the user is, for this and every later connection, and
// reports whether nothing is left to do.
func (s *session) identify() bool {
	if s.o.User == "" {
		return true
	}
	err := s.conn.AddAuth("digest", []byte(s.o.User+":"+s.o.Password))
	switch {
	case err == nil:
		s.change(func() { s.known = true })
	case isLoss(err):
		return false
	default:
		s.finish(fmt.Errorf("authenticating: %w", err))
	}
	return true
}

// finish notes why the session is over, and begins its end.
func (s *session) finish(why error) {
	s.change(func() {
		s.online = false
		if s.ended == nil {
			s.ended = why
		}
	})
	s.end()
}

// over reports whether the session has ended.
func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending()
}

// abandoned ends a session that no server has taken back within its timeout. Servers
// that lost their data never do: they refuse a client that has seen more than they have,
// and do not even say that its session is gone. If the session lives after all, so do its
// leases, which whoever has the tokens moves into the next session.
func (s *session) abandoned() bool {
	s.mu.Lock()
	gone := !s.online && !s.since.IsZero() && time.Since(s.since) > s.o.SessionTimeout
	s.mu.Unlock()
	if gone {
		s.finish(errOver)
	}
	return gone
}

// ending is over, under the lock.
func (s *session) ending() bool {
	select {
	case <-s.quit:
		return true
	default:
		return s.ended != nil
	}
}

// change changes the state and wakes whoever waits for it.
func (s *session) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait waits until f says yes, under the lock, or the session or the context ends.
func (s *session) wait(ctx context.Context, f func() bool) error {
	for {
		s.mu.Lock()
		ok, ended, changed := f(), s.ended, s.changed
		s.mu.Unlock()
		switch {
		case ended != nil:
			return ended
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-s.quit:
			return errOver
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// name tells the session from every other.
func (s *session) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%#x", uint64(s.id))
}

// ready waits until requests can be sent. It gives up when every server was tried
// once more in vain.
func (s *session) ready(ctx context.Context) error {
	s.mu.Lock()
	rounds := s.rounds
	s.mu.Unlock()
	var down error
	err := s.wait(ctx, func() bool {
		up := s.online && s.known
		if !up && s.rounds > rounds {
			// Not wrapped: the time-out of a dialer would pass for the caller's own.
			down = fmt.Errorf("%w: %s", errUnreachable, s.why)
		}
		return up || down != nil
	})
	if err == nil {
		err = down
	}
	return err
}

// heard takes the library's events. It is called by the goroutine that connects, before
// it connects again.
func (s *session) heard(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	switch e.State {
	case zk.StateHasSession:
		s.change(func() { s.online, s.id = true, s.conn.SessionID() })
	case zk.StateExpired:
		s.finish(zk.ErrSessionExpired)
	case zk.StateDisconnected:
		s.change(func() {
			if s.online {
				s.online, s.since = false, time.Now()
			}
		})
	default: // connecting, connected without a session
	}
}

// roundFailed notes that every server was tried.
func (s *session) roundFailed() { s.change(func() { s.rounds++ }) }

// dialer returns what connects to one server, for the library. Once the session is
// over it does not: the library would open another session.
func (s *session) dialer(quit context.Context) zk.Dialer {
	return func(network, addr string, _ time.Duration) (net.Conn, error) {
		if s.over() {
			return nil, errOver
		}
		ctx, cancel := context.WithTimeout(quit, s.o.AnswerTimeout)
		defer cancel()
		c, err := s.o.Dial(ctx, network, addr)
		if err != nil {
			s.change(func() { s.why = err.Error() })
			return nil, err
		}
		w := newWire(c, s.o.AnswerTimeout, func(err error) {
			s.change(func() { s.why = addr + ": " + err.Error() })
		})
		s.change(func() { s.wire = w })
		if s.over() { // run may have looked for a wire before
			_ = c.Close()
			return nil, errOver
		}
		return w, nil
	}
}

// do runs one request of the library's, which knows no contexts, and waits for it as
// long as the context lives. When the server is silent for too long the connection is
// cut, and the library turns to another. A request that is left behind may still be
// carried out, in this session.
func do[T any](ctx context.Context, s *session, f func(*zk.Conn) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	var none T
	if !s.begin() {
		return none, errOver
	}
	go func() {
		defer s.calls.Done()
		v, err := f(s.conn)
		done <- answer{v, err}
	}()
	silence := time.NewTimer(s.o.AnswerTimeout)
	defer silence.Stop()
	for asked := time.Now(); ; asked = time.Now() {
		select {
		case a := <-done:
			return a.v, a.err
		case <-ctx.Done():
			return none, ctx.Err()
		case <-silence.C:
			s.cutIfSilent(asked)
			silence.Reset(s.o.AnswerTimeout)
		}
	}
}

// begin notes a call, unless the session has ended.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending() {
		return false
	}
	s.calls.Add(1)
	return true
}

// cutIfSilent closes the connection unless something was heard from it since.
func (s *session) cutIfSilent(since time.Time) {
	s.mu.Lock()
	w := s.wire
	s.mu.Unlock()
	if w != nil && !w.heardSince(since) {
		_ = w.Conn.Close()
	}
}

// silence logs nothing.
type silence struct{}

func (silence) Printf(string, ...any) {}

// A rota tells the library which server is next. Names are resolved by the dialer, at
// every connection anew.
type rota struct {
	servers []string
	next    int
	tried   int // since the last success
	failed  func()
}

// Init implements zk.HostProvider.
func (r *rota) Init(servers []string) error { r.servers = servers; return nil }

// Len implements zk.HostProvider.
func (r *rota) Len() int { return len(r.servers) }

// Next implements zk.HostProvider. The library pauses for a second when all were tried.
func (r *rota) Next() (server string, again bool) {
	if again = r.tried == len(r.servers); again {
		r.tried = 0
		r.failed()
	}
	server = r.servers[r.next]
	r.next = (r.next + 1) % len(r.servers)
	r.tried++
	return server, again
}

// Connected implements zk.HostProvider.
func (r *rota) Connected() { r.tried = 0 }
