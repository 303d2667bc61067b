package electiontest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// The store forgets an election under a live holder.
func (s suite) loss(t *testing.T) {
	t.Run("HolderLearns", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		g := u.win(election.AcquireOptions{Owner: "a"})
		s.Lose(t, u.b, u.id)
		// E2: lost, and nothing comes back by asking.
		u.renew(g.Token, election.Lost)
		u.resign(g.Token, election.ResignOptions{}, election.NotOwner)
		u.standing(g.Token, election.StandingVacant, 0)
		if r := u.status(); r != (election.StatusResult{Status: election.Vacant}) {
			t.Errorf("Status %+v after the loss", r)
		}
	})

	t.Run("NumbersRise", func(t *testing.T) {
		t.Parallel()
		u := s.user(t)
		last := int64(0)
		for range 3 {
			g := u.win(election.AcquireOptions{})
			if g.Number <= last {
				t.Fatalf("number %d after %d: E9", g.Number, last)
			}
			last = g.Number
			s.Lose(t, u.b, u.id)
			// A loss takes longer than a millisecond.
			until(t, u.ctx, "a millisecond", func() bool { return time.Now().UnixMilli() > last+1 })
		}
		// A caller that knows a higher number sets it as the floor.
		if g := u.win(election.AcquireOptions{MinFencing: last + 1e12}); g.Number != last+1e12 {
			t.Errorf("number %d, floor %d", g.Number, last+int64(1e12))
		}
	})
}

// The server is not there, or does not answer.
func (s suite) unreachable(t *testing.T) {
	check := func(t *testing.T, addr string, patience time.Duration, also error) {
		b := s.OpenAt(t, addr)
		for name, call := range map[string]func(context.Context) (any, error){
			"Acquire": func(ctx context.Context) (any, error) {
				return b.Acquire(ctx, "e", election.AcquireOptions{TTL: long})
			},
			"Renew": func(ctx context.Context) (any, error) { return b.Renew(ctx, "e", election.NewToken()) },
			"Resign": func(ctx context.Context) (any, error) {
				return b.Resign(ctx, "e", election.NewToken(), election.ResignOptions{})
			},
			"Status":   func(ctx context.Context) (any, error) { return b.Status(ctx, "e") },
			"Validate": func(ctx context.Context) (any, error) { return b.Validate(ctx, "e", election.NewToken()) },
		} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(within(t), patience)
				defer cancel()
				asked := time.Now()
				fails(t, election.ErrUnavailable, func() (any, error) {
					r, err := call(ctx)
					if also != nil && !errors.Is(err, also) {
						t.Errorf("error %v, want %v", err, also)
					}
					return r, err
				})
				// The context ends the call, whatever the server does.
				if d := time.Since(asked); d > patience+5*time.Second {
					t.Errorf("returned after %v with a context of %v", d, patience)
				}
			})
		}
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	t.Run("Refused", func(t *testing.T) {
		l := listen(t, nil)
		_ = l.Close()
		check(t, l.Addr().String(), 20*time.Second, nil)
	})
	t.Run("Silent", func(t *testing.T) {
		l := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		check(t, l.Addr().String(), 100*time.Millisecond, context.DeadlineExceeded)
	})
	t.Run("SilentAndCancelled", func(t *testing.T) {
		asked := make(chan struct{}, 100)
		l := listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			asked <- struct{}{}
			_, _ = io.Copy(io.Discard, c)
		})
		b := s.OpenAt(t, l.Addr().String())
		ctx, cancel := context.WithCancel(within(t)) // its deadline is far away
		var wg sync.WaitGroup
		var cancelled time.Time
		wg.Go(func() { <-asked; cancelled = time.Now(); cancel() })
		fails(t, context.Canceled, func() (any, error) { return b.Validate(ctx, "e", election.NewToken()) })
		returned := time.Now()
		asked <- struct{}{} // in case that nothing was asked
		wg.Wait()
		if d := returned.Sub(cancelled); d > 2*time.Second { // drivers' own time-outs are longer
			t.Errorf("cancelled, it returned after %v", d)
		}
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Run("HangsUp", func(t *testing.T) {
		l := listen(t, func(net.Conn) {})
		check(t, l.Addr().String(), 20*time.Second, nil)
	})
	t.Run("Garbage", func(t *testing.T) {
		l := listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n\x00\xff*-7\r\n$999999999999\r\n"))
		})
		check(t, l.Addr().String(), 20*time.Second, nil)
	})
}

// E11: the request arrived, its reply did not. Asking again with the same token
// brings the grant.
func (s suite) lostReply(t *testing.T) {
	t.Parallel()
	h := s.open(t)
	var deaf atomic.Bool // nothing comes back from the server
	l := listen(t, func(c net.Conn) { relay(c, s.Server, &deaf, s.Reads) })
	b := s.OpenAt(t, l.Addr().String())
	t.Cleanup(func() { _ = b.Close() })
	u := user{t, within(t), b, fresh()}
	for range 3 { // drivers connect, prepare, and ping what they use again
		u.of(fresh()).win(election.AcquireOptions{})
	}

	token := election.NewToken()
	deaf.Store(true)
	ctx, cancel := context.WithTimeout(u.ctx, 500*time.Millisecond)
	defer cancel()
	fails(t, election.ErrUnavailable, func() (any, error) {
		return b.Acquire(ctx, u.id, election.AcquireOptions{Token: token, TTL: long})
	})
	direct := u.with(h)
	var st election.StatusResult
	until(t, u.ctx, "the lost request taking effect", func() bool {
		st = direct.status()
		return st.Status == election.Held
	})
	if r := direct.acquire(election.AcquireOptions{}); r.Status != election.Busy {
		t.Fatalf("another got %+v", r)
	}
	deaf.Store(false)
	var g election.AcquireResult
	until(t, u.ctx, "asking again", func() bool { // the first connections may be broken
		var err error
		g, err = b.Acquire(u.ctx, u.id, election.AcquireOptions{Token: token, TTL: long})
		return err == nil
	})
	if g.Status != election.Acquired || g.Number != st.Number {
		t.Errorf("asked again: %+v, granted was %+v", g, st)
	}
}

// listen serves connections with f, on a loopback port, and closes each when f
// returns. Everything ends with the test.
func listen(t testing.TB, f func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		conns []net.Conn
		over  bool
	)
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		over = true
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			if over {
				_ = c.Close()
			}
			mu.Unlock()
			wg.Go(func() { defer c.Close(); f(c) })
		}
	})
	return l
}

// relay passes bytes between c and the server at addr. While deaf says so, it lets
// through the server's answers to some more questions and drops the rest.
func relay(c net.Conn, addr string, deaf *atomic.Bool, answers int) {
	up, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	var asking atomic.Bool // the client spoke last
	var wg sync.WaitGroup
	wg.Go(func() {
		defer up.Close()
		_, _ = io.Copy(up, readerFunc(func(b []byte) (int, error) {
			n, err := c.Read(b)
			asking.Store(true)
			return n, err
		}))
	})
	wg.Go(func() {
		defer c.Close()
		buf := make([]byte, 4096)
		left := answers
		for {
			n, err := up.Read(buf)
			if asked := asking.Swap(false); !deaf.Load() {
				left = answers
			} else if asked {
				left--
			}
			if n > 0 && (!deaf.Load() || left >= 0) {
				if _, err := c.Write(buf[:n]); err != nil {
					break
				}
			}
			if err != nil {
				break
			}
		}
		_ = up.Close()
	})
	wg.Wait()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
