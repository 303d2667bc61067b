package resp_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// The rule of docs/redis.md for users whose scripts are not trusted: their keys' patterns,
// and reading the fence. A leader's script then cannot write a fence, by no command, though
// the proxy does not see that key.
func TestScriptsCannotWriteFencesUnderTheACLRule(t *testing.T) {
	testenv.EachRedis(t, func(t *testing.T, _ servers.RedisVersion, p *servers.Process) {
		r := newRig(t, rigOptions{redis: p})
		user := testenv.Name(t, "u")
		if err := r.control.Do(t.Context(), fields("ACL SETUSER "+user+" on >pw +@all ~app:* %R~fenceproxy:{*}:fence")...).Err(); err != nil {
			t.Fatal(err)
		}
		lead := r.lead(t)
		w := dial(t, r.addr)
		w.want("AUTH "+r.user(user, lead.Token)+" pw", "+OK\r\n")
		w.want("SET app:k 1", "+OK\r\n")
		key := redisfence.Key(r.election)
		before := r.control.Get(t.Context(), key).Val()
		const made = "local k = 'fence'..'proxy:{'..ARGV[1]..'}:fence' "
		w.want("EVAL \""+made+"return redis.call('get', k) == ARGV[2]\" 0 "+r.election+" "+before, ":1\r\n")
		for _, cmd := range []string{
			"'set', k, 'x'", "'del', k", "'unlink', k", "'expire', k, 1", "'rename', k, 'app:k'", "'rename', 'app:k', k",
			"'copy', 'app:k', k, 'REPLACE'", "'getdel', k", "'append', k, 'x'", "'mset', 'app:k', 1, k, 2", "'move', k, 1",
			"'restore', k, 0, 'x', 'REPLACE'", "'sort', 'app:l', 'STORE', k",
		} {
			if got := w.ask("EVAL \"" + made + "return redis.call(" + cmd + ")\" 0 " + r.election); !strings.HasPrefix(got, "-") || !strings.Contains(got, "ermission") && !strings.Contains(got, "can't access at least one of the keys") {
				t.Errorf("%s: %q", cmd, got)
			}
			if now := r.control.Get(t.Context(), key).Val(); now != before {
				t.Fatalf("%s changed the fence", cmd)
			}
		}
	})
}
