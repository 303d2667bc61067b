package main

import (
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// checked runs check on one listener for Redis and returns what it says of it.
func checked(t *testing.T, elections, upstream, control, more string) result {
	t.Helper()
	return command(t, "", "check", "--timeout", "1s", "-c", configFile(t, "elections: {backend: \"redis://%s\"}\nlisteners:\n"+
		"  - {name: db, protocol: redis, listen: 127.0.0.1:0, upstream: \"%s\", control: \"%s\"%s}\n", elections, upstream, control, more))
}

// failures are the lines of failures with their advice, and what is printed to be pasted.
func failures(r result) (lines []string) {
	var bad bool
	for line := range strings.Lines(r.out) {
		line = strings.TrimSpace(line)
		switch mark, rest, _ := strings.Cut(line, "  "); {
		case mark == "fail" || mark == "warn":
			bad = true
			lines = append(lines, mark+": "+rest)
		case mark == "ok":
			bad = false
		case strings.HasPrefix(line, "ACL SETUSER") || bad && line != "":
			lines = append(lines, line)
		}
	}
	return lines
}

// wants checks that the failures hold these texts, a line each, and no more.
func wants(t *testing.T, what string, r result, want ...string) {
	t.Helper()
	got := failures(r)
	same := len(got) == len(want) && r.code == exitFailure
	for i := range min(len(got), len(want)) {
		same = same && strings.Contains(got[i], want[i])
	}
	if !same {
		t.Errorf("%s: got\n  %s\nwant\n  %s\nall of it:\n%s%s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "), r.out, r.err)
	}
}

func setUser(t *testing.T, addr, rules string) {
	t.Helper()
	admin := redis.NewClient(&redis.Options{Addr: addr})
	defer admin.Close()
	args := append([]any{"ACL", "SETUSER", "control", "reset", "on"}, anys(strings.Fields(rules))...)
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestCheckOfOneRedis: what check says of servers that are not what they are taken for.
func TestCheckOfOneRedis(t *testing.T) {
	p, other := testenv.Redis(t), testenv.Redis(t)
	host, port, _ := net.SplitHostPort(p.Addr)
	replica := testenv.Redis(t, "--replicaof", host, port)
	node := testenv.Redis(t, "--cluster-enabled", "yes")

	wants(t, "a node of a cluster", checked(t, other.Addr, node.Addr, "redis://"+node.Addr, ""),
		"fail: db: the server is part of a cluster", "Set upstream and control to redis+cluster://HOST:PORT and cluster: {ports: …}: docs/redis.md#cluster")
	wants(t, "no cluster", checked(t, other.Addr, "redis+cluster://"+p.Addr, "redis+cluster://"+p.Addr, ", cluster: {ports: 7001}"),
		"fail: db: "+p.Addr+": the server is not part of a cluster", "It is not a cluster: write host:port in upstream and redis:// in control")
	wants(t, "a replica", checked(t, other.Addr, replica.Addr, "redis://"+replica.Addr, ""),
		"fail: db: the control connection leads to a replica", "connect to the primary")
	wants(t, "two servers", checked(t, other.Addr, other.Addr, "redis://"+p.Addr, `, nodes: ["`+p.Addr+`"]`),
		"fail: db: upstream and control lead to different servers", "They must lead to the same server")

	// The same, where upstream says so only to the control user.
	for _, s := range []*servers.Process{p, other} {
		setUser(t, s.Addr, ">hunter2 "+redisfence.Rules)
	}
	admin := redis.NewClient(&redis.Options{Addr: p.Addr})
	defer admin.Close()
	there := redis.NewClient(&redis.Options{Addr: other.Addr})
	defer there.Close()
	if err := there.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	r := checked(t, node.Addr, other.Addr, "redis://control:hunter2@"+p.Addr, `, nodes: ["`+p.Addr+`"]`)
	if !strings.Contains(r.out, "fail  db: upstream and control lead to different servers") || strings.Contains(r.out, "hunter2") {
		t.Errorf("%+v", r)
	}
	// A name for an address is no other server, and a user without the right to end scripts is warned of.
	setUser(t, p.Addr, ">hunter2 "+strings.Replace(redisfence.Rules, "+script|kill", "", 1))
	r = checked(t, other.Addr, p.Addr, "redis://control:hunter2@localhost:"+port, `, nodes: ["`+p.Addr+`"]`)
	if r.code != exitOK || !strings.Contains(strings.Join(failures(r), "|"), "warn: db: the control user cannot run SCRIPT KILL: ") || strings.Contains(r.out, "different") {
		t.Errorf("%+v", r)
	}
	wants(t, "nobody there", checked(t, other.Addr, p.Addr, "redis://control:hunter2@"+p.Addr, `, nodes: ["127.0.0.1:1"]`),
		"warn: db: the control user cannot run SCRIPT KILL", "Give the user the rights",
		"fail: db: node 127.0.0.1:1 cannot be swept: ", "takeovers fail until it can be: the option nodes lists it")
	if err := admin.Wait(testenv.Context(t), 1, 0).Err(); err != nil { // until it is listed
		t.Fatal(err)
	}
	wants(t, "a replica without the user", checked(t, other.Addr, p.Addr, "redis://control:hunter2@"+p.Addr, ""),
		"warn: db: the control user cannot run SCRIPT KILL", "Give the user the rights",
		"fail: db: replica "+replica.Addr+" refuses the control user: WRONGPASS ", "Create the user there too: Redis does not replicate users")
	running := serve(t, configFile(t, "elections: {backend: \"redis://%s\"}\nlisteners:\n  - {name: db, protocol: redis, listen: \"%s\", upstream: \"%s\", control: \"redis://control:hunter2@%s\"}\n",
		node.Addr, freeAddr(t), other.Addr, p.Addr), "", "level=ERROR msg=\"check: upstream and control lead to different servers")
	_ = running.Process.Kill()
}

// TestCheckOfClusterUsers: what check says where nodes do not let the control user in.
func TestCheckOfClusterUsers(t *testing.T) {
	nodes := testenv.RedisCluster(t, testenv.RedisServer)
	elections := testenv.Redis(t)
	check := func() result {
		url := "redis+cluster://control:hunter2@" + nodes[0].Addr
		return checked(t, elections.Addr, "redis+cluster://"+nodes[0].Addr, url, ", cluster: {ports: 7001-7004}")
	}
	for _, p := range nodes[:2] {
		setUser(t, p.Addr, ">hunter2 "+redisfence.ClusterRules)
	}
	wants(t, "one node without the user", check(),
		"fail: db: "+nodes[2].Addr+" refuses the control user: WRONGPASS ", "Create the user there too: each node keeps its own users")
	for _, p := range nodes {
		setUser(t, p.Addr, ">hunter2 "+redisfence.Rules)
	}
	wants(t, "without rights", check(),
		"fail: db: the control user cannot run CLUSTER NODES: ", "Give the user the rights below", "ACL SETUSER control "+redisfence.ClusterRules)
}
