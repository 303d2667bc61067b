package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// run runs a client program and returns all that it printed.
func run(t *testing.T, ctx context.Context, env []string, stdin, bin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Env = append(cmd.Env, "LC_ALL=C", "TZ=UTC")
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(bin), strings.Join(args, " "), err, out)
	}
	return string(out)
}

func hostPort(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

const redisScript = `SET a 1
INCR a
GET a
HSET h f v g w
HGETALL h
LPUSH l x y z
LRANGE l 0 -1
SADD s m
ZADD z 1.5 one 2 two
ZRANGE z 0 -1 WITHSCORES
MULTI
INCR a
LPOP l
EXEC
MULTI
INCR a
DISCARD
WATCH a
MULTI
SET a 5
EXEC
EVAL "return redis.call('GET', KEYS[1])" 1 a
INCR h
NOSUCH thing
SET
XADD x 1-1 k v
XRANGE x - +
CLIENT SETNAME mine
CLIENT GETNAME
OBJECT ENCODING a
SELECT 3
SET in three
DBSIZE
SELECT 0
BLPOP l 1
BLPOP none 0.01
PUBLISH c m
GETDEL a
EXPIRE h 100
TYPE z
SORT l
COPY h h2
DEL h h2 l s z x
DBSIZE
`

// redis-cli, run as the bound leader, prints to the letter what it prints beside the
// proxy, in both protocols.
func TestRedisCLIAsLeader(t *testing.T) {
	ctx := testenv.Context(t)
	for _, protocol := range []string{"-2", "-3"} {
		direct := testenv.Redis(t).Addr
		behind := testenv.Redis(t).Addr
		b := memory.New()
		c, _ := lead(t, ctx, b, "orders", "cli", time.Hour)
		addr := redisProxy(t, ctx, behind, b, nil)
		cli := func(addr, script string) string {
			host, port := hostPort(t, addr)
			return run(t, ctx, nil, script, testenv.Tool(t, "redis-cli"), protocol, "-h", host, "-p", port)
		}
		// The fence is one key more in database 0.
		const sizes = "DBSIZE\n"
		script := strings.ReplaceAll(redisScript, sizes, "")
		want := cli(direct, script)
		got := cli(addr, fmt.Sprintf("FENCE BIND %s %s\n%s", c.Election, c.Token.Reveal(), script))
		bound, got, _ := strings.Cut(got, "\n")
		if bound != "OK" || got != want {
			t.Errorf("%s: bind: %s; through the proxy:\n%s\nwithout:\n%s", protocol, bound, got, want)
		}
	}
}

// redis-benchmark runs as the bound leader, and its pipe mode loads what it is given.
func TestRedisBenchmarkAsLeader(t *testing.T) {
	ctx := testenv.Context(t)
	server := testenv.Redis(t).Addr
	b := memory.New()
	c, _ := lead(t, ctx, b, "orders", "benchmark", time.Hour)
	addr := redisProxy(t, ctx, server, b, nil)
	host, port := hostPort(t, addr)
	// The proxy takes the credential in the user name; the server's default user needs
	// no password.
	user := fmt.Sprintf("default;election=%s;token=%s", c.Election, c.Token.Reveal())
	tests := "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange,mset"
	for _, pipeline := range []string{"1", "16"} {
		out := run(t, ctx, nil, "", testenv.Tool(t, "redis-benchmark"), "-h", host, "-p", port, "--user", user, "-a", "none",
			"-t", tests, "-n", "2000", "-c", "20", "-P", pipeline, "--csv")
		for _, name := range []string{"SET", "GET", "INCR", "LPUSH", "ZADD", "MSET (10 keys)"} {
			if !strings.Contains(out, `"`+name+`"`) {
				t.Errorf("pipeline %s: no result of %s:\n%s", pipeline, name, out)
			}
		}
		if strings.Contains(out, "FENCED") || strings.Contains(strings.ToLower(out), "error") {
			t.Errorf("pipeline %s:\n%s", pipeline, out)
		}
	}
	var load strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&load, "*3\r\n$3\r\nSET\r\n$8\r\nk%07d\r\n$1\r\nv\r\n", i)
	}
	out := run(t, ctx, nil, load.String(), testenv.Tool(t, "redis-cli"), "-h", host, "-p", port, "--user", user, "-a", "none", "--no-auth-warning", "--pipe")
	if !strings.Contains(out, "errors: 0, replies: 10000") {
		t.Errorf("redis-cli --pipe:\n%s", out)
	}
}
