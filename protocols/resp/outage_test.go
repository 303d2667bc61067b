package resp_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// An outage is an Admitter that cannot ask the election backend.
type outage struct {
	resp.Admitter
	mu    sync.Mutex
	over  bool
	asked int
}

func (o *outage) Admit(ctx context.Context, c guard.Credential) (*guard.Permit, error) {
	o.mu.Lock()
	o.asked++
	over := o.over
	o.mu.Unlock()
	if over {
		return o.Admitter.Admit(ctx, c)
	}
	return nil, &guard.Refusal{Reason: guard.BackendUnknown, Election: c.Election}
}

func (o *outage) end() (asked int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	return o.asked
}

// A session that came while the election backend was out of reach writes once it is back: few
// libraries connect again after an error. Meanwhile its writes do not wait for the backend,
// one after the other.
func TestOutageOfTheBackendEnds(t *testing.T) {
	var o *outage
	r := newRig(t, rigOptions{config: func(c *resp.Config) {
		o = &outage{Admitter: c.Guard}
		c.Guard = o
	}})
	lead := r.lead(t)
	key := testenv.Name(t, "k")
	w, own := dial(t, r.addr), dial(t, r.addr)
	w.want("AUTH "+r.user("", lead.Token)+" x", "+OK\r\n")
	own.wantPrefix("FENCE BIND "+lead.Token.Reveal(), "-FENCEDOWN ")
	for range 50 {
		w.wantPrefix("SET "+key+" 1", "-FENCEDOWN ")
	}
	w.want("GET "+key, "$-1\r\n")
	if asked := o.end(); asked > 10 {
		t.Errorf("the backend was asked %d times", asked)
	}
	eventually(t, "the session writes", func() bool { return w.ask("SET "+key+" 1") == "+OK\r\n" })
	own.wantPrefix("SET "+key+" 2", "-FENCEDOWN ") // it was told, and knows how to ask again
	own.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
}

// noInfo is a control user that may not ask for INFO.
type noInfo struct{ resp.Control }

func (n noInfo) Do(ctx context.Context, args ...any) *redis.Cmd {
	if args[0] == "INFO" {
		c := redis.NewCmd(ctx, args...)
		c.SetErr(errors.New("NOPERM"))
		return c
	}
	return n.Control.Do(ctx, args...)
}

// A listener for one server leads nobody to the other nodes of a cluster, around the fence.
func TestNodeOfAClusterBehindAListenerForOneServer(t *testing.T) {
	nodes := startCluster(t, servers.Redis7)
	r := newRig(t, rigOptions{redis: nodes.Primaries[0]})
	w := dial(t, r.addr)
	w.wantPrefix("PING", "-FENCEDOWN the server behind fenceproxy is a node of a cluster")

	r = newRig(t, rigOptions{redis: nodes.Primaries[0], config: func(c *resp.Config) { c.Control = noInfo{c.Control} }})
	w = dial(t, r.addr)
	w.want("PING", "+PONG\r\n")
	for _, key := range []string{"foo", "bar", "b"} { // each node has one
		if got := w.ask("GET " + key); got != "$-1\r\n" && got[:11] != "-FENCEDOWN " {
			t.Errorf("%s: %q", key, got)
		}
	}
	// A script's own words pass where it is known that there is no cluster.
	r = newRig(t, rigOptions{})
	w = dial(t, r.addr)
	w.send("*3\r\n$7\r\nEVAL_RO\r\n$47\r\nreturn redis.error_reply('MOVED 1 127.0.0.1:1')\r\n$1\r\n0")
	if got := w.reply(); got != "-MOVED 1 127.0.0.1:1\r\n" {
		t.Errorf("got %q", got)
	}
}
