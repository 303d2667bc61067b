package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// TestServeRedis: a control user with no more than the documented rights, a password
// from the environment, a prefix of elections, and an election named by the client.
func TestServeRedis(t *testing.T) {
	p := testenv.Redis(t)
	ctx := testenv.Context(t)
	admin := redis.NewClient(&redis.Options{Addr: p.Addr})
	defer admin.Close()
	rules := append([]any{"ACL", "SETUSER", "control", "on", ">p@ss/word"}, anys(strings.Fields(redisfence.Rules))...)
	if err := admin.Do(ctx, rules...).Err(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONTROL_PASSWORD", "p@ss/word")
	id, addr := testenv.Name(t, "serve"), freeAddr(t)
	file := configFile(t, `elections: {backend: "redis://%s"}
listeners:
  - {name: cache, protocol: redis, listen: "%s", upstream: "%s", control: "redis://control:${CONTROL_PASSWORD}@%s", election: none, elections: [none, "serve*"]}
`, p.Addr, addr, p.Addr, p.Addr)
	if r := command(t, "", "check", "-c", file); r.code != exitOK || strings.Contains(r.out, "warn") {
		t.Fatalf("%+v", r)
	}
	proxy := serve(t, file, addr)
	got, _ := keys(t, command(t, "", "election", "acquire", id, "--backend", "redis://"+p.Addr, "--json").out)
	token := got["token"].(string)

	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	if err := conn.Set(ctx, "k", "v", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "FENCED ") {
		t.Errorf("without a token: %v", err)
	}
	if err := conn.Do(ctx, "FENCE", "BIND", "other", token).Err(); err == nil || !strings.HasPrefix(err.Error(), "FENCED ") {
		t.Errorf("an election that the listener does not serve: %v", err)
	}
	if err := conn.Do(ctx, "FENCE", "BIND", id, token).Err(); err != nil {
		t.Errorf("binding: %v", err)
	}
	if err := conn.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Errorf("with the token: %v", err)
	}
	_ = proxy.Process.Signal(syscall.SIGTERM)
	if code := proxy.ended(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if log := proxy.log.String(); strings.Contains(log, token) || strings.Contains(log, "p@ss") {
		t.Errorf("a secret in the log:\n%s", log)
	}
}

func anys(words []string) []any {
	out := make([]any, len(words))
	for i, w := range words {
		out[i] = w
	}
	return out
}
