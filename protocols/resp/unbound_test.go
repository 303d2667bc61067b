package resp_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// Each bind that is refused is logged once, whoever refuses it: as a warning where an operator
// must mend something, and never with a token.
func TestRefusedBindsAreLogged(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	user := strings.ReplaceAll(testenv.Name(t, "u"), ":", "-")
	admin := redis.NewClient(&redis.Options{Addr: r.redis.Addr, DisableIdentity: true})
	defer admin.Close()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", user, "on", ">x", "~*", "+@all", "-client|setname").Err(); err != nil {
		t.Fatal(err)
	}
	defer admin.Do(t.Context(), "ACL", "DELUSER", user)
	lines := func() (all []string) {
		for line := range strings.Lines(r.log.String()) {
			if strings.Contains(line, `msg="session not bound"`) {
				all = append(all, line)
			}
		}
		return all
	}
	w := dial(t, r.addr)
	bad := election.NewToken().Reveal()
	for i, c := range []struct{ send, answer, level, logged string }{
		{"FENCE BIND short", "-FENCED ", "INFO", "must be 16 to 128"},
		{"FENCE BIND " + bad, "-FENCED stale leader refused", "INFO", "ruled by number"},
		{"AUTH " + r.user(user, lead.Token) + " x", "+OK", "WARN", "(client|setname); ACL SETUSER <user> +client|info"},
	} {
		w.wantPrefix(c.send, c.answer)
		w.wantPrefix("PING", "+PONG")
		all := lines()
		if len(all) != i+1 {
			t.Fatalf("%d lines:\n%s", len(all), strings.Join(all, ""))
		}
		if l := all[i]; !strings.Contains(l, "level="+c.level) || !strings.Contains(l, c.logged) || !strings.Contains(l, r.election) {
			t.Error(l)
		}
	}
	w.wantPrefix("SORT list", "-FENCEDOWN refused: this connection could not be bound")
	if got := w.ask("SORT secret"); !strings.HasSuffix(got, " Refused: SORT. A reader can send SORT_RO.\r\n") || strings.Contains(got, "control connection") {
		t.Error(got)
	}
	if got := w.ask("PUBLISH secret x"); !strings.HasSuffix(got, " Refused: PUBLISH. Readers can publish where the listener has publish: open.\r\n") {
		t.Error(got)
	}
	if all := lines(); len(all) != 3 {
		t.Errorf("%d lines:\n%s", len(all), strings.Join(all, ""))
	}
	if log := r.log.String(); strings.Contains(log, bad) || strings.Contains(log, lead.Token.Reveal()) {
		t.Error("a token was logged")
	}
}

// A server that is out of reach is told at once, not once for each client, and so is that it
// is back.
func TestOutOfReachIsToldOnce(t *testing.T) {
	var away atomic.Bool
	r := newRig(t, rigOptions{config: func(c *resp.Config) {
		upstream := c.Upstream
		c.Dial = func(ctx context.Context) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("out of reach")
			}
			return resp.Dialer{}.Dial(ctx, upstream)
		}
	}})
	away.Store(true)
	for range 20 {
		w := dial(t, r.addr)
		if got := w.reply(); !strings.HasPrefix(got, "-FENCEDOWN ") {
			t.Fatalf("got %q", got)
		}
	}
	if n := strings.Count(r.log.String(), "the upstream server cannot be reached"); n == 0 || n > 5 {
		t.Errorf("told %d times", n)
	}
	away.Store(false)
	dial(t, r.addr).want("PING", "+PONG\r\n")
	dial(t, r.addr).want("PING", "+PONG\r\n")
	if n := strings.Count(r.log.String(), "the upstream server is reached again"); n != 1 {
		t.Errorf("told %d times that it is back", n)
	}
}

// Clients of a node without a port are told which it is, and the log says so once.
func clusterTooFewPorts(t *testing.T, nodes *servers.RedisCluster) {
	r := newClusterRig(t, nodes, func(c *resp.ClusterConfig) { c.Ports = c.Ports[:len(nodes.Primaries)-1] })
	for range 20 {
		w := dial(t, r.addr)
		w.wantPrefix("CLUSTER SLOTS", "*")
	}
	unserved := 0
	w := dial(t, r.addr)
	for i := range 30 { // keys of all nodes
		got := w.ask("GET none" + sprint(i))
		if strings.Contains(got, "cluster.ports") {
			unserved++
			if !strings.HasPrefix(got, "-FENCEDOWN node ") {
				t.Error(got)
			}
			for _, n := range nodes.All() {
				if _, port, _ := net.SplitHostPort(n.Addr); strings.Contains(got, port) {
					t.Error(got)
				}
			}
		} else if got != "$-1\r\n" && !strings.HasPrefix(got, "-MOVED ") {
			t.Error(got)
		}
	}
	if unserved == 0 {
		t.Error("no node is told to be unserved")
	}
	if n := strings.Count(r.log.String(), "is not served"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}
