package pg

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/policy"
	"github.com/fenceproxy/fenceproxy/protocols"
)

// A session drives a core with two connections. One goroutine, a pump, carries each
// direction; neither ever waits for the other side's socket, so a peer that does not
// read stops its own direction alone. The client's pump is the only writer upstream, but
// while the core is settling; the server's pump is the only writer to the client. The
// core is never locked during I/O.
type session struct {
	cfg      *Config
	log      *slog.Logger
	client   net.Conn
	upstream stream
	to       target // where upstream leads
	place    *place // nil in tests
	start    *startup
	greeting []byte // the server's first bytes, where the start-up packet was sent already
	srv      *Server
	loops    carried

	mu      sync.Mutex
	changed sync.Cond // the core moved on, for a client's pump that waits
	core    core
	permits []Permit // of what it is bound to; only added to
	moves   uint64   // counts what the pumps do, for the sweeper

	writing   atomic.Bool // the client has not taken all yet
	wg        sync.WaitGroup
	done      chan struct{} // closed when the server's side is over
	bindings  []pgfence.Bound
	unwatch   []func() bool // ends the watch over each permit; whoever admits adds to it
	serverEOF bool
	ledAgain  time.Time // when a sidecar's credential may be asked for again; the client's pump's
	leave     func()    // forgets where the session's cancel requests go
}

func newSession(srv *Server, client net.Conn, upstream stream, start *startup) *session {
	cfg := &srv.cfg
	var nonce [8]byte
	rand.Read(nonce[:])
	s := &session{
		cfg: cfg, client: client, upstream: upstream, start: start, srv: srv,
		log:  cfg.Logger.With("client", client.RemoteAddr().String()),
		done: make(chan struct{}),
		core: core{
			sql: cfg.SQL, nonce: markerPrefix + hex.EncodeToString(nonce[:]) + "_", maxInspect: cfg.MaxInspect,
			allowPrepared: cfg.AllowPreparedTransactions, replication: start.replication, election: cfg.DefaultElection,
			elections:   func(id string) bool { return len(cfg.Elections) == 0 || slices.Contains(cfg.Elections, id) },
			lead:        cfg.Lead,
			required:    cfg.RequireBound,
			wishAtStart: start.readOnly, wish: start.readOnly,
			channels: channelsOf(certOf(client), certOf(upstream), cfg.Verifiers != nil), newNonce: newNonce,
		},
	}
	if cfg.Rules != nil {
		s.core.ruled = &ruling{rules: cfg.Rules}
	}
	s.changed.L = &s.mu
	return s
}

// run forwards until both sides are over, and returns when all that it started has ended.
func (s *session) run(ctx context.Context) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.shutdown()
	})
	late := time.AfterFunc(s.cfg.LoginTimeout, s.loginExpired)

	var err error
	if s.greeting == nil {
		_ = s.upstream.SetWriteDeadline(time.Now().Add(s.cfg.LoginTimeout))
		_, err = s.upstream.Write(s.start.packet)
		_ = s.upstream.SetWriteDeadline(time.Time{})
	}
	s.start.packet = nil // a session at rest keeps nothing of its start
	if err == nil {
		p := clientPump{s: s, b: newBuffer(&s.srv.buffers, s.client)}
		p.run, p.each = func() { p.pump(ctx) }, func() bool { return s.toServer(p.b) }
		s.wg.Add(1)
		go p.run()
		s.pumpServer(ctx, late)
	}

	late.Stop()
	s.srv.sweeper.Leave(s)
	s.mu.Lock()
	s.core.finish()
	s.changed.Broadcast()
	if s.core.died {
		s.srv.hosts.forget(s.to.addr) // another may take over
	}
	s.mu.Unlock()
	close(s.done)
	if s.leave != nil {
		s.leave()
	}
	endWriting(s.client)
	s.closeUpstream()
	if !stop() {
		<-ended
	}
	s.wg.Wait()
	// Only now: the client's pump may have been admitting when the server's side ended.
	for i, p := range s.permits {
		s.unwatch[i]()
		p.Release()
	}
	s.unbind()
}

