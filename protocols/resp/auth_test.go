package resp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// The ways to authenticate, with a password and with ACL users.
func TestAuthOrders(t *testing.T) {
	p := testenv.Redis(t, "--requirepass", "secret")
	r := newRig(t, rigOptions{redis: p, client: redis.Options{Password: "secret"}})
	if err := r.control.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-@admin").Err(); err != nil {
		t.Fatal(err)
	}
	lead := r.leadFor(t, time.Minute)
	other := election.NewToken()

	t.Run("before AUTH", func(t *testing.T) {
		w := dial(t, r.addr)
		w.want("GET a", "-NOAUTH Authentication required.\r\n")
		got := w.wantPrefix("FENCE BIND "+lead.Token.Reveal(), "-FENCED ")
		if !strings.Contains(got, "authenticate first") {
			t.Error(got)
		}
		w.wantPrefix("HELLO 3", "-NOAUTH ")
		w.want("AUTH secret", "+OK\r\n")
		w.wantPrefix("SET a 1", "-FENCED ")
		w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
		w.want("SET a 1", "+OK\r\n")
	})
	t.Run("AUTH", func(t *testing.T) {
		w := dial(t, r.addr)
		w.wantPrefix("AUTH "+r.user("app", lead.Token)+" wrong", "-WRONGPASS ")
		w.wantPrefix("SET a 1", "-FENCED write refused")
		w.want("GET a", "-NOAUTH Authentication required.\r\n")
		w.want("AUTH "+r.user("app", lead.Token)+" pw", "+OK\r\n")
		w.want("SET a 1", "+OK\r\n")
		w.want("ACL WHOAMI", "$3\r\napp\r\n")
	})
	t.Run("AUTH default user", func(t *testing.T) {
		w := dial(t, r.addr)
		w.want("AUTH "+r.user("", lead.Token)+" secret", "+OK\r\n")
		w.want("SET a 1", "+OK\r\n")
		w.want("ACL WHOAMI", "$7\r\ndefault\r\n")
	})
	t.Run("AUTH stale", func(t *testing.T) {
		w := dial(t, r.addr)
		w.want("AUTH "+r.user("app", other)+" pw", "+OK\r\n")
		w.wantPrefix("SET a 1", "-FENCED stale leader refused")
		w.wantPrefix("GET a", "$")
	})
	t.Run("HELLO", func(t *testing.T) {
		w := dial(t, r.addr)
		w.wantPrefix("HELLO 3 AUTH "+r.user("app", lead.Token)+" pw SETNAME me", "%7\r\n")
		w.want("SET a 1", "+OK\r\n")
		w.want("CLIENT GETNAME", "$2\r\nme\r\n")
		w.want("GET nosuch", "_\r\n")
	})
	t.Run("RESET", func(t *testing.T) {
		w := dial(t, r.addr)
		w.want("AUTH "+r.user("app", lead.Token)+" pw", "+OK\r\n")
		w.want("RESET", "+RESET\r\n")
		w.wantPrefix("SET a 1", "-FENCED write refused")
		w.want("GET a", "-NOAUTH Authentication required.\r\n")
		w.want("AUTH app pw", "+OK\r\n")
		w.want("SET a 1", "+OK\r\n")
	})
	t.Run("another token", func(t *testing.T) {
		w := dial(t, r.addr)
		w.want("AUTH "+r.user("app", lead.Token)+" pw", "+OK\r\n")
		w.want("SET a 1", "+OK\r\n")
		w.want("AUTH "+r.user("app", other)+" pw", "+OK\r\n")
		w.wantPrefix("SET a 1", "-FENCED stale")
		if got := w.ask("CLIENT INFO"); strings.Contains(got, "name=fenceproxy:") {
			t.Errorf("the bound name was left on: %s", got)
		}
	})
	assertNoToken(t, r, lead.Token, other)
}

// assertNoToken checks that no token is in the proxy's log, nor anywhere in the server.
func assertNoToken(t *testing.T, r *rig, tokens ...election.Token) {
	t.Helper()
	ctx := t.Context()
	all := r.log.String() + r.redis.Log()
	for _, cmd := range []string{"SLOWLOG GET 1000", "ACL LOG 1000", "CLIENT LIST"} {
		v, err := r.control.Do(ctx, fields(cmd)...).Result()
		if err != nil {
			t.Fatal(err)
		}
		all += sprint(v)
	}
	keys, err := r.control.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		all += k + r.control.Dump(ctx, k).Val()
	}
	for _, token := range tokens {
		if strings.Contains(all, token.Reveal()) {
			t.Errorf("a token leaked")
		}
	}
}

