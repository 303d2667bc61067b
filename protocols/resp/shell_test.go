package resp

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
)

// memoryFence is a fence in memory, with no connections to sever.
type memoryFence struct {
	mu sync.Mutex
	r  guard.Record
}

func (f *memoryFence) Read(context.Context, string) (guard.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.r, nil
}

func (f *memoryFence) Swap(_ context.Context, _ string, old, new guard.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.r != old {
		return guard.ErrConflict
	}
	f.r = new
	return nil
}

func (f *memoryFence) Sever(context.Context, guard.Term) error { return nil }

// admitted is a permit of a number, until the test ends, and who may end it.
func admitted(t *testing.T, number int64) (*guardtest.Backend, *guard.Guard, *guard.Permit) {
	t.Helper()
	b := new(guardtest.Backend)
	token := election.NewToken()
	b.Grant(token, number)
	g := guard.New(b, new(memoryFence), guard.Config{ValidateEvery: 10 * time.Millisecond})
	t.Cleanup(g.Close)
	p, err := g.Admit(t.Context(), guard.Credential{Election: "jobs", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return b, g, p
}

// The permit has ended, and nobody has told the session yet: what the client sent is not
// written all the same.
func TestNoByteAfterThePermit(t *testing.T) {
	// A second one, of another term that the session holds, lives on.
	_, _, op := admitted(t, 3)

	b, g, p := admitted(t, 7)

	client, farClient := net.Pipe()
	upstream, farUpstream := net.Pipe()
	defer client.Close()
	defer farClient.Close()
	x := &session{
		server: &Server{c: Config{Guard: g, Log: slog.New(slog.DiscardHandler)}}, client: client, upstream: upstream,
		wake: make(chan struct{}, 1), over: make(chan struct{}), core: boundCore(),
	}
	x.core.more = []*binding{testBinding(3)}
	x.leases = []*lease{{permit: op, binding: x.core.more[0]}, {permit: p, binding: x.core.bound}}
	written := make(chan string)
	go func() {
		all, _ := io.ReadAll(farUpstream)
		written <- string(all)
	}()
	if !x.feed(t.Context(), []byte("SET a 1\r\n")) {
		t.Fatal("the live session did not write")
	}
	b.Grant(election.NewToken(), 8)
	<-p.Done()
	if x.feed(t.Context(), []byte("SET a 2\r\n")) {
		t.Error("it goes on")
	}
	_ = upstream.Close()
	if got := <-written; got != "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n" {
		t.Errorf("written: %q", got)
	}
	if down := string(x.core.down); !x.core.closed || !strings.HasPrefix(down, "-FENCED stale leader") {
		t.Errorf("closed %v, the client is told %q", x.core.closed, down)
	}
}

// The permit ends between the server's last answer to a bind and the client's next byte.
func TestTheLastLookBeforeTheFirstByte(t *testing.T) {
	b, g, p := admitted(t, 7)
	b.Grant(election.NewToken(), 8)
	<-p.Done()
	client, far := net.Pipe()
	defer client.Close()
	defer far.Close()
	c := newCore(testConfig())
	c.flow = flow{step: stepLive, binding: testBinding(7)}
	c.ask, c.owed = question{kind: askLive}, 1
	x := &session{server: &Server{c: Config{Guard: g, Log: slog.New(slog.DiscardHandler)}}, client: client, upstream: far, core: c}
	x.leases = []*lease{{permit: p, binding: c.flow.binding}}
	x.answer(t.Context(), c.ask)
	if c.bound != nil || !c.ended || !strings.HasPrefix(string(c.down), "-FENCED stale leader") {
		t.Errorf("bound %v, ended %v, down %q", c.bound != nil, c.ended, c.down)
	}
}

// RESET and FENCE UNBIND make a reader before they are on their way.
func TestUnboundBeforeTheNameIsOff(t *testing.T) {
	for _, line := range []string{"RESET\r\n", "FENCE UNBIND\r\n", "\"reset\"\r\n", "*1\r\n$5\r\nReSeT\r\n"} {
		c := boundCore()
		c.fromClient([]byte(line))
		if c.bound != nil || len(c.up) == 0 {
			t.Errorf("%q: bound %v, up %q", line, c.bound != nil, c.up)
		}
	}
}

func TestSameAddr(t *testing.T) {
	for _, x := range []struct {
		a, b string
		same bool
	}{
		{"127.0.0.1:5", "127.0.0.1:5", true}, {"[::1]:5", "[::1]:5", true}, {"[::ffff:10.0.0.1]:5", "10.0.0.1:5", true},
		{"127.0.0.1:5", "127.0.0.1:6", false}, {"127.0.0.2:5", "127.0.0.1:5", false}, {"", "127.0.0.1:5", false},
		{"/tmp/redis.sock:0", "@", false}, {"", "", false},
	} {
		if sameAddr(x.a, x.b) != x.same {
			t.Errorf("%q and %q", x.a, x.b)
		}
	}
}