// closeUpstream closes the server's connection and, for a bound session, waits a little
// for the server process to end.
func (s *session) closeUpstream() {
	s.mu.Lock()
	bound := len(s.bindings) > 0
	s.mu.Unlock()
	if !s.serverEOF && bound {
		_ = s.upstream.CloseWrite()
		_ = s.upstream.SetReadDeadline(time.Now().Add(linger))
		_, err := io.Copy(io.Discard, s.upstream)
		s.serverEOF = err == nil
	}
	_ = s.upstream.Close()
}

// unbind forgets the bindings, but only when the server itself closed the connection:
// a server process that may still run a statement must stay where a takeover finds it.
func (s *session) unbind() {
	if !s.serverEOF {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, b := range s.bindings {
		if err := s.cfg.Binder.Unbind(ctx, b); err != nil {
			s.log.Debug("unbinding", "pid", b.PID, "err", err)
		}
	}
}

// shutdown ends the session when it comes to rest, and at the latest when the proxy's
// patience is over.
func (s *session) shutdown() {
	s.mu.Lock()
	s.core.shutdown()
	s.wake()
	s.mu.Unlock()
	t := time.NewTimer(s.cfg.Drain)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
		_ = s.upstream.Close()
	}
}

// entered takes the session off those that are logging in.
func (s *session) entered(late *time.Timer) {
	late.Stop()
	if s.place != nil {
		s.place.loggedIn()
	}
	s.srv.sweeper.Enter(s, &stillness{since: time.Now()})
}

func (s *session) loginExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.phase != ready {
		s.core.end(report{severity: "FATAL", code: "57014", message: "canceling authentication due to timeout",
			detail: "Login and the settling of the credential took longer than the proxy allows.", hint: "Connect again."})
		s.wake()
	}
}

// lose ends the session because its permit ended.
func (s *session) lose(p Permit) {
	r := refusalOf(p.Err(), p.Term())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.over() {
		return
	}
	s.log.Info("session lost its permit", "election", r.Election, "number", r.Held, "rules", r.Rules, "reason", r.Message())
	s.core.lost(r)
	s.wake()
}

// wake makes the pumps look at the core, where it has something to say. Call with mu held.
func (s *session) wake() {
	s.changed.Broadcast()
	if s.core.over() {
		_ = s.upstream.SetReadDeadline(time.Unix(1, 0))
		_ = s.client.SetWriteDeadline(time.Now().Add(linger))
	}
}

// refusalOf says why a permit for the term is not live.
func refusalOf(err error, t guard.Term) *guard.Refusal {
	r := new(guard.Refusal)
	if !errors.As(err, &r) {
		// Live turned false before the permit said why: its time ran out.
		return &guard.Refusal{Reason: guard.BackendUnknown, Election: t.Election, Held: t.Number, Err: err}
	}
	c := *r
	if c.Held == 0 {
		c.Held = t.Number
	}
	return &c
}

// A clientPump carries the client's messages to the server. Where a loop has the client's
// connection, it ends while there is nothing to read, and is begun again by the loop when it is
// needed: a session at rest has one goroutine less.
type clientPump struct {
	s    *session
	b    *buffer
	run  func()
	each func() bool
}

// pump runs until the client's side is over, or is left to the loop.
func (p *clientPump) pump(ctx context.Context) {
	if left := p.carry(ctx); !left {
		p.s.wg.Done()
	}
}

// carry reports whether the loop has the client's side now.
func (p *clientPump) carry(ctx context.Context) (left bool) {
	s, b := p.s, p.b
	for {
		st, permits := s.nextOfClient(b)
		if st.pass > 0 || len(st.write) > 0 {
			// Nothing of a bound session's goes upstream without a live permit. What
			// is already on its way is what the sever is for.
			if p := ended(permits); p != nil {
				s.lose(p)
				continue
			}
			_, err := s.upstream.Write(b.bytes()[:st.pass])
			if err == nil && len(st.write) > 0 {
				_, err = s.upstream.Write(st.write)
			}
			if err != nil {
				// What the server said before it went is still to be read.
				_, _ = io.Copy(io.Discard, s.client)
				return false
			}
		}
		b.take(st.pass + st.drop)
		switch st.next {
		case read:
			left, err := b.nextOrLeave(st.need, p.each, p.run)
			if left {
				return true
			}
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					_ = s.upstream.Close()
				} else {
					// The server ends when it has answered what it got.
					_ = s.upstream.CloseWrite()
				}
				return false
			}
		case judge:
			v := s.cfg.SQL.Inspect(st.text)
			var t *policy.SQLTargets
			if s.cfg.Rules != nil {
				t = s.cfg.SQL.Targets(st.text)
			}
			s.mu.Lock()
			s.core.inform(st.text, v, t)
			s.mu.Unlock()
		case admit:
			protocols.OnOwnStack(func() { s.admitLater(ctx) })
		case stop:
			if !s.hasLastWord() {
				_ = s.upstream.CloseWrite()
			}
			_, _ = io.Copy(io.Discard, s.client)
			return false
		}
	}
}