// MONITOR shows what reaches the server, and SLOWLOG here too: no token is in it.
func TestTokensStayInTheProxy(t *testing.T) {
	p := testenv.Redis(t, "--slowlog-log-slower-than", "0")
	r := newRig(t, rigOptions{redis: p})
	lead := r.lead(t)
	m := dial(t, p.Addr)
	m.want("MONITOR", "+OK\r\n")
	token := lead.Token.Reveal()
	w := dial(t, r.addr)
	for _, line := range []string{
		"FENCE BIND " + token, "FENCE BIND " + r.election + " " + token, "FENCE " + token, "FENCE BIND a b c " + token,
		"AUTH " + r.user("", lead.Token) + " x", "AUTH " + r.user("", lead.Token), "AUTH token=" + token + " x", "AUTH a ;token=" + token + " c",
		"HELLO 2 AUTH " + r.user("default", lead.Token) + " x", "HELLO ;token=" + token, "HELLO 2 SETNAME ;token=" + token,
		"MULTI", "AUTH " + r.user("", lead.Token) + " x", "HELLO 2 AUTH " + r.user("", lead.Token) + " x", "FENCE BIND " + token, "DISCARD",
		"RESET", "PING",
	} {
		w.ask(line)
	}
	w.want("ECHO last", "$4\r\nlast\r\n")
	for {
		line := m.reply()
		if strings.Contains(line, token) {
			t.Errorf("the server saw the token: %s", line)
		}
		if strings.Contains(line, `"last"`) {
			break
		}
	}
	assertNoToken(t, r, lead.Token)
}

// The rights that the documentation names are enough, and each is needed.
func TestRightsOfAClientUser(t *testing.T) {
	p := testenv.Redis(t)
	r := newRig(t, rigOptions{redis: p})
	lead := r.leadFor(t, time.Minute)
	ctx := t.Context()
	rights := "+client|info +client|setname +get"
	rules := func(rights string) []any {
		return append([]any{"ACL", "SETUSER", "app", "reset", "on", ">pw", "~data:*", "%R~" + redisfence.Prefix + "{*}:fence", "+set"}, fields(rights)...)
	}
	if err := r.control.Do(ctx, rules(rights)...).Err(); err != nil {
		t.Fatal(err)
	}
	w := dial(t, r.addr)
	w.want("AUTH "+r.user("app", lead.Token)+" pw", "+OK\r\n")
	w.want("SET data:1 1", "+OK\r\n")
	for right := range strings.FieldsSeq(rights) {
		t.Run("without "+right, func(t *testing.T) {
			if err := r.control.Do(ctx, rules(strings.ReplaceAll(rights, right, ""))...).Err(); err != nil {
				t.Fatal(err)
			}
			w := dial(t, r.addr)
			w.want("AUTH "+r.user("app", lead.Token)+" pw", "+OK\r\n")
			w.send("SET data:1 2")
			if got := w.reply(); !strings.HasPrefix(got, "-FENCEDOWN ") {
				t.Errorf("got %q", got)
			}
			if v := r.control.Get(ctx, "data:1").Val(); v != "1" {
				t.Errorf("it was written: %q", v)
			}
		})
	}
}

func TestElectionsOfAListener(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *resp.Config) { c.Elections = []string{"second"} }})
	lead := r.lead(t)
	second, err := r.elections.Acquire(context.Background(), "second", election.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := dial(t, r.addr)
	w.wantPrefix("FENCE BIND third "+lead.Token.Reveal(), "-FENCED credential refused: this listener does not serve")
	w.wantPrefix("FENCE BIND second "+lead.Token.Reveal(), "-FENCED stale leader")
	w.wantPrefix("FENCE BIND bad!name "+lead.Token.Reveal(), "-FENCED credential refused")
	w.wantPrefix("FENCE BIND short", "-FENCED credential refused")
	w.wantPrefix("FENCE BIND "+election.NewToken().Reveal(), "-FENCED stale leader")
	w.wantPrefix("FENCE", "-ERR ")
	w.wantPrefix("FENCE NOSUCH", "-ERR ")
	w.wantPrefix("SET a 1", "-FENCED ")
	w.want("FENCE BIND second "+second.Token.Reveal(), "+OK\r\n")
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n") // from one to the other
	w.wantPrefix("FENCE HELP", "*12\r\n")
	if _, err := r.elections.Resign(context.Background(), r.election, lead.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	// The permit that is there serves until it is validated next.
	eventually(t, "the resigned leader is refused", func() bool {
		return strings.HasPrefix(dial(t, r.addr).ask("FENCE BIND "+lead.Token.Reveal()), "-FENCED ")
	})
}
