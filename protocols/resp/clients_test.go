package resp_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func goRedis(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	o.ContextTimeoutEnabled = true
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// An ordinary client library is bound by its user name alone, and needs nothing else.
func TestGoRedis(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			ctx := testenv.Context(t)
			key := testenv.Name(t, "k")
			reader := goRedis(t, &redis.Options{Addr: r.addr, Protocol: protocol, ClientName: "reader"})
			leader := goRedis(t, &redis.Options{Addr: r.addr, Protocol: protocol, ClientName: "leader",
				CredentialsProvider: func() (string, string) { return r.user("", lead.Token), "x" }})
			if err := reader.Set(ctx, key, 1, 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "FENCED ") {
				t.Fatalf("a reader's write: %v", err)
			}
			if err := leader.Set(ctx, key, 1, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			if v, err := reader.Get(ctx, key).Int(); err != nil || v != 1 {
				t.Fatal(v, err)
			}
			if name, err := leader.ClientGetName(ctx).Result(); err != nil || name != "leader" {
				t.Errorf("name %q, %v", name, err)
			}
			cmds, err := leader.TxPipelined(ctx, func(p redis.Pipeliner) error {
				for range 100 {
					p.Incr(ctx, key)
				}
				p.HSet(ctx, key+"h", "f", "v")
				p.HGetAll(ctx, key+"h")
				return nil
			})
			if err != nil || cmds[99].(*redis.IntCmd).Val() != 101 || cmds[101].(*redis.MapStringStringCmd).Val()["f"] != "v" {
				t.Fatal(cmds, err)
			}
			err = leader.Watch(ctx, func(tx *redis.Tx) error {
				if err := leader.Set(ctx, key, "changed", 0).Err(); err != nil {
					return err
				}
				_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, key, "lost", 0).Err() })
				return err
			}, key)
			if !errors.Is(err, redis.TxFailedErr) {
				t.Errorf("WATCH: %v", err)
			}
			if v, err := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])").Run(ctx, leader, []string{key + "n"}, 7).Int(); err != nil || v != 7 {
				t.Error(v, err)
			}
			sub := reader.Subscribe(ctx, key)
			defer sub.Close()
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			if n, err := leader.Publish(ctx, key, "hello").Result(); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
				t.Fatal(m, err)
			}
			status, err := leader.Do(ctx, "FENCE", "STATUS").Result()
			if err != nil || !strings.Contains(fmt.Sprint(status), "bound") || !strings.Contains(fmt.Sprint(status), fmt.Sprint(lead.Number)) {
				t.Error(status, err)
			}
			if _, isMap := status.(map[any]any); isMap != (protocol == 3) {
				t.Errorf("FENCE STATUS is a %T", status)
			}
		})
	}
}

// After a takeover a client library gets clear errors, and reads on by itself.
func TestGoRedisAfterTakeover(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	ctx := testenv.Context(t)
	key := testenv.Name(t, "k")
	old := goRedis(t, &redis.Options{Addr: r.addr, Username: r.user("default", lead.Token), Password: "x", MaxRetries: -1})
	if err := old.Set(ctx, key, "old", 0).Err(); err != nil {
		t.Fatal(err)
	}
	next := r.takeOver(t, lead)
	now := goRedis(t, &redis.Options{Addr: r.addr, Username: r.user("default", next.Token), Password: "x"})
	if err := now.Set(ctx, key, "new", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var fenced int
	for range 10 {
		switch err := old.Set(ctx, key, "late", 0).Err(); {
		case err == nil:
			t.Fatal("a late write was applied")
		case strings.HasPrefix(err.Error(), "FENCED stale leader"):
			fenced++
		}
	}
	if fenced < 9 { // the first may meet the closed connection
		t.Errorf("%d of 10 writes got a clear error", fenced)
	}
	if v, err := old.Get(ctx, key).Result(); err != nil || v != "new" {
		t.Errorf("reading: %q, %v", v, err)
	}
}

func program(t testing.TB, ctx context.Context, stdin, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	ctx := testenv.Context(t)
	host, port, _ := strings.Cut(r.addr, ":")
	key := testenv.Name(t, "k")
	base := []string{"-h", host, "-p", port, "--no-auth-warning"}
	leader := append(base, "--user", r.user("", lead.Token), "--pass", "x")
	if out := program(t, ctx, "", "redis-cli", append(base, "SET", key, "1")...); !strings.HasPrefix(out, "FENCED ") {
		t.Errorf("a reader's write: %s", out)
	}
	if out := program(t, ctx, "", "redis-cli", append(leader, "SET", key, "1")...); out != "OK\n" {
		t.Error(out)
	}
	if out := program(t, ctx, "", "redis-cli", append(append(leader, "-3"), "FENCE", "STATUS")...); !strings.Contains(out, "bound") {
		t.Error(out)
	}
	var pipe strings.Builder
	for i := range 5000 {
		pipe.WriteString(bulks("RPUSH", key+"l", fmt.Sprint(i)))
	}
	if out := program(t, ctx, pipe.String(), "redis-cli", append(leader, "--pipe")...); !strings.Contains(out, "errors: 0, replies: 5000") {
		t.Error(out)
	}
	if out := program(t, ctx, "LLEN "+key+"l\nSET "+key+" \"a b\"\nGET "+key+"\n", "redis-cli", leader...); out != "5000\nOK\na b\n" {
		t.Errorf("%q", out)
	}
}

func TestRedisBenchmark(t *testing.T) {
	r := newRig(t, rigOptions{redis: testenv.Redis(t)})
	lead := r.leadFor(t, time.Minute)
	host, port, _ := strings.Cut(r.addr, ":")
	out := program(t, testenv.Context(t), "", "redis-benchmark", "-h", host, "-p", port, "--user", r.user("", lead.Token), "-a", "x",
		"-n", "2000", "-c", "20", "-P", "8", "-q")
	for _, test := range []string{"PING_INLINE", "SET", "GET", "INCR", "LPUSH", "SPOP", "ZADD", "LRANGE_600", "MSET"} {
		if !strings.Contains(out, test) {
			t.Errorf("%s is missing", test)
		}
	}
	if strings.Contains(strings.ToLower(out), "error") || strings.Contains(out, "FENCE") {
		t.Errorf("errors: %s", out)
	}
	if n := r.control.LLen(t.Context(), "mylist").Val(); n == 0 {
		t.Error("nothing was written")
	}
}