// clientStep asks the core what to do with bytes of the client's.
func (s *session) clientStep(in []byte) (step, []Permit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves++
	return s.core.client(in), s.permits
}

// nextOfClient is the step that the loop left, or else the core's next one but to wait.
func (s *session) nextOfClient(b *buffer) (step, []Permit) {
	st, ok := b.takeGiven()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok {
		s.moves++
		st = s.core.client(b.bytes())
	}
	for st.next == wait && st.pass == 0 && len(st.write) == 0 && st.drop == 0 {
		if !ok {
			s.changed.Wait()
		}
		ok = false // the loop did not wait
		st = s.core.client(b.bytes())
	}
	return st, s.permits
}

// ended is a permit that is not live any more, or nil.
func ended(permits []Permit) Permit {
	for _, p := range permits {
		if !p.Live() {
			return p
		}
	}
	return nil
}

// hasLastWord says whether the session ends by the proxy's will, and sees to it that the
// client is told.
func (s *session) hasLastWord() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.ending != nil && !s.core.ended {
		s.wake()
	}
	return s.core.over()
}

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.over()
}

// pumpServer carries the server's messages to the client.
func (s *session) pumpServer(ctx context.Context, late *time.Timer) {
	b := newBuffer(&s.srv.buffers, s.upstream)
	b.preset(s.greeting)
	hurried, entered := false, false
	var each func() bool
	for {
		st, in := s.nextOfServer(b)
		if in && !entered {
			entered = true
			s.entered(late)
			if s.loops.upstream != nil {
				each = func() bool { return s.toClient(b) }
			}
		}

		if st.pass > 0 {
			if _, err := s.client.Write(b.bytes()[:st.pass]); err != nil {
				return
			}
		}
		b.take(st.pass + st.drop)
		if len(st.write) > 0 {
			if _, err := s.client.Write(st.write); err != nil {
				return
			}
		}
		s.writing.Store(false)
		switch st.next {
		case read:
			err := b.next(st.need, each)
			switch {
			case err == nil:
			case errors.Is(err, os.ErrDeadlineExceeded) && !hurried:
				// Something has to be said to the client. In the middle of a message
				// that can only be done after its rest.
				_ = s.upstream.SetReadDeadline(time.Time{})
				if hurried = s.isOver(); hurried {
					_ = s.upstream.SetReadDeadline(time.Now().Add(linger))
				}
			default:
				s.serverEOF = errors.Is(err, io.EOF)
				return
			}
		case admit:
			if s.leave == nil {
				s.leave = s.srv.servers.enter(s.core.pid, s.to)
			}
			settled := false
			protocols.OnOwnStack(func() { settled = s.settle(ctx) })
			if !settled {
				return
			}
		case verify:
			s.verify(ctx)
		case ask:
			r := s.whySevered(ctx)
			s.mu.Lock()
			last := s.core.severed(r)
			s.mu.Unlock()
			if !s.say(last) {
				return
			}
		case stop:
			return
		}
	}
}

// nextOfServer is the step that the loop left, or else the core's next one, and whether the
// client has logged in.
func (s *session) nextOfServer(b *buffer) (st step, entered bool) {
	if st, ok := b.takeGiven(); ok {
		return st, true // before that the loop has nothing
	}
	return s.serverStep(b.bytes())
}

// serverStep asks the core what to do with bytes of the server's, and whether the client has
// logged in.
func (s *session) serverStep(in []byte) (st step, entered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moves++
	st = s.core.server(in)
	s.writing.Store(st.pass > 0 || len(st.write) > 0)
	s.changed.Broadcast()
	return st, s.core.phase == ready
}

func (s *session) say(b []byte) bool {
	_, err := s.client.Write(b)
	return err == nil
}
