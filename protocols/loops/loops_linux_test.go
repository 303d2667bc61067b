package loops_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
	"golang.org/x/sys/unix"

	"github.com/fenceproxy/fenceproxy/protocols/loops"
)

func start(t *testing.T, n int) *loops.Loops {
	t.Helper()
	l, err := loops.Start(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

// sockets are the two ends of a connection.
func sockets(t *testing.T, network string) (a, b net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// pair takes over one end of each of two connections, as a proxy does, and returns the others
// as client and server.
func pair(t *testing.T, l *loops.Loops, network string) (client, server net.Conn, down, up *loops.Conn) {
	t.Helper()
	client, d := sockets(t, network)
	u, server := sockets(t, network)
	down, up, err := l.Pair(d, u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []net.Conn{client, server, down, up} {
			_ = c.Close()
		}
	})
	return client, server, down, up
}

// A connection that was taken over is a net.Conn in every respect.
func TestConn(t *testing.T) {
	l := start(t, 2)
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				a, b := sockets(t, network)
				ca, cb, err := l.Pair(a, b)
				if err != nil {
					return nil, nil, nil, err
				}
				return ca, cb, func() { _ = ca.Close(); _ = cb.Close() }, nil
			})
		})
	}
}

// The relay of a proxy: a pump that leaves what is simple to the loop.
func pump(from, to *loops.Conn, loop *atomic.Uint64) error {
	mem := make([]byte, 4<<10)
	rest := 0
	each := func() bool {
		n, err := from.TryRead(mem)
		if n == 0 {
			return err == nil
		}
		loop.Add(uint64(n))
		w, _ := to.TryWrite(mem[:n])
		rest = copy(mem, mem[w:n])
		return rest == 0
	}
	for {
		n, err := from.TryRead(mem)
		if n == 0 && err == nil {
			err = from.Each(each)
			n, rest = rest, 0
		}
		if _, werr := to.Write(mem[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			return to.CloseWrite()
		}
		if err != nil {
			return err
		}
	}
}

// All that is sent arrives, in both directions at once, whoever carries it: with sizes from one
// byte to far more than the sockets hold, through peers that pause.
func TestRelay(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			l := start(t, 2)
			var inLoops atomic.Uint64
			var all sync.WaitGroup
			for i := range 8 {
				client, server, down, up := pair(t, l, network)
				all.Go(func() {
					if err := pump(down, up, &inLoops); err != nil {
						t.Error("to the server:", err)
					}
				})
				all.Go(func() {
					if err := pump(up, down, &inLoops); err != nil {
						t.Error("to the client:", err)
					}
				})
				for from, to := range map[net.Conn]net.Conn{client: server, server: client} {
					r := rand.New(rand.NewPCG(uint64(i), 1))
					size := 1 << 20
					sent, got := sha256.New(), sha256.New()
					all.Go(func() {
						noise := make([]byte, 1<<17)
						for i := range noise {
							noise[i] = byte(r.Uint32())
						}
						for left := size; left > 0; {
							b := noise[r.IntN(1<<16):][:min(left, 1+r.IntN(1<<r.IntN(17)))]
							sent.Write(b)
							if _, err := from.Write(b); err != nil {
								t.Error(err)
								return
							}
							left -= len(b)
						}
						_ = from.(interface{ CloseWrite() error }).CloseWrite()
					})
					all.Go(func() {
						n, err := io.Copy(got, to)
						if err != nil || n != int64(size) {
							t.Errorf("%d bytes, %v", n, err)
						}
					})
					defer func() {
						if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
							t.Error("other bytes arrived")
						}
					}()
				}
			}
			all.Wait()
			if inLoops.Load() == 0 {
				t.Error("the loops carried nothing")
			}
		})
	}
}

