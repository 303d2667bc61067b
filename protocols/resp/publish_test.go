package resp_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// Readers publish where the listener's rule opens that, and there alone; nothing else is
// opened with it.
func TestPublishByRule(t *testing.T) {
	testenv.EachRedis(t, func(t *testing.T, _ servers.RedisVersion, p *servers.Process) {
		fenced := newRig(t, rigOptions{redis: p})
		open := newRig(t, rigOptions{redis: p, config: func(c *resp.Config) { c.OpenPublish = true }})
		channel := testenv.Name(t, "c")
		hearer := dial(t, p.Addr)
		hearer.ask("SUBSCRIBE " + channel)
		hearer.ask("SSUBSCRIBE " + channel)

		w := dial(t, fenced.addr)
		w.wantPrefix("PUBLISH "+channel+" no", "-FENCED ")
		w.wantPrefix("SPUBLISH "+channel+" no", "-FENCED ")
		w = dial(t, open.addr)
		w.want("PUBLISH "+channel+" one", ":1\r\n")
		w.want("SPUBLISH "+channel+" two", ":1\r\n")
		w.want("MULTI", "+OK\r\n")
		w.want("PUBLISH "+channel+" three", "+QUEUED\r\n")
		w.want("EXEC", "*1\r\n:1\r\n")
		w.wantPrefix("SET "+channel+" 1", "-FENCED ")
		w.wantPrefix("EVAL \"return redis.call('publish',ARGV[1],'no')\" 0 "+channel, "-FENCED ")
		w.wantPrefix("EVAL_RO \"return redis.call('publish',ARGV[1],'no')\" 0 "+channel, "-ERR")
		for _, want := range []string{"one", "two", "three"} {
			kind := map[bool]string{true: "$8\r\nsmessage", false: "$7\r\nmessage"}[want == "two"]
			if got := hearer.reply(); got != "*3\r\n"+kind+"\r\n"+bulk(channel)+bulk(want) {
				t.Errorf("%q came", got)
			}
		}
	})
}

func bulk(s string) string { return bulks(s)[4:] }
