package resp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/loops/loopstest"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

func TestUpstreamDown(t *testing.T) {
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{
		client: redis.Options{DialerRetries: 1, MaxRetries: -1},
		config: func(c *resp.Config) { c.Upstream = fmt.Sprintf("127.0.0.1:%d", port) },
	})
	if got := dial(t, r.addr).rest(); !strings.HasPrefix(got, "-FENCEDOWN ") || strings.Count(got, "\r\n") != 1 {
		t.Errorf("got %q", got)
	}
}

// The server goes away under a bound session and under a reader: both see the close, and
// are served again when it is back.
func TestUpstreamRestarts(t *testing.T) {
	p := testenv.Redis(t)
	r := newRig(t, rigOptions{redis: p})
	lead := r.leadFor(t, time.Minute)
	bound, reader := dial(t, r.addr), dial(t, r.addr)
	bound.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	bound.want("SET a 1", "+OK\r\n")
	reader.want("GET a", "$1\r\n1\r\n")
	p.Kill()
	if got := reader.rest(); got != "" {
		t.Errorf("the reader got %q", got)
	}
	if got := bound.rest(); got != "" && !strings.HasPrefix(got, "-FENCEDOWN ") {
		t.Errorf("the leader got %q", got)
	}
	again, err := servers.StartRedis(t.Context(), servers.RedisOptions{Port: p.Port(), Dir: p.Dir})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	w := dial(t, r.addr)
	w.want("GET a", "$-1\r\n")
	// The fence was lost with the rest: it is raised again before the bind.
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	w.want("SET a 2", "+OK\r\n")
}

// faultyRig is a rig whose election backend says what the test tells it to.
func faultyRig(t *testing.T, c guard.Config) (*rig, *guardtest.Backend, election.Token) {
	b := new(guardtest.Backend)
	token := election.NewToken()
	b.Grant(token, 100)
	var g *guard.Guard
	r := newRig(t, rigOptions{config: func(rc *resp.Config) {
		f := redisfence.New(&redis.Options{Addr: rc.Upstream}, redisfence.Options{})
		g = guard.New(b, f, c)
		t.Cleanup(func() { g.Close(); _ = f.Close() })
		rc.Guard = g
	}})
	return r, b, token
}

// The election backend is out of reach: the session ends by itself when its permit has,
// and no write is let through after that.
func TestElectionBackendDown(t *testing.T) {
	r, b, token := faultyRig(t, guard.Config{ValidateEvery: 50 * time.Millisecond, PermitFor: 300 * time.Millisecond})
	key := testenv.Name(t, "k")
	w, blocked := dial(t, r.addr), dial(t, r.addr)
	w.want("FENCE BIND "+token.Reveal(), "+OK\r\n")
	blocked.want("FENCE BIND "+token.Reveal(), "+OK\r\n")
	w.want("SET "+key+" 1", "+OK\r\n")
	blocked.send("BLPOP " + key + "l 0")
	r.blocks(t, r.election)
	b.Fail(errors.New("out of reach"))
	if got := w.rest(); got != "" {
		t.Errorf("who waits for nothing got %q", got)
	}
	if got := blocked.rest(); !strings.HasPrefix(got, "-FENCEDOWN ") || strings.Count(got, "\r\n") != 1 {
		t.Errorf("got %q", got)
	}
	if err := r.control.RPush(t.Context(), key+"l", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if n := r.control.LLen(t.Context(), key+"l").Val(); n != 1 {
		t.Error("the blocked command popped afterwards")
	}
	w = dial(t, r.addr)
	w.wantPrefix("FENCE BIND "+token.Reveal(), "-FENCEDOWN ")
	w.wantPrefix("SET "+key+" 2", "-FENCEDOWN ")
	w.want("GET "+key, "$1\r\n1\r\n")
	b.Fail(nil)
	w.want("FENCE BIND "+token.Reveal(), "+OK\r\n")
	w.want("SET "+key+" 2", "+OK\r\n")
}

// The permit ends while a long reply is on its way: that reply ends whole, nothing but
// the error follows it.
func TestPermitEndsInAReply(t *testing.T) {
	r, b, token := faultyRig(t, guard.Config{ValidateEvery: 50 * time.Millisecond})
	key := testenv.Name(t, "k")
	if err := r.control.Set(t.Context(), key, strings.Repeat("x", 8<<20), 0).Err(); err != nil {
		t.Fatal(err)
	}
	w := dial(t, r.addr)
	w.want("FENCE BIND "+token.Reveal(), "+OK\r\n")
	w.send("GET "+key, "INCR "+key+"n", "GET "+key)
	if _, err := w.r.Peek(1); err != nil {
		t.Fatal(err)
	}
	b.Grant(election.NewToken(), 101)
	eventually(t, "the permit has ended", func() bool { return strings.Contains(r.log.String(), "permit ended") || ended(r, token) })
	got := w.rest()
	rest, whole := strings.CutPrefix(got, fmt.Sprintf("$%d\r\n%s\r\n", 8<<20, strings.Repeat("x", 8<<20)))
	if whole && rest != "" && !strings.HasPrefix(rest, "-FENCED ") {
		t.Errorf("after the reply came %.200q", rest)
	}
	if !whole && strings.Contains(got, "FENCED") {
		t.Error("an error in the middle of a reply")
	}
}

// ended reports whether a new session is refused with the token.
func ended(r *rig, token election.Token) bool {
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, "FENCE BIND "+token.Reveal()+"\r\n")
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.HasPrefix(line, "-FENCED ")
}