// A direction that was left to its loop comes back when the deadline passes, at once or later,
// and when the connection is closed.
func TestEachEnds(t *testing.T) {
	l := start(t, 1)
	for name, c := range map[string]struct {
		end  func(*loops.Conn) error
		want error
	}{
		"deadline":       {func(c *loops.Conn) error { return c.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		"later":          {func(c *loops.Conn) error { return c.SetDeadline(time.Now().Add(time.Millisecond)) }, os.ErrDeadlineExceeded},
		"closed":         {func(c *loops.Conn) error { return c.Close() }, net.ErrClosed},
		"closed through": {func(c *loops.Conn) error { return c.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			client, _, down, _ := pair(t, l, "tcp")
			calls := make(chan struct{}, 10)
			ended := make(chan error)
			go func() {
				b := make([]byte, 10)
				read := func() bool {
					n, err := down.TryRead(b)
					if n > 0 {
						calls <- struct{}{}
					}
					return err == nil
				}
				for {
					_ = read()
					if err := down.Each(read); err != nil {
						ended <- err
						return
					}
				}
			}()
			for range 3 {
				_, _ = client.Write([]byte("x"))
				<-calls
			}
			if err := c.end(down); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			_, _ = client.Write([]byte("x"))
			select {
			case <-calls:
				t.Error("the loop still reads")
			case <-time.After(10 * time.Millisecond):
			}
		})
	}
}

// A direction that is taken back while the loop has its turn comes back when that is over.
func TestTurns(t *testing.T) {
	l := start(t, 1)
	for name, end := range map[string]func(*loops.Conn) error{
		"deadline": func(c *loops.Conn) error { return c.SetReadDeadline(time.Unix(1, 0)) },
		"closed":   func(c *loops.Conn) error { return c.Close() },
	} {
		for _, leaves := range []bool{false, true} {
			client, _, down, _ := pair(t, l, "tcp")
			var turn atomic.Bool
			began, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
			each := func() bool {
				turn.Store(true)
				close(began)
				<-goOn // only a test waits here
				turn.Store(false)
				return true
			}
			then := func() {
				if turn.Load() {
					t.Errorf("%s: two at a time", name)
				}
				close(over)
			}
			_, _ = down.TryRead(make([]byte, 1))
			if leaves {
				if left, err := down.EachThen(each, then); !left || err != nil {
					t.Fatal(left, err)
				}
				_, _ = client.Write([]byte("x"))
			} else {
				go func() {
					for again := true; again; { // what came before is read here
						n, _ := down.TryRead(make([]byte, 1))
						again = n > 0 || down.Each(each) == nil
					}
					then()
				}()
				for sent := false; !sent; {
					_, _ = client.Write([]byte("x"))
					select {
					case <-began:
						sent = true
					case <-time.After(time.Millisecond):
					}
				}
			}
			<-began
			if err := end(down); err != nil {
				t.Fatal(err)
			}
			select {
			case <-over:
				t.Errorf("%s: it came back in the loop's turn", name)
			case <-time.After(10 * time.Millisecond):
			}
			close(goOn)
			<-over
		}
	}
}

// Where there may be something to read already, nothing is left to the loop.
func TestEachLeavesNothingBehind(t *testing.T) {
	l := start(t, 1)
	client, _, down, _ := pair(t, l, "tcp")
	for range 1000 {
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		got := 0
		b := make([]byte, 2)
		each := func() bool {
			n, err := down.TryRead(b)
			got += n
			return err == nil && n == 0
		}
		for got == 0 {
			n, err := down.TryRead(b)
			got += n
			if got == 0 && err == nil {
				err = down.Each(each)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The end of what a peer sends is seen when it comes with the last bytes, in the loop and out of it.
func TestLastBytes(t *testing.T) {
	l := start(t, 2)
	for i := range 200 {
		client, _, down, _ := pair(t, l, "tcp")
		if i%2 == 0 { // else it may be there before anybody looks
			_, _ = down.TryRead(make([]byte, 1))
		}
		_, _ = client.Write([]byte("bye"))
		_ = client.Close()
		var got []byte
		each := func() bool {
			b := make([]byte, 100)
			n, err := down.TryRead(b)
			got = append(got, b[:n]...)
			return err == nil
		}
		var err error
		for err == nil {
			if err = down.Each(each); err == nil {
				var n int
				b := make([]byte, 100)
				n, err = down.TryRead(b)
				got = append(got, b[:n]...)
			}
		}
		if !errors.Is(err, io.EOF) || string(got) != "bye" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

// A file descriptor that is closed while others read, write and take over connections is never
// used for another's: each reads its own bytes alone.
func TestClosedInUse(t *testing.T) {
	l := start(t, 2)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 60 {
				client, server, down, up := pair(t, l, "tcp")
				var users sync.WaitGroup
				mine := bytes.Repeat([]byte{byte('a' + i)}, 64)
				for _, c := range []*loops.Conn{down, up} {
					users.Go(func() {
						b := make([]byte, 64)
						for {
							n, err := c.Read(b)
							if bytes.ContainsFunc(b[:n], func(r rune) bool { return r != rune(mine[0]) }) {
								t.Errorf("another's bytes: %q", b[:n])
							}
							if err != nil {
								return
							}
						}
					})
					users.Go(func() {
						for {
							if _, err := c.Write(mine); err != nil {
								return
							}
						}
					})
				}
				for _, c := range []net.Conn{client, server} {
					users.Go(func() {
						for {
							if _, err := c.Write(mine); err != nil {
								return
							}
							b := make([]byte, 64)
							if _, err := c.Read(b); err != nil {
								return
							}
						}
					})
				}
				_ = down.Close()
				_ = up.Close()
				if err := up.Close(); !errors.Is(err, net.ErrClosed) {
					t.Error("closed twice:", err)
				}
				_ = client.Close()
				_ = server.Close()
				users.Wait()
			}
		})
	}
	all.Wait()
}

// What cannot be taken over stays as it was.
func TestPairRefuses(t *testing.T) {
	l := start(t, 1)
	a, b := net.Pipe()
	defer a.Close()
	c, d := sockets(t, "tcp")
	defer c.Close()
	defer d.Close()
	if _, _, err := l.Pair(c, a); !errors.Is(err, loops.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if _, _, err := (*loops.Loops)(nil).Pair(c, d); !errors.Is(err, loops.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	_ = b.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 1)
	if _, err := d.Read(buf); err != nil {
		t.Error(err)
	}
}

// Loops.Close closes what was given, whoever has it now, and the socket goes with it.
func TestCloseGiven(t *testing.T) {
	l := start(t, 1)
	client, given := sockets(t, "tcp")
	other, also := sockets(t, "tcp")
	defer client.Close()
	defer other.Close()
	down, up, err := l.Pair(given, also)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := down.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	open := raw.Control(func(uintptr) {})
	if err := l.Close(given); err != nil || open != nil {
		t.Error(err, open)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error("the client sees", err)
	}
	if err := raw.Control(func(uintptr) {}); !errors.Is(err, net.ErrClosed) {
		t.Error("after the end:", err)
	}
	if err := l.Close(given); !errors.Is(err, net.ErrClosed) {
		t.Error("once more:", err)
	}
	_ = up.Close()
}

// The socket's options can be had, and raw reads and writes wait as net's do.
func TestRaw(t *testing.T) {
	l := start(t, 1)
	client, _, down, _ := pair(t, l, "tcp")
	raw, err := down.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var nodelay int
	if err := raw.Control(func(fd uintptr) { nodelay, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY) }); err != nil || nodelay == 0 {
		t.Errorf("TCP_NODELAY is %d, %v", nodelay, err)
	}
	got := make(chan string)
	go func() {
		b := make([]byte, 10)
		n := 0
		_ = raw.Read(func(fd uintptr) bool {
			var err error
			n, err = syscall.Read(int(fd), b)
			return !errors.Is(err, syscall.EAGAIN)
		})
		got <- string(b[:max(n, 0)])
	}()
	_, _ = client.Write([]byte("hello"))
	if s := <-got; s != "hello" {
		t.Errorf("got %q", s)
	}
}
