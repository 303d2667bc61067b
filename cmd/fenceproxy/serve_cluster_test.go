package main

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// TestServeCluster: the tools that come with the servers stay on the proxy in front of a
// cluster, with users of no more than the documented rights.
func TestServeCluster(t *testing.T) {
	nodes := testenv.RedisCluster(t, testenv.RedisServer)
	ctx := testenv.Context(t)
	var direct []string // the nodes' addresses
	for _, p := range nodes {
		admin := redis.NewClient(&redis.Options{Addr: p.Addr})
		for user, rules := range map[string]string{
			"control": ">hunter2 " + redisfence.ClusterRules,
			"app":     ">x ~* -@all +@read +@write +@connection +@transaction +cluster|slots +cluster|nodes +cluster|info +cluster|countkeysinslot +cluster|myid +info +dbsize +config|get +command",
		} {
			if err := admin.Do(ctx, append([]any{"ACL", "SETUSER", user, "reset", "on"}, anys(strings.Fields(rules))...)...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		_ = admin.Close()
		direct = append(direct, p.Addr)
	}
	elections := testenv.Redis(t)
	var ports []string
	for range 4 {
		_, port, _ := net.SplitHostPort(freeAddr(t))
		ports = append(ports, port)
	}
	id, addr := testenv.Name(t, "serve"), freeAddr(t)
	file := configFile(t, `elections: {backend: "redis://%s"}
listeners:
  - name: cache
    protocol: redis
    listen: "%s"
    upstream: "redis+cluster://%s"
    control: "redis+cluster://control:hunter2@%s"
    election: %s
    cluster: {ports: [%s]}
`, elections.Addr, addr, strings.Join(direct[:2], ","), strings.Join(direct, ","), id, strings.Join(ports, ", "))
	r := command(t, "", "check", "-c", file)
	if r.code != exitOK || strings.Contains(r.out, "warn") || strings.Count(r.out, "a primary with 546") != 3 {
		t.Fatalf("%+v", r)
	}
	proxy := serve(t, file, addr)
	got, _ := keys(t, command(t, "", "election", "acquire", id, "--backend", "redis://"+elections.Addr, "--json").out)
	token := got["token"].(string)
	host, port, _ := net.SplitHostPort(addr)
	tool := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, testenv.Tool(t, name), args...).CombinedOutput()
		if err != nil {
			t.Errorf("%s %q: %v", name, args, err)
		}
		for _, a := range direct {
			if strings.Contains(string(out), a) {
				t.Errorf("%s was told %s:\n%s", name, a, out)
			}
		}
		return string(out)
	}
	login := []string{"-h", host, "-p", port, "--user", "app;token=" + token, "--pass", "x", "--no-auth-warning"}
	for i := range 9 {
		key := fmt.Sprintf("key%d", i)
		if out := tool("redis-cli", append(login, "-c", "SET", key, "1")...); !strings.Contains(out, "OK") {
			t.Errorf("SET %s: %s", key, out)
		}
		if out := tool("redis-cli", append(login, "-c", "GET", key)...); !strings.Contains(out, "1") {
			t.Errorf("GET %s: %s", key, out)
		}
	}
	cluster := []string{"--user", "app;token=" + token, "--pass", "x", "--no-auth-warning", "--cluster"}
	if out := tool("redis-cli", append(cluster, "check", addr)...); !strings.Contains(out, "[OK] All 16384 slots covered.") {
		t.Error(out)
	}
	if out := tool("redis-cli", append(cluster, "info", addr)...); !strings.Contains(out, "keys in 3 masters") {
		t.Error(out)
	}
	if out := tool("redis-benchmark", "-h", host, "-p", port, "--user", "app;token="+token, "-a", "x", "--cluster", "-t", "set,get", "-n", "3000", "-r", "1000", "-c", "6", "-q"); !strings.Contains(out, "requests per second") || strings.Contains(out, "Error") {
		t.Error(out)
	}
	if log := proxy.log.String(); strings.Contains(log, token) || strings.Contains(log, "hunter2") {
		t.Errorf("a secret in the log:\n%s", log)
	}
}