// A node that becomes a replica keeps its connections: the bound ones end.
func TestRoleChangeEndsBoundSessions(t *testing.T) {
	p := testenv.Redis(t)
	r := newRig(t, rigOptions{redis: p})
	lead := r.lead(t)
	w := dial(t, r.addr)
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	if err := r.control.ReplicaOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	w.send("SET a 1", "SET a 2")
	if got := w.rest(); !strings.HasPrefix(got, "-READONLY ") || strings.Count(got, "\r\n") != 1 {
		t.Errorf("got %q", got)
	}
}

// The connection is killed while the term still rules: the session sees what the
// server's own client would.
func TestKilledWithoutTakeover(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	w := dial(t, r.addr)
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	id := strings.TrimSuffix(strings.TrimPrefix(w.ask("CLIENT ID"), ":"), "\r\n")
	if err := r.control.ClientKillByFilter(t.Context(), "ID", id).Err(); err != nil {
		t.Fatal(err)
	}
	if got := w.rest(); got != "" {
		t.Errorf("got %q", got)
	}
}

// The fence vanishes under a bound session, by the leader's own FLUSHALL: it writes on,
// and the next bind raises the fence again.
func TestFlushAllByTheLeader(t *testing.T) {
	r := newRig(t, rigOptions{redis: testenv.Redis(t)})
	lead := r.lead(t)
	w := dial(t, r.addr)
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	w.want("FLUSHALL", "+OK\r\n")
	w.want("SET a 1", "+OK\r\n")
	second := dial(t, r.addr)
	second.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	second.want("SET a 2", "+OK\r\n")
	if n := r.control.Exists(t.Context(), redisfence.Key(r.election)).Val(); n != 1 {
		t.Error("the fence is not there")
	}
}

// Each bind after a flush finds the fence gone and has it raised anew, however fast the
// server answers while the client's pump still sends.
func TestBindAfterEachFlush(t *testing.T) {
	r := newRig(t, rigOptions{redis: testenv.Redis(t)})
	lead := r.lead(t)
	for range 200 {
		if err := r.control.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		w := dial(t, r.addr)
		w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
		_ = w.Close()
	}
}

