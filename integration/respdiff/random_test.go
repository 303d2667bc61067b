package respdiff

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
)

// connectionVerbs are commands that change the connection's state, mixed into random streams.
var connectionVerbs = []string{
	"MULTI", "EXEC", "DISCARD", "WATCH str", "UNWATCH", "SELECT 1", "SELECT 0", "CLIENT REPLY SKIP", "CLIENT REPLY OFF", "CLIENT REPLY ON",
	"SUBSCRIBE c", "UNSUBSCRIBE c", "PSUBSCRIBE c*", "PUNSUBSCRIBE c*", "PING", "CLIENT SETNAME me",
	"HELLO 2", "HELLO 3", "RESET", "CLIENT TRACKING ON", "CLIENT TRACKING OFF", "NOSUCH a b", "GET", "CLIENT", "AUTH default x", "FLUSHALL", "FLUSHDB",
}

// stream makes a random stream of commands. What stands for a refused command goes through
// the proxy as that, and to the server as one that it does not know.
func (p *plan) stream(random *rand.Rand, n int) (cmds [][]string, refused []bool) {
	var data [][]string
	for _, name := range sorted(keysOf(p.table)) {
		_, shape := byShape[name]
		class := p.table[name].Class
		if stateful(p.group[name]) || shape || class != policy.RedisRead && class != policy.RedisWrite || strings.Contains(name, "expire") || strings.HasPrefix(name, "v") {
			continue
		}
		for _, k := range p.calls[name] {
			if len(k.cmds) == 1 && !slices.Contains(k.cmds[0], "IDLETIME") && k.cmds[0][0] != "migrate" && k.cmds[0][0] != "MIGRATE" {
				data = append(data, k.cmds[0])
			}
		}
	}
	multi := false // HELLO inside MULTI is refused on purpose
	for range n {
		switch random.IntN(10) {
		case 0, 1:
			verb := connectionVerbs[random.IntN(len(connectionVerbs))]
			multi = (multi || verb == "MULTI") && verb != "EXEC" && verb != "DISCARD" && verb != "RESET"
			if multi && strings.HasPrefix(verb, "HELLO") {
				verb = "PING"
			}
			cmds, refused = append(cmds, strings.Fields(verb)), append(refused, false)
		case 2:
			cmds, refused = append(cmds, []string{"CONFIG", "SET", "maxmemory", "0"}), append(refused, true)
		default:
			cmds, refused = append(cmds, data[random.IntN(len(data))]), append(refused, false)
		}
	}
	return cmds, refused
}

// Random streams of commands of a bound session are answered as by the server itself. A seed
// that fails is named; FENCEPROXY_LONG tries many more.
func TestRandomStreams(t *testing.T) {
	seeds := uint64(12)
	if os.Getenv("FENCEPROXY_LONG") != "" {
		seeds = 500
	}
	onEach(t, func(t *testing.T, _ servers.RedisVersion, st *stage) {
		p := newPlan(t, st.direct.super)
		for n := range seeds {
			cmds, refused := p.stream(rand.New(rand.NewPCG(n, 1)), 80)
			want := st.direct.random(t, cmds, refused, "joined")
			for _, mode := range allModes {
				if got := st.proxy[mode].random(t, cmds, refused, mode); got != want {
					t.Errorf("seed %d, %s: %s\nthe stream: %q", n, mode, firstDifference(got, want), cmds)
				}
			}
		}
	})
}

func (p place) random(t *testing.T, cmds [][]string, refused []bool, mode string) string {
	t.Helper()
	ctx := testenv.Context(t)
	if err := p.clear(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.super.Do(ctx, "EVAL", seed, 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := &run{place: p, as: "leader", proto: "2", joined: mode == "joined", side: &side{refused: map[string]int{"NOPERM": 1}}}
	if err := r.on("a"); err != nil {
		t.Fatal(err)
	}
	c := r.now
	defer c.close()
	for i, cmd := range cmds {
		switch {
		case !refused[i]:
			r.send(command(cmd...))
		case p.proxy:
			r.send(command(cmd...))
		default:
			r.send(command(noCommand))
		}
	}
	// Whatever the stream has left: neither without replies, nor subscribed, nor in MULTI.
	for _, cmd := range []string{"CLIENT REPLY ON", "RESET", "ECHO the-end"} {
		r.send(command(strings.Fields(cmd)...))
	}
	c.flush()
	if _, err := c.await(1, holding("\r\nthe-end\r\n")); err != nil {
		t.Errorf("%s: %v", mode, err)
	}
	var b strings.Builder
	for i, reply := range c.got {
		if !bytes.HasPrefix(reply, []byte("$7\r\nthe-end")) {
			fmt.Fprintf(&b, "%d %s\n", i, show(r.side.normal(reply)))
		}
	}
	data, err := p.data(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return b.String() + data
}

// firstDifference shows where two texts part.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("before\n  %.800s\nproxy\n  %.800s\nserver\n  %.800s", strings.Join(a[max(0, i-3):i], "\n  "),
				strings.Join(a[i:min(i+3, len(a))], "\n  "), strings.Join(b[i:min(i+3, len(b))], "\n  "))
		}
	}
	return fmt.Sprintf("%d answers, not %d", len(a), len(b))
}
