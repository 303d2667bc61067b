package resp_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// A lagging replica still shows the record that a takeover has ended, and that takeover
// has swept it already. A stale session that binds there, because its upstream is an
// address that moved, would write once the replica has caught up and is promoted.
func TestNobodyBindsOnALaggingReplica(t *testing.T) {
	primary, replica := testenv.Redis(t), testenv.Redis(t)
	line := newHose(t, primary.Addr)
	rc := redis.NewClient(&redis.Options{Addr: replica.Addr, DisableIdentity: true})
	defer rc.Close()
	host, port, _ := net.SplitHostPort(line.addr)
	if err := rc.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	// The stale proxy: its permit lasts, and its upstream is the replica.
	r := newRig(t, rigOptions{redis: primary, config: func(c *resp.Config) { c.Upstream = replica.Addr },
		guard: guard.Config{ValidateEvery: time.Minute, PermitFor: 2 * time.Minute}})
	lead := r.leadFor(t, 10*time.Minute)
	dial(t, r.addr).ask("FENCE BIND " + lead.Token.Reveal()) // the fence is raised to the old number
	key := redisfence.Key(r.election)
	eventually(t, "the replica has the old record", func() bool {
		v := rc.Get(t.Context(), key).Val()
		return v != "" && v == r.control.Get(t.Context(), key).Val() && strings.Contains(v, ":severed:")
	})
	release := line.hold()
	defer release()

	// The takeover, through another guard: raised, and every node swept.
	fence := redisfence.New(&redis.Options{Addr: primary.Addr, DisableIdentity: true, ContextTimeoutEnabled: true}, redisfence.Options{})
	defer fence.Close()
	g := guard.New(r.elections, fence, guard.Config{})
	defer g.Close()
	next := r.takeOver(t, lead)
	p, err := g.Admit(t.Context(), guard.Credential{Election: r.election, Token: next.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()

	stale := dial(t, r.addr)
	stale.ask("CLIENT ID") // connected
	if v, now := rc.Get(t.Context(), key).Val(), r.control.Get(t.Context(), key).Val(); v == now {
		t.Fatal("the replica does not lag")
	}
	got := stale.ask("FENCE BIND " + lead.Token.Reveal())
	if !strings.HasPrefix(got, "-FENCEDOWN ") || !strings.Contains(got, "replica") {
		t.Errorf("bound on a replica: %q", got)
	}
	if list := rc.ClientList(t.Context()).Val(); strings.Contains(list, "name="+redisfence.Prefix) {
		t.Errorf("the name stays on:\n%s", list)
	}
	release()
	eventually(t, "the replica has caught up", func() bool {
		return rc.Get(t.Context(), key).Val() == r.control.Get(t.Context(), key).Val()
	})
	if err := rc.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	stale.send("SET a stale")
	if got := stale.reply(); !strings.HasPrefix(got, "-FENCE") {
		t.Errorf("the stale session's write: %q", got)
	}
	if v := rc.Get(t.Context(), "a").Val(); v != "" {
		t.Errorf("a stale write landed: %q", v)
	}
}

// A hose is a TCP relay to one address whose downstream direction can be held up.
type hose struct {
	addr string
	mu   sync.Mutex
}

// hold holds it up until what is returned is called.
func (h *hose) hold() (release func()) {
	h.mu.Lock()
	return sync.OnceFunc(h.mu.Unlock)
}

func newHose(t *testing.T, to string) *hose {
	t.Helper()
	h := &hose{}
	var cut func()
	h.addr, cut = testenv.RelayTCP(t, to, nil, func(to io.Writer, from io.Reader) {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			h.mu.Lock()
			_, werr := to.Write(buf[:n])
			h.mu.Unlock()
			if err != nil || werr != nil {
				return
			}
		}
	})
	t.Cleanup(cut)
	return h
}