// Serve stops: what is owed comes, then the close; a blocked session does not hold it up.
func TestDrain(t *testing.T) {
	p := testenv.SharedRedis(t)
	control := redis.NewClient(&redis.Options{Addr: p.Addr})
	defer control.Close()
	b := new(guardtest.Backend)
	f := redisfence.New(&redis.Options{Addr: p.Addr}, redisfence.Options{})
	defer f.Close()
	g := guard.New(b, f, guard.Config{})
	defer g.Close()
	s, err := resp.New(resp.Config{Upstream: p.Addr, Guard: g, Control: control, Election: "jobs", Loops: loopstest.Start(t)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	idle, blocked, half := dial(t, l.Addr().String()), dial(t, l.Addr().String()), dial(t, l.Addr().String())
	idle.want("PING", "+PONG\r\n")
	blocked.want("PING", "+PONG\r\n")
	blocked.send("XREAD BLOCK 0 STREAMS " + testenv.Name(t, "k") + " $")
	half.want("PING", "+PONG\r\n")
	if _, err := io.WriteString(half, "*2\r\n$3\r\nGET\r\n"); err != nil {
		t.Fatal(err)
	}
	stop()
	for _, w := range []*wire{idle, half, blocked} {
		if got := w.rest(); got != "" {
			t.Errorf("got %q", got)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Memory stays bounded and nothing deadlocks: a bulk of half a gigabyte, a pipeline of a
// million commands whose client does not read, and both directions full at once.
func TestBoundedMemory(t *testing.T) {
	r := newRig(t, rigOptions{redis: testenv.Redis(t)})
	lead := r.leadFor(t, 10*time.Minute)
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := uint64(0)
	look := func() {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		if now.HeapAlloc > before.HeapAlloc {
			most = max(most, now.HeapAlloc-before.HeapAlloc)
		}
	}
	w := dial(t, r.addr)
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	const size = 256 << 20
	chunk := make([]byte, 1<<20)
	fmt.Fprintf(w, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n", size)
	for i := 0; i < size; i += len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
		look()
	}
	w.send("")
	if got := w.reply(); got != "+OK\r\n" {
		t.Fatal(got)
	}
	// A refused one of that size is dropped as it comes.
	reader := dial(t, r.addr)
	fmt.Fprintf(reader, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n", size)
	for i := 0; i < size; i += len(chunk) {
		if _, err := reader.Write(chunk); err != nil {
			t.Fatal(err)
		}
		look()
	}
	reader.send("")
	if got := reader.reply(); !strings.HasPrefix(got, "-FENCED ") {
		t.Fatal(got)
	}
	// A million commands, none of whose replies is read until all are written.
	const commands = 1_000_000
	go func() {
		one := strings.Repeat("*1\r\n$4\r\nPING\r\n", 1000)
		for range commands / 1000 {
			if _, err := io.WriteString(w, one); err != nil {
				return
			}
		}
	}()
	eventually(t, "the client's pump is held back", func() bool { look(); return true })
	_ = w.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := io.CopyN(io.Discard, w.r, 7*commands); err != nil {
		t.Fatal(n, err)
	}
	look()
	if most > 32<<20 {
		t.Errorf("%d MiB were in use", most>>20)
	}
}

// The permit of a client that does not read ends: its connection upstream does not stay.
func TestPermitEndsUnread(t *testing.T) {
	r, b, token := faultyRig(t, guard.Config{ValidateEvery: 50 * time.Millisecond, PermitFor: 300 * time.Millisecond})
	key := testenv.Name(t, "k")
	if err := r.control.Set(t.Context(), key, strings.Repeat("x", 1<<20), 0).Err(); err != nil {
		t.Fatal(err)
	}
	w := dial(t, r.addr)
	w.want("FENCE BIND "+token.Reveal(), "+OK\r\n")
	for range 50 {
		w.send("GET " + key)
	}
	named := func() bool {
		return strings.Contains(r.control.ClientList(t.Context()).Val(), "name=fenceproxy:"+r.election+":")
	}
	eventually(t, "the replies are held up", func() bool {
		for line := range strings.Lines(r.control.ClientList(t.Context()).Val()) {
			if strings.Contains(line, "name=fenceproxy:"+r.election+":") && !strings.Contains(line, " omem=0 ") {
				return true
			}
		}
		return false
	})
	b.Fail(errors.New("out of reach"))
	eventually(t, "the connection upstream has ended", func() bool { return !named() })
}

// Out of memory, a leader is bound all the same, in whatever database, and can free memory. A takeover finds its connection.
func TestBindWhenMemoryIsExhausted(t *testing.T) {
	r := newRig(t, rigOptions{redis: testenv.Redis(t)})
	lead := r.lead(t)
	if err := r.control.SetRange(t.Context(), "big", 8<<20, "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.control.ConfigSet(t.Context(), "maxmemory", "6mb").Err(); err != nil {
		t.Fatal(err)
	}
	stale, w, other := dial(t, r.addr), dial(t, r.addr), dial(t, r.addr)
	stale.wantPrefix("FENCE BIND "+strings.Repeat("x", 20), "-FENCED ")
	other.want("SELECT 5", "+OK\r\n")
	for _, c := range []*wire{w, other} {
		c.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
		c.wantPrefix("SET a 1", "-OOM ")
	}
	other.want("EXISTS big", ":0\r\n")
	next := r.takeOver(t, lead)
	fresh := dial(t, r.addr)
	fresh.want("FENCE BIND "+next.Token.Reveal(), "+OK\r\n")
	for _, c := range []*wire{w, other} {
		c.send("DEL big")
		c.wantEnd()
	}
	fresh.want("DEL big", ":1\r\n")
	fresh.want("SET a 1", "+OK\r\n")
}
