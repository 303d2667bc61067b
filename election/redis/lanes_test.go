package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// long is far beyond what a call that is ended takes, and far below every time-out here.
const long = 5 * time.Second

// patient opens a backend whose own time-outs end nothing while a test goes well.
func patient(t testing.TB, o goredis.Options) *Backend {
	t.Helper()
	o.ReadTimeout, o.DialTimeout = 3*long, 3*long
	b := Open(&o, Options{})
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// asked runs a Validate and returns where its error comes out.
func asked(ctx context.Context, b *Backend, id string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := b.Validate(ctx, id, election.NewToken())
		done <- err
	}()
	return done
}

// ends checks that a call has ended, or does so now, with that error.
func ends(t testing.TB, done <-chan error, want error) {
	t.Helper()
	select {
	case err := <-done:
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	case <-time.After(long):
		t.Fatal("the call goes on")
	}
}

// closes checks that Close returns at once.
func closes(t testing.TB, b *Backend) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- b.Close() }()
	ends(t, done, nil)
}

// A stage is a server that a call of ours is stuck in: reached is sent to when it is.
type stage struct {
	options goredis.Options
	reached <-chan struct{}
}

// silent is a server that accepts connections and reads, but never answers.
func silent(t testing.TB) (addr string, reached <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan struct{}, 100)
	testenv.Accept(t, l, func(c net.Conn) {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			got <- struct{}{}
		}
		_, _ = io.Copy(io.Discard, c) // until the other side closes it
	})
	return l.Addr().String(), got
}

func stages(t *testing.T) map[string]stage {
	dialing := make(chan struct{}, 100)
	hello, atHello := silent(t)
	handshake, atHandshake := silent(t)
	return map[string]stage{
		"Dial": {goredis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dialing <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}}, dialing},
		"TLS":   {goredis.Options{Addr: handshake, TLSConfig: &tls.Config{ServerName: "x"}}, atHandshake},
		"Hello": {goredis.Options{Addr: hello}, atHello},
	}
}

// A call ends with its context wherever it is, and so do calls when the backend is closed;
// Close has nothing left to wait for then. The leak check of this package finds what stays.
func TestEndedWhereverItIs(t *testing.T) {
	for name, s := range stages(t) {
		t.Run(name, func(t *testing.T) {
			b := patient(t, s.options)
			ctx, cancel := context.WithCancel(t.Context())
			done := asked(ctx, b, "e")
			<-s.reached
			cancel()
			ends(t, done, context.Canceled)
			done = asked(t.Context(), b, "e")
			<-s.reached
			closes(t, b)
			ends(t, done, election.ErrClosed)
			ends(t, asked(t.Context(), b, "e"), election.ErrClosed)
		})
	}
}

// A server that is frozen, with a connection that was good before.
func TestEndedOnFrozenServer(t *testing.T) {
	for _, program := range programs {
		t.Run(scheme(program), func(t *testing.T) {
			p, err := servers.StartRedis(testenv.Context(t), servers.RedisOptions{Program: program})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Stop() })
			b := patient(t, goredis.Options{Addr: p.Addr, PoolSize: 2})
			g := win(t, b, "e", election.AcquireOptions{TTL: time.Hour})
			thaw := testenv.Freeze(t, p)
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				// The third waits for its turn: there are two lanes.
				calls := []<-chan error{asked(ctx, b, "e"), asked(ctx, b, "e"), asked(ctx, b, "e")}
				testenv.Eventually(t, "both lanes in use", func() bool { return len(b.server.(*lanes).turns) == 2 })
				cancel()
				for _, done := range calls {
					ends(t, done, context.Canceled)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			ends(t, asked(ctx, b, "e"), context.DeadlineExceeded)
			other := patient(t, goredis.Options{Addr: p.Addr, PoolSize: 1})
			calls := []<-chan error{asked(t.Context(), other, "e"), asked(t.Context(), other, "e")}
			testenv.Eventually(t, "its lane in use", func() bool { return len(other.server.(*lanes).turns) == 1 })
			closes(t, other)
			for _, done := range calls {
				ends(t, done, election.ErrClosed)
			}
			thaw()
			standing(t, b, "e", g.Token, election.StandingCurrent, g.Number)
		})
	}
}

// A delayed is a server that answers what it is asked about each election with that
// election's number, after it was let to.
type delayed struct {
	addr  string
	asked chan struct{} // sent to for each question
	let   chan struct{} // received from for each answer
}

