package resp

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/loops"
)

// A loop writes while the permit lives, and not one byte afterwards: it leaves what it read to
// the pump, which ends the session.
func TestNoByteFromALoopAfterThePermit(t *testing.T) {
	l, err := loops.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	b, g, p := admitted(t, 7)
	client, farClient := tcpPair(t)
	upstream, farUpstream := tcpPair(t)
	x := &session{
		server: &Server{c: Config{Guard: g, Log: slog.New(slog.DiscardHandler)}, memory: pool{Chunks: protocols.Chunks{Size: 4 << 10}}},
		client: client, upstream: upstream,
		wake: make(chan struct{}, 1), over: make(chan struct{}), core: boundCore(),
	}
	x.leases = []*lease{{permit: p, binding: x.core.bound}}
	x.carry(l)
	defer x.client.Close()
	in := newReader(&x.server.memory, x.client)

	// turn is one of the loop's, with something to read.
	turn := func() (on bool) {
		for in.n, on = 0, true; in.n == 0 && on; on = x.toServer(in) {
			if err := x.loops.client.Readable(); err != nil {
				t.Fatal(err)
			}
		}
		return on
	}

	_, _ = farClient.Write([]byte("SET a 1\r\n"))
	if !turn() {
		t.Fatal("the live session did not write")
	}
	b.Grant(election.NewToken(), 8)
	<-p.Done()
	_, _ = farClient.Write([]byte("SET a 2\r\n"))
	if turn() {
		t.Error("it goes on")
	}
	left := x.loops.turn
	if left == nil || left.gone != 0 || !strings.Contains(string(left.b), "$1\r\n2\r\n") {
		t.Fatalf("left to the pump: %+v", left)
	}
	if x.goOn(t.Context(), left, nil) {
		t.Error("the pump goes on")
	}
	_ = x.upstream.Close()
	if got, _ := io.ReadAll(farUpstream); string(got) != "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n" {
		t.Errorf("written: %q", got)
	}
	if down := string(x.core.down); !strings.HasPrefix(down, "-FENCED stale leader") {
		t.Errorf("the client is told %q", down)
	}
}

// tcpPair is a connection's two ends.
func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	return near, far
}
