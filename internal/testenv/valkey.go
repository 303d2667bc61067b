package testenv

import (
	"context"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// The programs that speak Redis's protocol.
const (
	RedisServer  = "redis-server"
	ValkeyServer = "valkey-server"
)

// Valkey starts a Valkey server of the test's own; args are appended to its command
// line.
func Valkey(t testing.TB, args ...string) *servers.Process {
	t.Helper()
	p, err := servers.StartValkey(Context(t), servers.RedisOptions{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, p) })
	return p
}

// SharedValkey returns the package's one Valkey server, started at the first call. Tests
// keep apart by key names. The package's TestMain must call Main.
func SharedValkey(t testing.TB) *servers.Process {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.valkey == nil {
		p, err := servers.StartValkey(context.Background(), servers.RedisOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shared.valkey = p
		shared.all = append(shared.all, p)
	}
	return shared.valkey
}

// RedisCluster starts a cluster of three primaries of a program.
func RedisCluster(t testing.TB, program string) []*servers.Process {
	t.Helper()
	nodes, err := servers.StartRedisCluster(Context(t), servers.RedisOptions{Program: program}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range nodes {
		t.Cleanup(func() { end(t, p) })
	}
	return nodes
}

// RedisSentinel starts a primary, a replica and three sentinels of a program.
func RedisSentinel(t testing.TB, program string) *servers.RedisSentinel {
	t.Helper()
	s, err := servers.StartRedisSentinel(Context(t), servers.RedisOptions{Program: program})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.All() {
		t.Cleanup(func() { end(t, p) })
	}
	return s
}