func newDelayed(t testing.TB) *delayed {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &delayed{addr: l.Addr().String(), asked: make(chan struct{}, 100), let: make(chan struct{}, 100)}
	testenv.Accept(t, l, d.serve)
	t.Cleanup(func() { close(d.let) }) // before that waits
	return d
}

func (d *delayed) serve(c net.Conn) {
	r := bufio.NewReader(c)
	line := func() string {
		s, _ := r.ReadString('\n')
		return strings.TrimSpace(s)
	}
	for {
		var words []string
		head := line()
		if head == "" {
			return
		}
		var n int
		_, _ = fmt.Sscanf(head, "*%d", &n)
		for range n {
			line()
			words = append(words, line())
		}
		switch strings.ToLower(words[0]) {
		case "evalsha":
		case "hello":
			_, _ = io.WriteString(c, "-ERR unknown command\r\n")
			continue
		default:
			_, _ = io.WriteString(c, "+OK\r\n")
			continue
		}
		d.asked <- struct{}{}
		<-d.let
		var number int
		_, _ = fmt.Sscanf(words[3], "fenceproxy:{%d}:lease", &number)
		lease := fmt.Sprintf("%s %d 1000 o", election.Digest{}, number)
		_, _ = fmt.Fprintf(c, "*2\r\n:1000\r\n$%d\r\n%s\r\n", len(lease), lease)
	}
}

// Safety: the answer to a call that was cut is never read as the answer to a later one,
// whether it comes before that is asked or after.
func TestLateAnswer(t *testing.T) {
	d := newDelayed(t)
	b := patient(t, goredis.Options{Addr: d.addr, PoolSize: 1})
	for i := range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		first := asked(ctx, b, fmt.Sprint(2*i+1))
		<-d.asked
		cancel()
		ends(t, first, context.Canceled)
		before := i%2 == 0
		if before {
			d.let <- struct{}{}
		}
		second := make(chan election.ValidateResult, 1)
		go func() {
			v, err := b.Validate(t.Context(), fmt.Sprint(2*i+2), election.NewToken())
			if err != nil {
				t.Error(err)
			}
			second <- v
		}()
		select {
		case <-d.asked:
		case <-time.After(long / 10): // it is behind the first, on the same connection
			t.Error("the server was not asked")
		}
		if !before {
			d.let <- struct{}{}
		}
		d.let <- struct{}{}
		if v := <-second; v.Number != int64(2*i+2) {
			t.Fatalf("asked about %d: %+v", 2*i+2, v)
		}
	}
}

// Many calls at once, ended at any moment: each answer is about the election that was
// asked about.
func TestEndedAtAnyMoment(t *testing.T) {
	p := testenv.SharedRedis(t)
	b := patient(t, goredis.Options{Addr: p.Addr, PoolSize: 3})
	var wg sync.WaitGroup
	for range 8 {
		id := testenv.Name(t, "any")
		g := win(t, b, id, election.AcquireOptions{TTL: time.Hour})
		wg.Go(func() {
			answers := 0
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
				v, err := b.Validate(ctx, id, g.Token)
				cancel()
				if err == nil {
					answers++
				}
				if err == nil && (v.Standing != election.StandingCurrent || v.Number != g.Number || v.Owner != g.Owner) {
					t.Errorf("%+v, granted was %+v", v, g)
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
			t.Logf("%d answers", answers)
		})
	}
	wg.Wait()
	s := b.server.(*lanes)
	if len(s.turns) != 0 || len(s.idle) != len(s.all) || len(s.all) > 3 {
		t.Errorf("%d calls, %d lanes idle of %d", len(s.turns), len(s.idle), len(s.all))
	}
}

// Lanes are used again, and no more of them are kept than are asked for.
func TestLanesAreKept(t *testing.T) {
	p := testenv.SharedRedis(t)
	var mu sync.Mutex
	dials := 0
	o := goredis.Options{Addr: p.Addr, MinIdleConns: 5, PoolSize: 4, MaxIdleConns: 2}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		dials++
		mu.Unlock()
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	b := patient(t, o)
	if dials != 0 {
		t.Errorf("%d dials before the first call", dials)
	}
	for range 20 {
		if _, err := b.Status(t.Context(), "e"); err != nil {
			t.Fatal(err)
		}
	}
	if dials != 1 {
		t.Errorf("%d dials for calls in a row", dials)
	}
	s := b.server.(*lanes)
	var taken []*lane
	for range 4 {
		l, err := s.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, l)
	}
	for _, l := range taken {
		s.put(l, true)
		<-s.turns
	}
	if len(s.idle) != 2 || len(s.all) != 2 {
		t.Errorf("%d idle of %d, wanted 2", len(s.idle), len(s.all))
	}
}
