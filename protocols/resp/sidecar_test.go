package resp_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// A fakeLead is a leadership that tests hand a token to.
type fakeLead struct {
	election string
	token    atomic.Pointer[election.Token]
}

func (l *fakeLead) Election() string { return l.election }

func (l *fakeLead) Credential() (guard.Credential, bool) {
	t := l.token.Load()
	if t == nil {
		return guard.Credential{}, false
	}
	return guard.Credential{Election: l.election, Token: *t}, true
}

func (l *fakeLead) Refusal() *guard.Refusal {
	return &guard.Refusal{Reason: guard.NotElected, Election: l.election, Rules: 12, Leader: "host-b"}
}

// sidecarRig is a rig whose listener campaigns, and does not lead yet.
func sidecarRig(t *testing.T) (*rig, *fakeLead) {
	t.Helper()
	lead := new(fakeLead)
	r := newRig(t, rigOptions{config: func(c *resp.Config) {
		lead.election = c.Election
		c.Lead = lead
	}})
	return r, lead
}

// Sessions without a credential read while another leads, and write as soon as the listener
// does; the end of its term ends them.
func TestSidecarBinds(t *testing.T) {
	r, lead := sidecarRig(t)
	key := testenv.Name(t, "k")
	w := dial(t, r.addr)
	w.wantPrefix("SET "+key+" 1", "-FENCED write refused: this listener's election \""+r.election+"\" is ruled by number 12, held by \"host-b\". Write through the proxy that leads")
	w.want("GET "+key, "$-1\r\n")
	if got := w.ask("FENCE STATUS"); !strings.Contains(got, "$6\r\nleader\r\n$6\r\nhost-b\r\n") || !strings.Contains(got, "$5\r\nrules\r\n:12\r\n") {
		t.Error(got)
	}
	w.want("MULTI", "+OK\r\n")
	g := r.lead(t)
	lead.token.Store(&g.Token)
	// A transaction that began as a reader's stays one.
	w.wantPrefix("SET "+key+" 1", "-FENCED write refused: this session is not bound to this listener's election")
	w.wantPrefix("EXEC", "-EXECABORT")
	w.want("GET "+key, "$-1\r\n")
	w.want("CLIENT SETNAME mine", "+OK\r\n")
	w.want("WATCH "+key, "+OK\r\n")
	w.want("MULTI", "+OK\r\n")
	w.want("SET "+key+" 2", "+QUEUED\r\n")
	w.want("EXEC", "*1\r\n+OK\r\n")
	w.want("CLIENT GETNAME", "$4\r\nmine\r\n")
	if got := w.ask("FENCE STATUS"); !strings.Contains(got, "bound") {
		t.Error(got)
	}
	// Without a word of its own, after RESET too, and whatever the command's length.
	w.want("RESET", "+RESET\r\n")
	w.send("INCR "+key, "INCR "+key)
	if got := w.reply() + w.reply(); got != ":3\r\n:4\r\n" {
		t.Error(got)
	}
	long := strings.Repeat("x", 1<<20)
	other := dial(t, r.addr)
	other.send("*3\r\n$3\r\nSET\r\n$" + sprint(len(key)) + "\r\n" + key + "\r\n$" + sprint(len(long)) + "\r\n" + long)
	if got := other.reply(); got != "+OK\r\n" {
		t.Error(got)
	}
	unknown := dial(t, r.addr)
	unknown.wantPrefix("NOSUCH 1", "-ERR unknown command")

	lead.token.Store(nil)
	r.takeOver(t, g)
	w.wantEnd()
	other.wantEnd()
	if log := r.log.String(); strings.Contains(log, g.Token.Reveal()) {
		t.Error("the token was logged")
	}
}

// A client that presents a credential of its own, or gives up what it has, is treated as on
// any listener.
func TestSidecarClientsOwnCredential(t *testing.T) {
	r, lead := sidecarRig(t)
	key := testenv.Name(t, "k")
	g := r.lead(t)
	stale := election.NewToken()
	lead.token.Store(&g.Token)
	w := dial(t, r.addr)
	w.want("SET "+key+" 1", "+OK\r\n")
	w.wantPrefix("FENCE BIND "+stale.Reveal(), "-FENCED stale leader refused")
	w.wantPrefix("SET "+key+" 2", "-FENCED stale leader refused")
	w.want("FENCE BIND "+g.Token.Reveal(), "+OK\r\n")
	w.want("SET "+key+" 3", "+OK\r\n")

	// Malformed ones, that the guard is not asked about, are credentials too.
	for _, present := range []string{"AUTH default;token=short x", "FENCE BIND short"} {
		w = dial(t, r.addr)
		w.ask(present)
		w.wantPrefix("SET "+key+" 4", "-FENCED credential refused")
	}

	w = dial(t, r.addr)
	w.want("SET "+key+" 5", "+OK\r\n")
	w.want("FENCE UNBIND", "+OK\r\n")
	w.wantPrefix("SET "+key+" 6", "-FENCED write refused: this session has no live token")
	w.want("GET "+key, "$1\r\n5\r\n")
}

// What the guard refuses to a sidecar is refused to its clients, and asked again in a while.
func TestSidecarRefused(t *testing.T) {
	r, lead := sidecarRig(t)
	key := testenv.Name(t, "k")
	g := r.lead(t)
	stale := election.NewToken()
	lead.token.Store(&stale)
	w := dial(t, r.addr)
	for range 20 {
		w.wantPrefix("SET "+key+" 1", "-FENCED stale leader refused")
	}
	w.want("GET "+key, "$-1\r\n")
	if n := strings.Count(r.log.String(), "session not bound"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	lead.token.Store(&g.Token)
	testenv.Within(t, 10*time.Second, "the session writes", func() bool { return w.ask("SET "+key+" 1") == "+OK\r\n" })
}
