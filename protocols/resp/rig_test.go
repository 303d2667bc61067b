package resp_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/loops/loopstest"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A rig is a proxy in front of a real server, with everything real but the election
// backend, which is in memory.
type rig struct {
	redis     *servers.Process
	addr      string // of the proxy
	election  string // its default election, one of the test's own
	elections *memory.Backend
	control   *redis.Client // to the server, not through the proxy
	log       *testenv.Buffer
}

type rigOptions struct {
	redis  *servers.Process
	config func(*resp.Config)
	guard  guard.Config
	client redis.Options // for the control connections
	listen func() (net.Listener, error)
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	if o.redis == nil {
		o.redis = testenv.SharedRedis(t)
	}
	o.client.Addr = o.redis.Addr
	o.client.DisableIdentity = true
	o.client.ContextTimeoutEnabled = true
	o.client.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	r := &rig{redis: o.redis, election: testenv.Name(t, "e"), elections: memory.New(), log: new(testenv.Buffer)}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	r.control = redis.NewClient(&o.client)
	fence := redisfence.New(&o.client, redisfence.Options{})
	if o.guard.ValidateEvery == 0 {
		o.guard.ValidateEvery = 100 * time.Millisecond
	}
	o.guard.Log = log
	g := guard.New(r.elections, fence, o.guard)
	c := resp.Config{Upstream: o.redis.Addr, Guard: g, Control: r.control, Election: r.election, Log: log, Loops: loopstest.Start(t)}
	if o.config != nil {
		o.config(&c)
	}
	s, err := resp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if o.listen == nil {
		o.listen = func() (net.Listener, error) { return testenv.Listen(t), nil }
	}
	l, err := o.listen()
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	t.Cleanup(func() { // once the server has ended
		g.Close()
		_ = fence.Close()
		_ = r.control.Close()
		if t.Failed() {
			t.Logf("log:\n%s", r.log.String())
		}
	})
	testenv.Serve(t, l, s.Serve)
	return r
}

// lead acquires the rig's election, taking it over if it is held.
func (r *rig) lead(t testing.TB) election.AcquireResult {
	t.Helper()
	return r.leadFor(t, election.DefaultTTL)
}

func (r *rig) leadFor(t testing.TB, ttl time.Duration) election.AcquireResult {
	t.Helper()
	res, err := r.elections.Acquire(t.Context(), r.election, election.AcquireOptions{Owner: "worker", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != election.Acquired {
		t.Fatalf("election is busy: %+v", res)
	}
	return res
}

// takeOver gives the election to another holder.
func (r *rig) takeOver(t testing.TB, old election.AcquireResult) election.AcquireResult {
	t.Helper()
	if _, err := r.elections.Resign(t.Context(), r.election, old.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	return r.lead(t)
}

// user is a user name that carries the credential.
func (r *rig) user(name string, t election.Token) string {
	return name + ";election=" + r.election + ";token=" + t.Reveal()
}

// A wire is a raw connection.
type wire struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &wire{t: t, Conn: c, r: bufio.NewReader(c)}
}

// send sends inline commands, one an argument.
func (w *wire) send(lines ...string) {
	w.t.Helper()
	if _, err := io.WriteString(w, strings.Join(lines, "\r\n")+"\r\n"); err != nil {
		w.t.Fatal(err)
	}
}

const patience = 10 * time.Second

// reply reads one reply as the server wrote it.
func (w *wire) reply() string {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(patience))
	var b bytes.Buffer
	if err := readReply(w.r, &b); err != nil {
		w.t.Fatalf("reading a reply: %v (so far %q)", err, b.String())
	}
	return b.String()
}

// ask sends an inline command and returns its reply.
func (w *wire) ask(line string) string {
	w.t.Helper()
	w.send(line)
	return w.reply()
}

// want asks and compares.
func (w *wire) want(line, reply string) {
	w.t.Helper()
	if got := w.ask(line); got != reply {
		w.t.Fatalf("%s: got %q, want %q", line, got, reply)
	}
}

// wantPrefix asks and compares the beginning.
func (w *wire) wantPrefix(line, prefix string) string {
	w.t.Helper()
	got := w.ask(line)
	if !strings.HasPrefix(got, prefix) {
		w.t.Fatalf("%s: got %q, want %q...", line, got, prefix)
	}
	return got
}

// rest reads until the other side closes.
func (w *wire) rest() string {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(w.r)
	if err != nil {
		w.t.Fatalf("reading to the end: %v (so far %q)", err, b)
	}
	return string(b)
}

// wantEnd reads until the other side closes: with the reason at most, for a command that
// came just in time to be answered.
func (w *wire) wantEnd() {
	w.t.Helper()
	if got := w.rest(); got != "" && (!strings.HasPrefix(got, "-FENCED ") || strings.Count(got, "\r\n") != 1) {
		w.t.Errorf("the old leader got %q", got)
	}
}

func readReply(r *bufio.Reader, b *bytes.Buffer) error {
	line, err := r.ReadBytes('\n')
	b.Write(line)
	if err != nil {
		return err
	}
	n := 0
	switch line[0] {
	case '$', '=', '!':
		if _, err := fmt.Sscanf(string(line[1:]), "%d", &n); err != nil || n < 0 {
			return err
		}
		_, err = io.CopyN(b, r, int64(n)+2)
		return err
	case '*', '~', '>', '%', '|':
		if _, err := fmt.Sscanf(string(line[1:]), "%d", &n); err != nil {
			return err
		}
		if line[0] == '%' || line[0] == '|' {
			n *= 2
		}
		if line[0] == '|' {
			n++
		}
		for range n {
			if err := readReply(r, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	testenv.Within(t, patience, what, is)
}

func fields(s string) []any {
	var a []any
	for f := range strings.FieldsSeq(s) {
		a = append(a, f)
	}
	return a
}

func sprint(v any) string { return fmt.Sprint(v) }

// blocks waits until a bound session's blocking command has reached the server. Named is in
// the name of its connection: an election, or part of one.
func (r *rig) blocks(t *testing.T, named string) {
	t.Helper()
	eventually(t, "a command blocks", func() bool {
		for line := range strings.Lines(r.control.ClientList(t.Context()).Val()) {
			if strings.Contains(line, " cmd=blpop ") && strings.Contains(line, " name=fenceproxy:") && strings.Contains(line, named) {
				return true
			}
		}
		return false
	})
}
